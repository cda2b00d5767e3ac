"""Random histories of LlamaIndex.

Each becomes strict JSON with legal roles and paired results, or is rejected with a typed error. The test suite runs a
few; ``tests/fuzz/run.py`` runs more.
"""

from __future__ import annotations

import base64
import datetime
import json

from hypothesis import given
from hypothesis import strategies as st
from llama_index.core.base.llms.types import (
    AudioBlock,
    CacheControl,
    CachePoint,
    ChatMessage,
    CitableBlock,
    DocumentBlock,
    ImageBlock,
    TextBlock,
    ThinkingBlock,
    ToolCallBlock,
)
from llama_index.llms.workers_ai._to_wire import to_wire_messages
from tests.fuzz.bounded import run_bounded
from tests.fuzz.strict_json import parse_strict

from workers_ai._wire.chat.request import chat_form
from workers_ai.catalogue import lookup
from workers_ai.errors import WorkersAIError

MODELS = ["@cf/google/gemma-4-26b-a4b-it", "@cf/mistralai/mistral-small-3.1-24b-instruct", "@cf/openai/gpt-oss-120b"]
PIXEL = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)
ROLES = ["system", "developer", "user", "assistant", "tool", "function", "chatbot", "model"]

_text = st.text(st.characters(), max_size=8) | st.sampled_from(["", "a \ud83d b", "NaN", "null", "{}"])
_ids = st.sampled_from(["a", "b", "call_0", "", None])
_scalars = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), _text, st.binary(max_size=4),
    st.just(datetime.datetime(2026, 11, 30)), st.decimals(), st.just(object()), st.just({1, 2}),
)  # fmt: skip
_values = st.recursive(
    _scalars, lambda inner: st.lists(inner, max_size=2) | st.dictionaries(_text, inner, max_size=2), max_leaves=6
)
_arguments = st.dictionaries(_text, _values, max_size=3)
_raw_arguments = st.sampled_from(
    ["", "{", '{"x": NaN}', '{"x": 1e999}', "null", "[]", '{"x": 1}{"x": 1}', '{"a": "\n"}']
)
_images = st.sampled_from([PIXEL, base64.b64encode(PIXEL), b"", b"no image"]).map(lambda data: ImageBlock(image=data))
_flat = st.one_of(
    st.builds(TextBlock, text=_text),
    _images,
    st.sampled_from([b"# text", b"\xff\xfe\x00", PIXEL, b"%PDF-1.4"]).map(lambda data: DocumentBlock(data=data)),
)
_blocks = st.one_of(
    _flat,
    st.builds(ThinkingBlock, content=st.none() | _text),
    st.builds(ToolCallBlock, tool_call_id=_ids, tool_name=_text, tool_kwargs=_arguments | _raw_arguments),
    st.just(CachePoint(cache_control=CacheControl(type="ephemeral"))),
    st.builds(lambda blocks: CitableBlock(title="t", source="s", content=blocks), st.lists(_flat, max_size=2)),
    st.just(AudioBlock(audio=b"RIFF", format="wav")),
)
_kept_calls = st.lists(
    st.one_of(
        st.fixed_dictionaries({"id": _ids, "function": st.fixed_dictionaries({"name": _text, "arguments": _values})}),
        st.fixed_dictionaries({"toolUseId": _ids, "name": _text, "input": _arguments}),
        st.fixed_dictionaries({"type": st.just("tool_use"), "id": _ids, "name": _text, "input": _values}),
        st.fixed_dictionaries({"name": _text, "args": _arguments}),
        _values,
    ),
    max_size=2,
)
_kwargs = st.fixed_dictionaries({}, optional={"tool_call_id": _ids, "tool_calls": _kept_calls, "thinking": _values})

messages = st.builds(
    ChatMessage,
    role=st.sampled_from(ROLES),
    blocks=st.lists(_blocks, max_size=3),
    additional_kwargs=_kwargs,
)
histories = st.lists(messages, min_size=1, max_size=8)


def check(history: list[ChatMessage], model: str, api: str) -> None:
    """Check the body for a history, unless a typed error is raised.

    Raises:
        AssertionError: The body is not strict JSON, or its turns are not legal.
    """
    try:
        plan = chat_form(lookup(model).id, {}, api=api).plan(to_wire_messages(history))
    except WorkersAIError:
        return
    body = json.loads(json.dumps(plan.request.body, allow_nan=False))
    turns = body["messages"]
    for place, message in enumerate(turns):
        assert message["role"] in {"system", "developer", "user", "assistant", "tool"}
        assert isinstance(message["content"], str) or message["role"] == "user"
        wanted = [call["id"] for call in message.get("tool_calls", ())]
        behind = [found.get("tool_call_id") for found in turns[place + 1 : place + 1 + len(wanted)]]
        assert sorted(wanted) == sorted(behind)
        for call in message.get("tool_calls", ()):
            assert isinstance(parse_strict(call["function"]["arguments"]), dict)


_STRATEGIES = (histories, st.sampled_from(MODELS), st.sampled_from(["chat_completions", "run"]))
histories_and_routes = given(*_STRATEGIES)


def fuzz_histories(examples: int, seed: int = 0) -> None:
    """Check this many histories."""
    run_bounded(check, examples, seed, *_STRATEGIES)
