"""Cases for the 12 models in the live tests of ``langchain-cloudflare``."""

from __future__ import annotations

import json
from typing import Any

import pytest

from workers_ai_emulator import Emulator

MODELS = [
    "@cf/meta/llama-3.3-70b-instruct-fp8-fast",
    "@cf/mistralai/mistral-small-3.1-24b-instruct",
    "@cf/qwen/qwen3-30b-a3b-fp8",
    "@cf/zai-org/glm-4.7-flash",
    "@cf/zai-org/glm-5.2",
    "@cf/openai/gpt-oss-120b",
    "@cf/openai/gpt-oss-20b",
    "@cf/nvidia/nemotron-3-120b-a12b",
    "@cf/moonshotai/kimi-k2.6",
    "@cf/deepseek-ai/deepseek-v4-pro-0813",
    "@cf/deepseek-ai/deepseek-v4-flash-0731",
    "@cf/google/gemma-4-26b-a4b-it",
]
SEEING = [MODELS[8], MODELS[9], MODELS[11]]
WEATHER = {  # its property has no description
    "name": "get_weather",
    "description": "Get the current weather for a city.",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
}
NOTICE = {
    "type": "object",
    "properties": {
        "kind": {"type": "string", "description": "Kind of announcement"},
        "entities": {"type": "array", "items": {"type": "string"}},
    },
    "required": ["kind", "entities"],
}
PIXEL = (
    "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5E"
    "rkJggg=="
)

pytestmark = pytest.mark.parametrize("api", ["run", "chat_completions"])
every_model = pytest.mark.parametrize("model", MODELS)


@pytest.fixture
def client(face: Any) -> Any:
    return face(Emulator().transport())


def _user(text: str) -> list[dict[str, Any]]:
    return [{"role": "user", "content": text}]


@every_model
def test_text_whole_and_streamed(client: Any, model: str, api: str) -> None:
    whole = client.chat(model, _user("Hello"), api=api, temperature=1e-8, max_tokens=2000)
    pieces = client.stream(model, _user("Hello"), api=api, max_tokens=2000)

    assert whole.text
    assert "".join(piece.text for piece in pieces) == whole.text
    assert "".join(piece.reasoning for piece in pieces) == whole.reasoning
    assert bool(whole.reasoning) == (model not in MODELS[:2])


@every_model
@pytest.mark.parametrize("choice", [None, "get_weather"])
def test_a_tool_is_called_and_its_result_is_read(client: Any, model: str, api: str, choice: Any) -> None:
    options = {"tools": [WEATHER], "api": api, "max_tokens": 2000}
    forced = {"tool_choice": choice} if choice else {}
    question = _user("What is the weather in Rome?")
    (call,) = client.chat(model, question, **options, **forced).tool_calls
    assert (call.name, json.loads(call.arguments)) == ("get_weather", {"city": "Rome"})

    function = {"name": call.name, "arguments": call.arguments}
    turn = {
        "role": "assistant",
        "content": "",
        "tool_calls": [{"id": call.id, "type": "function", "function": function}],
    }
    result = {"role": "tool", "tool_call_id": call.id, "name": call.name, "content": "22 degrees"}
    assert "22 degrees" in client.chat(model, [*question, turn, result], **options).text


@every_model
def test_an_answer_matches_the_schema(client: Any, model: str, api: str) -> None:
    wanted = {"type": "json_schema", "json_schema": {"name": "notice", "schema": NOTICE}}
    text = client.chat(model, _user("Acme joins Globex."), api=api, response_format=wanted, max_tokens=2000).text

    assert set(json.loads(text)) == {"kind", "entities"}


@pytest.mark.parametrize("model", SEEING)
def test_images_are_sent_to_models_with_vision(client: Any, model: str, api: str) -> None:
    parts = [{"type": "text", "text": "Describe it."}, {"type": "image_url", "image_url": {"url": PIXEL}}]

    assert client.chat(model, [{"role": "user", "content": parts}], api=api, max_tokens=2000).text
