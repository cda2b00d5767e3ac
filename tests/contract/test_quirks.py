"""Differences between models in requests: each is listed with its evidence and logged."""

from __future__ import annotations

import ast
import itertools
import json
import warnings
from pathlib import Path
from typing import Any

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

import workers_ai
from workers_ai import errors
from workers_ai._wire import quirks
from workers_ai._wire.quirks import QUIRKS, choose_form
from workers_ai.catalogue import known_models

HI = [{"role": "user", "content": "hi"}]
NEW = "@cf/nobody/new-model"
GLM = "@cf/zai-org/glm-4.7-flash"
CLOCK = {"type": "function", "function": {"name": "clock", "description": "d", "parameters": {"type": "object"}}}
SEARCH = {"type": "function", "function": {"name": "search", "description": "d", "parameters": {"type": "object"}}}
NAMED = {"type": "function", "function": {"name": "clock"}}
FORMS = ("auto", "none", "required", "named")


def form(choice: Any) -> Any:
    """Return the form of a tool choice on the wire."""
    return "named" if isinstance(choice, dict) else choice


@given(
    choice=st.sampled_from(["auto", "none", "required", NAMED]),
    tools=st.sampled_from([[CLOCK], [CLOCK, SEARCH], [CLOCK["function"]]]),
    refused=st.sets(st.sampled_from(FORMS)),
)
def test_a_tool_choice_is_sent_replaced_or_warned_about(choice: Any, tools: Any, refused: set[str]) -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        sent, kept = choose_form(NEW, choice, tools, refused)
    assert form(sent) not in refused
    forced = form(choice) in ("required", "named")
    if forced and sent is None:  # no other form forces this call, so a warning is shown
        assert len(caught) == 1
        assert NEW in str(caught[0].message)
        assert {"required", "named"} <= refused or (form(choice) == "required" and len(tools) > 1)
        return
    assert not caught
    if form(choice) == "named" and sent == "required":
        assert [tool.get("function", tool)["name"] for tool in kept] == ["clock"]
    elif form(choice) == "none" and sent is None:
        assert not kept
    else:
        assert kept == tools


@pytest.mark.parametrize("api", ["chat_completions", "run", "responses"])
@pytest.mark.parametrize("way", ["chat", "stream"])
def test_a_rejected_form_is_replaced_by_the_next_one(api: Any, way: str, face: Any) -> None:
    sent: list[Any] = []
    refused: set[str] = set()

    def strict(request: httpx.Request) -> httpx.Response:
        body = json.loads(request.content)
        sent.append(body)
        if form(body.get("tool_choice")) in refused:
            return httpx.Response(400, json={"errors": [{"code": 8001, "message": "Invalid input: 'tool_choice'"}]})
        answer = {"output": [{"type": "message", "content": [{"type": "output_text", "text": "ok"}]}]}
        return httpx.Response(200, json={"result": answer if api == "responses" else {"response": "ok"}})

    one, model = face(strict), "@cf/openai/gpt-oss-120b" if api == "responses" else NEW
    for forms, choice, tools in itertools.product(
        [{"required"}, {"named"}, {"required", "named"}, {"auto"}, set(FORMS)],
        ["auto", "none", "required", "any", "clock"],
        [[CLOCK], [CLOCK, SEARCH]],
    ):
        sent.clear()
        refused |= forms
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            getattr(one, way)(model, HI, api=api, tools=tools, tool_choice=choice)
        last = form(sent[-1].get("tool_choice"))
        assert last not in refused
        assert len(sent) <= 3
        wants_call = choice not in ("auto", "none")
        assert len(caught) == (wants_call and last is None)
        assert not wants_call or last in ("required", "named", None)
        refused.clear()


def test_a_rejection_for_another_reason_is_not_repaired(face: Any) -> None:
    sent: list[Any] = []

    def short(request: httpx.Request) -> httpx.Response:
        sent.append(request)
        text = "8006: Invalid data for tool_choice - reason forced tool_choice needs more max_tokens"
        return httpx.Response(400, json={"errors": [{"code": 8006, "message": text}]})

    with pytest.raises(errors.StructuredOutputError):
        face(short).chat(NEW, HI, tools=[CLOCK], tool_choice="clock")
    assert len(sent) == 1


KIMI, GPT, GLM53 = "@cf/moonshotai/kimi-k2.6", "@cf/openai/gpt-oss-120b", "@cf/zai-org/glm-5.3"
NO_TEMPLATE = {"chat_template_kwargs": {"enable_thinking": False}}
NO_EFFORT = {"reasoning_effort": "none"}


@pytest.mark.parametrize(
    ("model", "settings", "text"),
    [
        ("@cf/nvidia/nemotron-3-120b-a12b", NO_TEMPLATE, "hm"),
        (KIMI, NO_EFFORT, "hm"),
        (KIMI, NO_TEMPLATE, ""),
        (GPT, NO_TEMPLATE, ""),
        (GPT, NO_EFFORT, ""),
        (GLM53, NO_EFFORT, ""),
    ],
)
def test_reasoning_is_the_answer_only_of_models_that_stop_thinking(
    model: str, settings: Any, text: str, face: Any
) -> None:
    seen: list[Any] = []

    def truncated(request: httpx.Request) -> httpx.Response:
        seen.append(json.loads(request.content))
        piece = {"content": "", "reasoning_content": "hm"}
        if not seen[-1].get("stream"):
            return httpx.Response(200, json={"choices": [{"message": piece, "finish_reason": "length"}]})
        event = json.dumps({"choices": [{"index": 0, "delta": piece, "finish_reason": "length"}]})
        headers = {"content-type": "text/event-stream"}
        return httpx.Response(200, headers=headers, text=f"data: {event}\n\ndata: [DONE]\n\n")

    one = face(truncated)
    reply, deltas = one.chat(model, HI, **settings), one.stream(model, HI, **settings)
    assert [reply.text, "".join(delta.text for delta in deltas)] == [text, text]
    assert all(settings.items() <= body.items() for body in seen)


def test_each_quirk_has_its_evidence_and_some_model() -> None:
    by_catalogue = {quirks.GUIDED_JSON, quirks.TOOL_CHOICE_FORMS, quirks.SCHEMA_BEFORE_TOOL}
    defined = {value for value in vars(quirks).values() if isinstance(value, quirks.Quirk)}
    assert defined == set(QUIRKS)
    for quirk in QUIRKS:
        assert "http" in quirk.evidence
        assert quirk in by_catalogue or any(quirk.of(card) for card in known_models())


@pytest.mark.parametrize("package", [Path(workers_ai.__file__).parent], ids=["workers_ai"])
def test_no_other_module_compares_model_names(package: Path) -> None:
    families = ("mistral", "llama", "glm", "kimi", "gpt-oss", "qwen", "gemma", "nemotron", "deepseek", "clef", "bge")
    found = []
    for path in package.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Compare) and isinstance(node.left, ast.Constant):
                text = str(node.left.value)
                if any(isinstance(op, ast.In) for op in node.ops) and any(name in text for name in families):
                    found.append(f"{path.name}: {text}")
    assert [row for row in found if not row.startswith("quirks.py")] == []
