"""The official ``openai`` SDK, unchanged, through a socket."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import openai
import pytest
from tests.emulator.conftest import BGE, GEMMA, LLAMA
from tests.emulator.test_chat import CLOCK_TOOL, GREETING

from workers_ai_emulator import Emulator, Fault

if TYPE_CHECKING:
    from collections.abc import Iterator

ASK: Any = [{"role": "user", "content": "Hello"}]
TIME: Any = [{"role": "user", "content": "Time in Oslo?"}]
TOOLS: Any = [CLOCK_TOOL]


@pytest.fixture(scope="module")
def served() -> Iterator[tuple[Emulator, str]]:
    emulator = Emulator()
    with emulator.serve() as url:
        yield emulator, f"{url}/accounts/acct/ai/v1"


@pytest.fixture
def emulator(served: tuple[Emulator, str]) -> Emulator:
    served[0].reset()
    return served[0]


@pytest.fixture(scope="module")
def sdk(served: tuple[Emulator, str]) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=served[1], api_key="token", max_retries=0) as client:
        yield client


@pytest.fixture
def client(emulator: Emulator, sdk: openai.OpenAI) -> openai.OpenAI:
    """Return the SDK's client, on an emulator that was reset."""
    return sdk


@pytest.mark.parametrize("model", [LLAMA, GEMMA])
def test_chat(client: openai.OpenAI, model: str) -> None:
    reply = client.chat.completions.create(model=model, messages=ASK)

    assert (reply.choices[0].message.content, reply.choices[0].finish_reason) == (GREETING, "stop")
    assert reply.usage is not None
    assert reply.usage.total_tokens == reply.usage.prompt_tokens + reply.usage.completion_tokens > 0


@pytest.mark.parametrize("model", [LLAMA, GEMMA])
def test_a_stream(client: openai.OpenAI, model: str) -> None:
    chunks = list(client.chat.completions.create(model=model, messages=ASK, stream=True))

    assert "".join(c.choices[0].delta.content or "" for c in chunks if c.choices) == GREETING
    assert next(c.choices[0].finish_reason for c in chunks if c.choices and c.choices[0].finish_reason) == "stop"


def test_tools_whole_and_streamed_to_the_final_answer(client: openai.OpenAI) -> None:
    message = client.chat.completions.create(model=GEMMA, messages=TIME, tools=TOOLS).choices[0].message
    with client.chat.completions.stream(model=GEMMA, messages=TIME, tools=TOOLS) as stream:
        streamed = stream.get_final_completion().choices[0].message

    for said in (message, streamed):
        assert said.tool_calls is not None
        assert (
            said.tool_calls[0].function.name,
            said.tool_calls[0].function.arguments,
        ) == ("clock", '{"city": "Oslo"}')
    assert message.tool_calls is not None
    history: Any = [
        *TIME,
        {"role": "assistant", "content": "", "tool_calls": [message.tool_calls[0].model_dump()]},
        {"role": "tool", "tool_call_id": message.tool_calls[0].id, "content": "14:02"},
    ]
    final = client.chat.completions.create(model=LLAMA, messages=history, tools=TOOLS).choices[0].message.content
    assert final == "The result of clock is: 14:02"


def test_older_models_reject_the_null_content_of_the_sdk(client: openai.OpenAI) -> None:
    message = client.chat.completions.create(model=LLAMA, messages=TIME, tools=TOOLS).choices[0].message
    assert message.tool_calls is not None
    answered = {"role": "tool", "tool_call_id": message.tool_calls[0].id, "content": "14:02"}
    history: Any = [*TIME, message.model_dump(), answered]

    with pytest.raises(openai.BadRequestError, match="Type mismatch of '/messages/1/content'"):
        client.chat.completions.create(model=LLAMA, messages=history, tools=TOOLS)


def test_structured_output(client: openai.OpenAI) -> None:
    schema = {"type": "object", "properties": {"age": {"type": "integer"}}, "required": ["age"]}
    wanted: Any = {"type": "json_schema", "json_schema": {"name": "person", "schema": schema}}
    ask: Any = [{"role": "user", "content": "Ann is 41."}]
    reply = client.chat.completions.create(model=GEMMA, messages=ask, response_format=wanted)

    assert reply.choices[0].message.content == '{"age": 41}'


def test_embeddings_with_the_sdks_base64(client: openai.OpenAI, emulator: Emulator) -> None:
    reply = client.embeddings.create(model=BGE, input=["a", "b"])

    assert [(row.index, len(row.embedding)) for row in reply.data] == [(0, 768), (1, 768)]
    assert emulator.log.last.json["encoding_format"] == "base64"


def test_responses(client: openai.OpenAI) -> None:
    assert client.responses.create(model="@cf/openai/gpt-oss-120b", input="Hello").output_text == GREETING


@pytest.mark.parametrize(
    ("model", "error", "code"),
    [
        ("@cf/no/model", openai.BadRequestError, 5007),
        ("@cf/microsoft/phi-2", openai.APIStatusError, 5028),
    ],
)
def test_errors_keep_their_code_in_the_body(client: openai.OpenAI, model: str, error: type[Any], code: int) -> None:
    with pytest.raises(error) as caught:
        client.chat.completions.create(model=model, messages=ASK)

    assert code == caught.value.body["errors"][0]["code"]


def test_reject_if_busy_by_extra_body(client: openai.OpenAI, emulator: Emulator) -> None:
    emulator.capacity.slots = 0
    with pytest.raises(openai.RateLimitError) as caught:
        client.chat.completions.create(model=GEMMA, messages=ASK, extra_body={"options": {"rejectIfBusy": True}})

    assert caught.value.body["errors"][0]["code"] == 3040  # type: ignore[index]


def test_a_dropped_connection_and_the_sdks_own_retry(client: openai.OpenAI, emulator: Emulator) -> None:
    emulator.faults.add(Fault.drop(), Fault.error(500, 3043))
    with pytest.raises(openai.APIConnectionError):
        client.chat.completions.create(model=GEMMA, messages=ASK)

    assert (
        client.with_options(max_retries=2).chat.completions.create(model=GEMMA, messages=ASK).choices[0].message.content
        == GREETING
    )
    assert [entry.status for entry in emulator.log.entries] == [None, 500, 200]


def test_listing_models_is_a_405(client: openai.OpenAI) -> None:
    with pytest.raises(openai.APIStatusError) as caught:
        client.models.list()

    assert caught.value.status_code == 405
