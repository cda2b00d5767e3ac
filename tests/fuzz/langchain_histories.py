"""Random histories and tools for LangChain's chat model.

Each is sent as strict JSON with legal turns, or rejected with a typed error before it is sent. The test suite runs a
few; ``tests/fuzz/run.py`` runs more.
"""

from __future__ import annotations

import copy
import datetime
import decimal
import enum
from typing import Any, Final

import httpx
from hypothesis import strategies as st
from langchain_core.messages import (
    AIMessage,
    AIMessageChunk,
    BaseMessage,
    ChatMessage,
    FunctionMessage,
    HumanMessage,
    SystemMessage,
    ToolMessage,
)
from pydantic import BaseModel, Field, create_model
from tests.fuzz.bounded import run_bounded
from tests.fuzz.strict_json import parse_strict

from langchain_workers_ai import ChatWorkersAI, WorkersAIError

MODELS: Final = [
    "@cf/moonshotai/kimi-k2.6",
    "@cf/meta/llama-4-scout-17b-16e-instruct",
    "@cf/openai/gpt-oss-120b",
    "a/b",
]
ANSWER: Final = {"choices": [{"index": 0, "message": {"role": "assistant", "content": "ok"}, "finish_reason": "stop"}]}
PNG: Final = b"\x89PNG\r\n\x1a\n"


class Colour(enum.Enum):
    RED = "red"


class Point(BaseModel):
    x: float = float("nan")
    when: datetime.date = datetime.date(2026, 1, 2)


words = st.text(st.characters(codec=None, exclude_characters="{}[]"), max_size=8)
ids = st.sampled_from(["c1", "c2", "call_3", "", "ø", "a-b"])
names = st.sampled_from(["clock", "search", "a b", "", "ü"])
scalars = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), words, st.binary(max_size=4),
    st.sampled_from(
        [datetime.date(2026, 1, 2), datetime.datetime(2026, 1, 2), datetime.timedelta(1), decimal.Decimal("1.5"),
         decimal.Decimal("NaN"), Colour.RED, Point(), Point, object(), {1, 2}, (1, 2), frozenset({"a"}), 10**400]
    ),
)  # fmt: skip
keys = st.one_of(st.sampled_from(["a", "city", "type", "text", "ø"]), st.integers(), st.none())
data = st.recursive(scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keys, inner, max_size=3))
objects = st.dictionaries(words, data, max_size=3)

_IMAGES: Final = [
    {"type": "image", "base64": PNG, "mime_type": "image/png"},
    {"type": "image", "source": {"type": "base64", "data": "iVBORw0KGgo=", "media_type": "image/png"}},
    {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo="}},
    {"type": "input_image", "image_url": "iVBORw0KGgo="},
    {"image": {"format": "png", "source": {"bytes": PNG}}},
    {"inlineData": {"mimeType": "image/png", "data": "iVBORw0KGgo="}},
    {"type": "media", "mime_type": "image/png", "data": PNG},
    {"type": "image_url", "image_url": "https://example.org/a.png"},
]
_OTHERS: Final = [
    {"cachePoint": {"type": "default"}},
    {"type": "cache_point"},
    {"type": "text", "text": "a", "cache_control": {"type": "ephemeral"}},
    {"text": "a", "thought": True},
    {"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]},
    {"type": "reasoning", "summary": [{"type": "summary_text", "text": "hm"}]},
    {"type": "reasoning_content", "reasoning_content": {"type": "text", "text": "hm"}},
    {"reasoningContent": {"reasoningText": {"text": "hm"}}},
    {"type": "redacted_thinking", "data": "x"},
    {"type": "tool_use", "id": "c1", "name": "clock", "input": {"when": datetime.date(2026, 1, 2)}},
    {"toolUse": {"toolUseId": "c2", "name": "clock", "input": {"x": float("inf")}}},
    {"type": "function_call", "call_id": "c1", "name": "clock", "arguments": '{"x": NaN}'},
    {"type": "tool_result", "tool_use_id": "c1", "content": [{"type": "text", "text": "a"}]},
    {"toolResult": {"toolUseId": "c2", "content": [{"json": {"a": float("nan")}}, {"text": "a"}]}},
    {"document": {"format": "pdf", "name": "a", "source": {"bytes": b"%PDF"}}},
    {"document": {"format": "txt", "name": "a", "source": {"text": "a"}}},
    {"type": "document", "source": {"type": "text", "data": "a"}},
    {"type": "file", "base64": "JVBERi0=", "mime_type": "application/pdf"},
    {"type": "input_audio", "input_audio": {"data": "AA", "format": "wav"}},
    {"guardContent": {"text": {"text": "a"}}},
    {"type": "refusal", "refusal": "no"},
    {"type": "server_tool_use", "id": "s", "name": "web_search", "input": {}},
    {"type": "non_standard", "value": {"type": "reference", "reference_ids": [1]}},
]
_TYPES: Final = ["text", "image", "image_url", "thinking", "file", "tool_use", "reasoning", "json", "x", None, 5, []]
blocks = st.one_of(
    words,
    words.map(lambda text: {"type": "text", "text": text}),
    words.map(lambda text: {"text": text}),
    st.sampled_from([*_IMAGES, *_OTHERS]),
    st.builds(lambda kind, more: {**more, "type": kind}, st.sampled_from(_TYPES), objects),
    objects,
)
contents = st.one_of(words, st.lists(blocks, max_size=4))
_calls = st.builds(lambda name, args, call_id: {"name": name, "args": args, "id": call_id}, names, objects, ids)
_broken = st.builds(
    lambda name, args, call_id: {"name": name, "args": args, "id": call_id, "error": "x"},
    names,
    st.sampled_from(['{"a": NaN}', "", "{", '{"a": 1e999}', "[1]", '"a"', '{"a": "\\ud83d"}']),
    ids,
)
_metadata = st.sampled_from(
    [{}, {"model_provider": "openai"}, {"model_provider": "anthropic"}, {"model_provider": "bedrock_converse"},
     {"model_provider": "google_genai"}, {"output_version": "v1"}]
)  # fmt: skip
_extras = st.sampled_from([{}, {"reasoning_content": "hm"}, {"reasoning": {"summary": [{"text": "hm"}]}}])
messages = st.one_of(
    st.builds(lambda content, name: HumanMessage(content, name=name), contents, st.none() | words),
    st.builds(lambda content: SystemMessage(content), contents),
    st.builds(
        lambda content, calls, bad, metadata, extras: AIMessage(
            content,
            tool_calls=calls,
            invalid_tool_calls=bad,
            response_metadata=metadata,
            additional_kwargs=copy.deepcopy(extras),
        ),
        contents, st.lists(_calls, max_size=2), st.lists(_broken, max_size=1), _metadata, _extras,
    ),
    st.builds(lambda content: AIMessageChunk(content), contents),
    st.builds(
        lambda content, call_id, status: ToolMessage(content, tool_call_id=call_id, status=status),
        contents, ids, st.sampled_from(["success", "error"]),
    ),
    st.builds(lambda content, name: FunctionMessage(content, name=name), contents, names),
    st.builds(lambda content, role: ChatMessage(content, role=role), contents, st.sampled_from(["user", "developer"])),
)  # fmt: skip
histories = st.lists(messages, min_size=1, max_size=7)


class Service:
    """Answer each request, and keep its body."""

    def __init__(self) -> None:
        self.body: Any = None
        client = httpx.Client(transport=httpx.MockTransport(self._answer))
        self.models = {
            name: ChatWorkersAI(model=name, account_id="a" * 32, api_token="token-of-the-fuzz", http_client=client)
            for name in MODELS
        }

    def _answer(self, request: httpx.Request) -> httpx.Response:
        self.body = parse_strict(request.content)
        return httpx.Response(200, json=ANSWER)

    def sent(self, model: str, history: list[BaseMessage], **options: Any) -> Any:
        """Return the body of this request; None if a typed error was raised before it."""
        self.body = None
        try:
            self.models[model]._generate(history, **options)
        except WorkersAIError:
            assert self.body is None, "an error after the request"
        return self.body


def check_turns(turns: list[dict[str, Any]]) -> None:
    """Check roles, content and pairing of a conversation as it was sent."""
    called: set[str] = set()
    due: list[str] = []
    for turn in turns:
        role, content = turn["role"], turn["content"]
        assert role in ("system", "developer", "user", "assistant", "tool"), role
        assert isinstance(content, str) or (role == "user" and isinstance(content, list)), turn
        if isinstance(content, list):
            assert all(part["type"] in ("text", "image_url") for part in content), turn
        elif role != "tool":
            assert "{" not in content, f"data was sent as text: {content}"
        if role == "tool":
            if turn["tool_call_id"] in due:
                due.remove(turn["tool_call_id"])
            else:
                assert turn["tool_call_id"] not in called, "a second result, or a late one"
            continue
        assert not due, f"calls without a result: {due}"
        for call in turn.get("tool_calls", ()):
            assert isinstance(parse_strict(call["function"]["arguments"]), dict), call
            due.append(call["id"])
            called.add(call["id"])
    assert not due, f"calls without a result: {due}"


def check_history(service: Service, model: str, history: list[BaseMessage]) -> None:
    """Check the request for a history, and that the history is unchanged."""
    before = repr(history)
    body = service.sent(model, history)
    assert repr(history) == before, "the caller's messages were changed"
    if body is not None:
        check_turns(body["messages"])


# --- tools ---

_KINDS: Final = ["string", "integer", "number", "boolean", "null", "array", "object"]
_leaf = st.fixed_dictionaries(
    {"type": st.sampled_from([*_KINDS, ["string", "null"]])},
    optional={
        "description": words,
        "default": scalars,
        "enum": st.lists(st.integers() | words, max_size=2),
        "$ref": st.sampled_from(["#/$defs/A", "#/$defs/None", "#", "http://example.org"]),
    },
)
schemas = st.recursive(
    _leaf | st.booleans(),
    lambda inner: st.one_of(
        st.builds(lambda item: {"type": "array", "items": item}, inner),
        st.builds(lambda some: {"anyOf": some}, st.lists(inner, max_size=2)),
        st.fixed_dictionaries(
            {"type": st.just("object")},
            optional={
                "properties": st.dictionaries(words, inner, max_size=3),
                "required": st.lists(words, max_size=2),
                "additionalProperties": inner,
                "$defs": st.dictionaries(st.sampled_from(["A", "B"]), inner, max_size=2),
            },
        ),
    ),
    max_leaves=6,
)
_fields = st.dictionaries(
    st.from_regex(r"[a-z]{1,6}", fullmatch=True).filter(lambda name: name not in ("json", "copy", "dict", "schema")),
    st.sampled_from([
        (str, "x"), (int, ...), (float, float("nan")), (datetime.date, datetime.date(2026, 1, 2)),
        (list[Point], []), (Colour, Colour.RED), (dict[str, Any], Field(description="d")), (decimal.Decimal, ...),
        (Point | None, None), (set[int], {1}),
    ]),
    max_size=4,
)  # fmt: skip
tools = st.one_of(
    st.builds(
        lambda name, parameters: {"type": "function", "function": {"name": name, "parameters": parameters}},
        names,
        schemas | objects,
    ),
    st.builds(lambda name, schema: {"name": name, "description": "d", "input_schema": schema}, names, schemas),
    schemas.map(lambda schema: {"title": "T", "description": "d", **(schema if isinstance(schema, dict) else {})}),
    st.builds(lambda fields: create_model("Tool", __doc__="A tool.", **fields), _fields),
)  # fmt: skip


def check_tool(service: Service, model: str, tool: Any) -> None:
    """Check the request for a bound tool, and for the same tool as the schema of a structured answer."""
    llm = service.models[model]
    for bind in (lambda: llm.bind_tools([tool]), lambda: llm.with_structured_output(tool, method="json_schema").first):
        try:
            options = bind().kwargs
        except WorkersAIError:
            continue
        options.pop("ls_structured_output_format", None)
        body = service.sent(model, [HumanMessage("hi")], **options)
        for sent in (body or {}).get("tools", ()):
            assert isinstance(sent["function"]["name"], str)
            assert isinstance(sent["function"].get("parameters", {}), dict)


def fuzz_histories(examples: int, seed: int = 0) -> None:
    """Check this many histories."""
    service = Service()
    run_bounded(
        lambda model, history: check_history(service, model, history),
        examples,
        seed,
        st.sampled_from(MODELS),
        histories,
    )


def fuzz_tools(examples: int, seed: int = 0) -> None:
    """Check this many tools."""
    service = Service()
    run_bounded(lambda model, tool: check_tool(service, model, tool), examples, seed, st.sampled_from(MODELS), tools)
