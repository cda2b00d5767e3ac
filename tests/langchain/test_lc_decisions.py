"""Decision models: requests, and results through LangChain's interface."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any

import pytest
from langchain_core.exceptions import ModelError
from langchain_core.messages import AIMessage, HumanMessage, SystemMessage
from tests.support import every_row, wired

import langchain_workers_ai as ours
from langchain_workers_ai import WorkersAIDecisions
from workers_ai_emulator import Fault

decisions = pytest.importorskip("langchain_core.decisions", reason="needs langchain-core 1.8 or newer")

if TYPE_CHECKING:
    from collections.abc import Callable

    from workers_ai_emulator import Emulator

    Make = Callable[..., WorkersAIDecisions]

PNG = "data:image/png;base64,iVBORw0KGgo="
IMAGE = {"type": "image", "base64": "iVBORw0KGgo=", "mime_type": "image/png"}
TEAMS = {"billing": "invoices", "checkout": "checkout bugs"}
LEVELS = ["calm", "angry", "furious"]
URGENT = decisions.Noul(instructions="Is the checkout down?")
TEAM = decisions.Choice(instructions="Which team?", criteria=TEAMS)
MOOD = decisions.Score(instructions="How angry?", criteria=LEVELS)


@pytest.fixture
def model(emulator: Emulator) -> Make:
    """Return a function that creates decision models. Keywords are settings."""
    return lambda **settings: WorkersAIDecisions(**wired(emulator, **settings))


def ask(call: Any, model: WorkersAIDecisions, state: Any, **questions: Any) -> Any:
    return call(model, "invoke", {"state": state, "questions": questions})


def test_every_kind_of_question(model: Make, emulator: Emulator, call: Any) -> None:
    response = ask(call, model(), "The checkout is down, I am furious!", urgent=URGENT, team=TEAM, mood=MOOD)
    entry = emulator.log.last
    assert entry.path.endswith("/ai/run/@cf/cloudflare/clef")
    assert entry.json == {
        "model": "clef",
        "state": "The checkout is down, I am furious!",
        "questions": {
            "urgent": {"type": "noul", "instructions": "Is the checkout down?"},
            "team": {"type": "choice", "instructions": "Which team?", "criteria": TEAMS},
            "mood": {"type": "score", "instructions": "How angry?", "criteria": LEVELS},
        },
    }
    assert response.model == "@cf/cloudflare/clef"
    assert 0.5 < response.nouls["urgent"].noul <= 1
    team = response.choices["team"]
    assert (team.choice, set(team.probabilities)) == ("checkout", {"billing", "checkout"})
    assert sum(team.probabilities.values()) == pytest.approx(1)
    assert response.scores["mood"].score > 1
    assert response.request_id


def test_criteria_of_a_yes(model: Make, emulator: Emulator, call: Any) -> None:
    noul = decisions.Noul(instructions="Down?", criteria=decisions.NoulCriteria(true="it is down"))
    response = ask(call, model(), "down", down=noul)
    assert emulator.log.last.json["questions"]["down"]["criteria"] == {"true": "it is down"}
    assert response.nouls["down"].type == "noul"


@pytest.mark.parametrize(
    ("state", "sent"),
    [
        ("text", "text"),
        ({"a": [1, None, True]}, {"a": [1, None, True]}),
        (HumanMessage("hi"), [{"role": "user", "content": "hi"}]),
        (
            [SystemMessage("Be brief."), HumanMessage("hi"), AIMessage("yes")],
            [
                [{"role": "system", "content": "Be brief."}],
                [{"role": "user", "content": "hi"}],
                [{"role": "assistant", "content": "yes"}],
            ],
        ),
        ({"log": [HumanMessage("hi")]}, {"log": [[{"role": "user", "content": "hi"}]]}),
    ],
)
def test_every_kind_of_state(state: Any, sent: Any, model: Make, emulator: Emulator, call: Any) -> None:
    ask(call, model(), state, urgent=URGENT)
    assert emulator.log.last.json["state"] == sent


def test_images_are_sent_in_their_own_field(model: Make, emulator: Emulator, call: Any) -> None:
    state = {"photos": [IMAGE, {"type": "image_url", "image_url": {"url": PNG}}], "note": HumanMessage([IMAGE])}
    ask(call, model(), state, urgent=URGENT)
    body = emulator.log.last.json
    assert body["images"] == [PNG, PNG, PNG]
    assert body["state"]["photos"] == ["[image 1]", "[image 2]"]
    assert body["state"]["note"] == [{"role": "user", "content": ["[image 3]"]}]


def test_audio_and_video_are_sent_in_their_own_fields_to_clef_omni(model: Make, emulator: Emulator, call: Any) -> None:
    state = [
        {"type": "audio", "base64": "UklGRg==", "mime_type": "audio/wav"},
        {"type": "video", "url": "data:video/mp4;base64,AAAA"},
        HumanMessage([{"type": "input_audio", "input_audio": {"data": "AAAA", "format": "mp3"}}, IMAGE]),
        {"type": "media", "data": b"\xff\xfb", "mime_type": "audio/mpeg"},
    ]
    assert ask(call, model(model="@cf/cloudflare/clef-omni"), state, urgent=URGENT).nouls
    body = emulator.log.last.json
    audio = ["data:audio/wav;base64,UklGRg==", "data:audio/mpeg;base64,AAAA", "data:audio/mpeg;base64,//s="]
    assert (body["audio"], body["videos"], body["images"]) == (audio, ["data:video/mp4;base64,AAAA"], [PNG])
    shown = [{"role": "user", "content": ["[audio 2]", "[image 1]"]}]
    assert body["state"] == ["[audio 1]", "[video 1]", shown, "[audio 3]"]


CLIP = {"type": "audio", "base64": "AAAA", "mime_type": "audio/wav"}


@pytest.mark.parametrize(
    ("state", "says"),
    [
        ([CLIP] * 5, "the state has 5 audio: pass at most 4"),
        ([{**CLIP, "base64": "A" * (12 << 20)}], "pass at most 8 MiB each"),
        ([{"type": "video", "url": "https://example.org/a.mp4"}], "a link or has no media type"),
        ([{"type": "file", "base64": "JVBERi0=", "mime_type": "application/pdf"}], "'file'"),
    ],
    ids=["too many", "too large", "a link", "a document"],
)
def test_media_that_clef_omni_rejects(state: Any, says: str, model: Make, emulator: Emulator, call: Any) -> None:
    with pytest.raises(ours.BadRequestError, match=says):
        ask(call, model(model="@cf/cloudflare/clef-omni"), state, urgent=URGENT)
    assert emulator.log.entries == []


@pytest.mark.parametrize(
    ("state", "questions", "says"),
    [
        ([IMAGE] * 5, {"a": URGENT}, "5 images: pass at most 4"),
        ([{"type": "image", "url": "https://example.org/a.png"}], {"a": URGENT}, "as base64 or as a data: URL"),
        ([{"type": "audio", "base64": "x", "mime_type": "audio/wav"}], {"a": URGENT}, "'audio'"),
        (["x"], {"a": decisions.Box(instructions="Where?")}, "'a' is a Box: use Noul, Choice or Score"),
        (["x"], {"a": {"type": "noul", "instructions": "Down?"}}, "'a' is a dict: use Noul"),
    ],
)
def test_unsupported_parameters_of_these_models(
    state: Any, questions: dict[str, Any], says: str, model: Make, emulator: Emulator, call: Any
) -> None:
    with pytest.raises(ours.BadRequestError, match=says):
        ask(call, model(), state, **questions)
    assert emulator.log.entries == []


@pytest.mark.parametrize(
    "answers",
    [None, [], {}, {"other": {"type": "noul"}}, {"urgent": {"type": "noul"}}, {"urgent": {"type": "choice"}}],
)
def test_an_answer_that_does_not_fit(answers: Any, model: Make, emulator: Emulator, call: Any) -> None:
    emulator.faults.add(Fault.reply({"result": {"model": "clef", "answers": answers}, "success": True}))
    with pytest.raises(ours.APIResponseValidationError, match="not a valid decision") as caught:
        ask(call, model(), "x", urgent=URGENT)
    assert isinstance(caught.value, ModelError)


def test_an_answer_that_repeats_the_token_does_not_show_it(model: Make, emulator: Emulator, call: Any) -> None:
    one = model()
    token = one.api_token.get_secret_value()  # type: ignore[union-attr]
    emulator.faults.add(Fault.reply({"result": {"echo": token}}))
    with pytest.raises(ours.APIResponseValidationError, match="not a valid decision") as caught:
        ask(call, one, "x", urgent=URGENT)
    assert "[redacted]" in str(caught.value.body)
    assert token not in repr(vars(caught.value))


@pytest.mark.parametrize(("on_busy", "options"), [("wait", None), ("raise", {"rejectIfBusy": True})])
def test_on_busy(on_busy: Any, options: Any, model: Make, emulator: Emulator, call: Any) -> None:
    ask(call, model(on_busy=on_busy), "x", urgent=URGENT)
    assert emulator.log.last.json.get("options") == options


def test_attempts_and_errors(model: Make, emulator: Emulator, call: Any) -> None:
    emulator.faults.add(Fault.busy(times=2))
    assert ask(call, model(), "x", urgent=URGENT).nouls
    assert len(emulator.log.entries) == 3
    emulator.faults.add(Fault.error(429, 4006, "used up", times=None))
    with pytest.raises(ours.QuotaExhaustedError):
        ask(call, model().with_retry(), "x", urgent=URGENT)
    assert len(emulator.log.entries) == 4


def test_usage(model: Make, call: Any) -> None:
    usage = ask(call, model(), "x", urgent=URGENT).usage
    assert usage["input_tokens"] > 0
    assert usage["total_tokens"] == usage["input_tokens"] + usage["output_tokens"]


def test_a_chain_and_a_batch(model: Make, emulator: Emulator) -> None:
    request = {"state": "x", "questions": {"urgent": URGENT}}
    chain = model() | (lambda response: response.nouls["urgent"].noul)
    assert [0 <= chance <= 1 for chance in chain.batch([request] * 3)] == [True] * 3
    assert 0 <= asyncio.run(chain.ainvoke(request)) <= 1


@every_row("odd", [None, True, -1, 1.5, "0", "x", [], ["x"], {}, {"x": 1}])
@every_row("path", [("usage",), ("usage", "input_tokens"), ("usage", "output_tokens"), ("model",),
                                  ("answers",), ("answers", "urgent"), ("answers", "urgent", "noul")])  # fmt: skip
def test_a_field_of_another_type_is_a_decision_or_a_typed_error(
    path: Any, odd: Any, model: Make, emulator: Emulator
) -> None:
    reply: Any = {"model": "clef", "answers": {"urgent": {"type": "noul", "noul": 0.9}},
                  "usage": {"input_tokens": 3, "output_tokens": 0}}  # fmt: skip
    inner = reply
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = odd
    emulator.faults.add(Fault.reply({"result": reply, "success": True}))
    with contextlib.suppress(ours.WorkersAIError):
        assert model().invoke({"state": "x", "questions": {"urgent": URGENT}}).answers
