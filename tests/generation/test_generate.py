"""Results, stored answers and repeated requests of a generation."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, Literal, NamedTuple, NotRequired, TypedDict, TypeVar

import pytest
from pydantic import BaseModel, field_validator
from tests.generation.conftest import KIMI, FakeQueue, Generator, inputs, prompt_of
from tests.support import every_row

from workers_ai.errors import BatchItemError, ConfigurationError
from workers_ai.generation import Answer, Answers, ChatInput, estimate
from workers_ai.ledger._ledger import Ledger
from workers_ai.ledger._store.fingerprints import Fingerprint
from workers_ai_emulator import Emulator, QueueSettings

GPT_OSS = "@cf/openai/gpt-oss-120b"
SCOUT = "@cf/meta/llama-4-scout-17b-16e-instruct"


class City(BaseModel):
    name: str
    people: int

    @field_validator("people")
    @classmethod
    def positive(cls, value: int) -> int:
        if value < 0:
            raise ValueError("people must not be negative")
        return value


class Mood(TypedDict):
    mood: Literal["good", "bad"]


class Moods(TypedDict):
    mood: Literal["good", "bad"]
    others: NotRequired[list[Mood] | None]


def test_the_second_run_sends_nothing(run: Generator) -> None:
    queue = FakeQueue()
    first = run([*inputs(50), ("twin", "question number 3")], queue, requests_per_job=20)
    again = run([*inputs(50), ("new", "question number 60")], queue, requests_per_job=20)
    assert (first.answered, first.reused, first.failed) == (50, 1, 0)
    assert (again.answered, again.reused) == (1, 50)
    assert sorted(queue.sent) == sorted(f"question number {n}" for n in [*range(50), 60])
    assert [answer.id for answer in first.answers()] == [*(f"id-{n}" for n in range(50)), "twin"]
    assert again.to_dict()["answered"] == 1
    assert "answered   50" in str(first)
    assert "<table>" in first._repr_html_()


@pytest.mark.parametrize("mode", ["queue", "direct"])
@pytest.mark.parametrize("model", [KIMI, GPT_OSS, SCOUT, "@cf/meta/llama-3.3-70b-instruct-fp8-fast"])
def test_the_emulator_answers_in_every_form(sync: Generator, model: str, mode: str, tmp_path: Path) -> None:
    rows: list[Any] = [("t", "Capital of France?"), ("m", [{"role": "user", "content": "Capital of Italy?"}])]
    emulator = Emulator(queue=QueueSettings("at_once"))
    plain = sync(rows, emulator.transport(), model=model, mode=mode)
    assert all(answer.text and answer.usage for answer in plain.answers())
    assert plain.cost_usd
    assert plain.cost_usd > 0
    labelled = sync(
        [{"id": 1, "review": "fine"}], emulator.transport(), model=model, mode=mode, prompt="Rate {review}",
        labels=["good", "bad"], ledger=tmp_path / "labels",
    )  # fmt: skip
    assert next(labelled.answers()).data in ("good", "bad")


@pytest.mark.parametrize("schema", [City, City.model_json_schema()])
def test_answers_are_parsed_on_reading(sync: Generator, schema: Any) -> None:
    queue = FakeQueue(lambda request: '{"name": "Rome", "people": 3}')
    report = sync([("a", "Rome?")], queue, schema=schema)
    (answer,) = report.answers()
    data: dict[str, Any] = {"name": "Rome", "people": 3}
    assert answer.data == (City(**data) if schema is City else data)
    assert queue.bodies[0]["response_format"]["type"] == "json_schema"
    assert answer.finish_reason == "stop"
    assert answer.message == {"role": "assistant", "content": '{"name": "Rome", "people": 3}'}


def test_a_typed_dict_is_a_schema(sync: Generator, tmp_path: Path) -> None:
    text = '{"mood": "good", "others": [{"mood": "bad"}]}'
    report = sync([("a", "How?"), ("b", "And?")], FakeQueue(lambda request: text), schema=Moods)
    assert [answer.data for answer in report.answers()] == [json.loads(text)] * 2
    poor = sync([("a", "How?")], FakeQueue(lambda request: '{"mood": "so so"}'), schema=Moods, ledger=tmp_path / "poor")
    assert poor.invalid == 1


Item = TypeVar("Item")


class Box(BaseModel, Generic[Item]):
    item: Item


class Place(NamedTuple):
    name: str
    people: int


@dataclass
class Town:
    name: str
    people: int | None = None


@every_row(
    ("schema", "text", "value"),
    [
        (Box[int], '{"item": 3}', Box[int](item=3)),
        (Place, '{"name": "Moss", "people": 3}', Place("Moss", 3)),
        (Town, '{"name": "Moss"}', Town("Moss")),
        (list[Town], '[{"name": "Moss"}]', [Town("Moss")]),
        (City | Mood, '{"mood": "bad"}', {"mood": "bad"}),
        (Literal["yes", "no"], '"no"', "no"),
        (dict[str, int], '{"a": 1}', {"a": 1}),
    ],
)
def test_types_of_every_kind_are_schemas(sync: Generator, schema: Any, text: str, value: Any) -> None:
    queue, ledger = FakeQueue(lambda request: text), sync.ledger.with_name(f"{schema}"[:40].replace("/", "_"))
    report = sync([("a", "x")], queue, schema=schema, mode="direct", ledger=ledger)
    assert [answer.data for answer in report.answers()] == [value]
    assert re.fullmatch("[A-Za-z0-9_-]{1,64}", queue.bodies[0]["response_format"]["json_schema"]["name"])


LABELS: list[tuple[list[str], str, str | None]] = [
    (["spam", "ham"], "spam", "spam"),
    (["spam", "ham"], '{"label": "spam"}', "spam"),
    (["spam", "ham"], '"spam"', "spam"),
    (["spam", "ham"], "Spam.", "spam"),
    (["spam", "ham"], " **spam** ", "spam"),
    (["spam", "ham"], '```json\n{"label":"spam"}\n```', "spam"),
    (["spam", "ham"], "<think>Is it ham?</think>spam", "spam"),
    (["spam", "ham"], "spam or ham", None),
    (["spam", "ham"], "", None),
    (["a", "ab"], "ab", "ab"),
    (["C", "C++"], "C++.", "C++"),
    (["a.", "a"], "a.", "a."),
    (["Bug", "bug"], "bug", "bug"),
    (["Bug", "bug"], "BUG", None),
    (["\u00e9t\u00e9", "hiver"], "E\u0301TE\u0301", "\u00e9t\u00e9"),
    (["e\u0301te\u0301", "hiver"], '{"label": "\u00e9t\u00e9"}', "e\u0301te\u0301"),
    (["1", "2"], '{"label": 1}', "1"),
    (["true", "false"], '{"label": true}', "true"),
]


@every_row(("labels", "text", "expected"), LABELS)
def test_labels_are_read_in_every_form(sync: Generator, labels: Any, text: str, expected: str | None) -> None:
    ledger = sync.ledger.with_name(f"{LABELS.index((labels, text, expected))}")
    report = sync([("a", "x")], FakeQueue(lambda request: text), labels=labels, repair=0, ledger=ledger)
    (answer,) = report.answers()
    assert (answer.text, answer.data, answer.error is None) == (text, expected, expected is not None)


@pytest.mark.parametrize("error", [KeyError("k"), ZeroDivisionError("z"), RecursionError("r"), AttributeError("a")])
def test_an_answer_is_kept_if_a_validator_raises_any_error(run: Generator, error: Exception) -> None:
    class Checked(BaseModel):
        name: str

        @field_validator("name")
        @classmethod
        def check(cls, value: str) -> str:
            if value == "bad":
                raise error
            return value

    queue = FakeQueue(lambda request: json.dumps({"name": "bad" if "1" in prompt_of(request) else "good"}))
    report = run(inputs(3), queue, schema=Checked, repair=0)
    good, bad, _ = report.answers()
    assert (report.answered, report.invalid, good.data) == (2, 1, Checked(name="good"))
    assert bad.text == '{"name": "bad"}'
    assert bad.error is not None
    assert type(error).__name__ in bad.error.message


def test_the_system_message_is_added_to_every_form_of_input(sync: Generator) -> None:
    ask: list[Any] = [{"role": "user", "content": "x"}]
    own = [{"role": "developer", "content": "own"}, *ask]
    queue = FakeQueue()
    sync([("t", "x"), ("m", [*ask]), ("c", ChatInput(ask)), ("o", own), ("oc", ChatInput(own))], queue, system="Hi.")
    roles = [[message["role"] for message in body["messages"]] for body in queue.bodies]
    assert roles == [["system", "user"], ["developer", "user"]], "equal requests share one answer"


def test_an_answer_that_does_not_match_is_retried(run: Generator) -> None:
    """Every fifth answer is invalid at first, every tenth always; id-5 is truncated at first."""

    def answer(request: dict[str, Any]) -> Any:
        messages = request["messages"]
        number = int(messages[0]["content"].split()[-1])
        if number % 10 == 0 or (number % 5 == 0 and len(messages) == 1):
            return {"response": '{"name": "Ro', "finish": "length" if number == 5 else "stop"}
        return f'{{"name": "Rome", "people": {number}}}'

    queue = FakeQueue(answer)
    report = run(inputs(40), queue, schema=City, requests_per_job=10)
    assert (report.answered, report.failed, report.invalid, report.truncated) == (36, 4, 4, 0)
    assert [failure.id for failure in report.failures] == ["id-0", "id-10", "id-20", "id-30"]
    assert len(queue.sent) == 48
    found = {answer.id: answer for answer in report.answers()}
    assert found["id-10"].text == '{"name": "Ro'
    assert found["id-10"].data is None
    assert found["id-10"].error
    assert "does not fit the schema" in found["id-10"].error.message
    assert found["id-15"].data == City(name="Rome", people=15)
    repaired = next(body for body in queue.bodies if len(body["messages"]) == 3)
    assert [message["role"] for message in repaired["messages"]] == ["user", "assistant", "user"]
    again = run(inputs(40), queue, schema=City, requests_per_job=10)
    assert (again.reused, again.failed, again.invalid) == (36, 4, 4)
    assert len(queue.sent) == 48, "answers are not paid for twice, even if they do not fit"


def test_without_repair_nothing_is_retried(sync: Generator) -> None:
    queue = FakeQueue(lambda request: {"response": "no JSON", "finish": "length"})
    report = sync(inputs(3), queue, schema=City, repair=0)
    assert (report.invalid, report.truncated, len(queue.sent)) == (3, 3, 3)
    assert "truncated at max_tokens" in report.failures[0].message


def test_free_text_that_is_truncated_is_kept_and_counted(sync: Generator) -> None:
    report = sync(inputs(2), FakeQueue(lambda request: {"response": "Once upon", "finish": "length"}))
    assert (report.answered, report.truncated, report.invalid) == (2, 2, 0)
    assert [answer.finish_reason for answer in report.answers()] == ["length"] * 2


def test_wait_false_returns_before_the_results(run: Generator) -> None:
    queue = FakeQueue(poll=lambda job: {"status": "running", "request_id": "r"} if held else None)
    held = True
    first = run(inputs(50), queue, requests_per_job=20, wait=False)
    assert (first.answered, first.pending, len(first.request_ids), queue.submissions) == (0, 50, 3, 3)
    assert [answer.text for answer in first.answers()] == [None] * 50
    second = run(inputs(50), queue, requests_per_job=20, wait=False)
    assert (second.pending, queue.submissions) == (50, 3)
    held = False
    third = run(inputs(50), queue, requests_per_job=20, wait=False)
    assert (third.answered, third.pending, third.request_ids, queue.submissions) == (50, 0, (), 3)


def test_wait_false_keeps_to_64_submissions(sync: Generator) -> None:
    queue = FakeQueue(poll=lambda job: {"status": "running", "request_id": "r"})
    report = sync(inputs(100), queue, requests_per_job=1, wait=False)
    assert (queue.submissions, report.pending) == (64, 100)


def test_on_answer_is_called_with_each_new_answer_after_it_is_on_disk(run: Generator) -> None:
    seen: list[Answer] = []

    def note(answer: Answer) -> None:
        with Answers(run.ledger) as stored:
            assert stored.find([ChatInput([{"role": "user", "content": f"question number {str(answer.id)[3:]}"}])])[0]
        seen.append(answer)

    run(inputs(25), FakeQueue(), requests_per_job=10, on_answer=note)
    assert sorted(answer.id for answer in seen) == sorted(doc_id for doc_id, _ in inputs(25))
    seen.clear()
    run(inputs(25), FakeQueue(), requests_per_job=10, on_answer=note)
    assert seen == []


def test_samples_of_one_prompt(sync: Generator) -> None:
    queue = FakeQueue()
    report = sync([(n, "same") for n in range(4)], queue, dedupe=False)
    assert (report.answered, len(queue.sent)) == (4, 4)
    assert len({body["external_reference"] for body in queue.bodies}) == 4


def test_rendered_requests_have_their_own_parameters(sync: Generator) -> None:
    tool: dict[str, Any] = {
        "type": "function",
        "function": {"name": "look", "parameters": {"type": "object", "properties": {}}},
    }
    chats = [
        ChatInput([{"role": "user", "content": "a"}], {"max_tokens": 7, "tools": [tool]}),
        ChatInput([{"role": "user", "content": "a"}]),
        ChatInput([{"role": "user", "content": "c"}], {"max_tokens": 7}),
    ]
    queue = FakeQueue(lambda request: f"cap {request['max_tokens']}")
    report = sync(list(enumerate(chats)), queue)
    assert [answer.text for answer in report.answers()] == ["cap 7", "cap 100", "cap 7"]
    assert ["tools" in body for body in queue.bodies] == [True, False, False]
    own = estimate(list(enumerate(chats)), model=KIMI, max_tokens=100)
    assert own.output_tokens == 3 + 50 + 3
    with Answers(sync.ledger) as answers:
        replies = answers.find([*chats, ChatInput([{"role": "user", "content": "b"}])])
    assert [reply and reply.text for reply in replies] == ["cap 7", "cap 100", "cap 7", None]
    assert replies[0]
    assert replies[0].usage
    assert replies[0].usage.output_tokens == 7


def test_tool_calls_survive_the_ledger(sync: Generator) -> None:
    class Calling(FakeQueue):
        def _result(self, request: dict[str, Any], found: Any) -> dict[str, Any]:
            call = {"id": "c1", "type": "function", "function": {"name": "look", "arguments": '{"q": 1}'}}
            message = {"role": "assistant", "content": None, "reasoning_content": "hm", "tool_calls": [call]}
            return {"choices": [{"message": message, "finish_reason": "tool_calls"}]}

    params: dict[str, Any] = {"tools": [{"type": "function", "function": {"name": "look"}}]}
    call = {"id": "c1", "type": "function", "function": {"name": "look", "arguments": "{}"}}
    history = [
        {"role": "assistant", "content": "", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c1", "content": "x"},
    ]
    first = {"role": "user", "content": "a"}
    chats = [ChatInput([first, *history], params), ChatInput([first], params)]
    sync(list(enumerate(chats)), Calling())
    with Answers(sync.ledger) as answers:
        replies = answers.find(chats)
    for reply, call_id in zip(replies, ("c1~turn2", "c1"), strict=True):  # ids are unique in each conversation
        assert reply is not None
        assert [(call.id, call.name, call.arguments) for call in reply.tool_calls] == [(call_id, "look", '{"q": 1}')]
        assert (reply.reasoning, reply.finish_reason) == ("hm", "tool_calls")


def test_a_changed_argument_is_rejected_with_the_difference(sync: Generator, ledger: Path) -> None:
    made: dict[str, Any] = {"prompt": "Summarise in one sentence: {text}", "schema": City, "temperature": 0.0}
    sync(inputs(1), FakeQueue(lambda request: '{"name": "x", "people": 1}'), **made)
    changed: list[tuple[dict[str, Any], str]] = [
        (
            {"prompt": "Summarise in two sentences: {text}"},
            r"created with prompt .*one sentence.*, not .*two sentences",
        ),
        ({"schema": Mood}, "created with schema"),
        ({"temperature": 1.0}, r"created with temperature 0\.0, not 1\.0"),
        ({"max_tokens": 200}, "created with max_tokens 100, not 200"),
        ({"system": "Be brief."}, "created with system None, not 'Be brief.'"),
        ({"model": SCOUT}, "created with model"),
        ({"extra_body": {"top_p": 0.5}}, "created with extra_body None"),
    ]
    for change, says in changed:
        with pytest.raises(ConfigurationError, match=says):
            sync(inputs(1), FakeQueue(), **{**made, **change})
    with pytest.raises(ConfigurationError, match="holds answers, not embeddings"):
        Ledger(ledger, Fingerprint("@cf/baai/bge-m3"))


def test_a_ledger_of_embeddings_is_rejected(sync: Generator, ledger: Path) -> None:
    with Ledger(ledger, Fingerprint("@cf/baai/bge-m3")) as held:
        number = held.begin_run()
        held.store(0, [(1, b"\0\0\0\0")], run=number)
        held.end_run(number, finished=True)
    with pytest.raises(ConfigurationError, match="holds embeddings, not answers"):
        sync(inputs(1), FakeQueue())


def test_a_failure_raises_on_request(run: Generator) -> None:
    with pytest.raises(BatchItemError, match="1 of 2 inputs failed; the first: the input is empty"):
        run([("a", "fine"), ("b", " ")], FakeQueue(), raise_on_failure=True)


def test_failed_inputs_are_sent_again_by_the_next_run(sync: Generator) -> None:
    def answer(request: dict[str, Any]) -> Any:
        return {"error": {"code": 5004, "message": "no"}} if broken and prompt_of(request).endswith("3") else "yes"

    broken, queue = True, FakeQueue(answer)
    assert sync(inputs(5), queue).failed == 1
    broken = False
    report = sync(inputs(5), queue)
    assert (report.answered, report.reused, report.failed) == (1, 4, 0)


def test_an_estimate_counts_new_inputs(sync: Generator, ledger: Path) -> None:
    sync(inputs(10), FakeQueue(), max_tokens=100)
    source = [*inputs(30), ("twin", "question number 29"), ("empty", "")]
    found = estimate(source, model=KIMI, ledger=ledger, max_tokens=100, requests_per_job=8)
    assert (found.inputs, found.requests, found.submissions, found.unsendable) == (32, 20, 3, 1)
    assert found.output_tokens == 20 * 50
    assert found.cost_usd is not None
    assert found.max_cost_usd is not None
    assert found.cost_usd < found.max_cost_usd
    assert json.loads(json.dumps(found.to_dict()))["requests"] == 20
    unset = estimate(inputs(10), model=KIMI)
    assert (unset.output_tokens, unset.max_cost_usd) == (10 * 512, pytest.approx(10 * 256_000 * 4e-6, rel=0.01))
    assert estimate(inputs(10), model=KIMI, expected_output_tokens=20).output_tokens == 200
    assert "nothing sent yet" in str(found)
    direct = estimate(source, model=KIMI, mode="direct", expected_output_tokens=10)
    assert (direct.submissions, direct.output_tokens) == (0, 300)
    assert direct.minutes == pytest.approx(30 / 20)


async def test_an_asynchronous_source(account: dict[str, Any], ledger: Path) -> None:
    import httpx

    from workers_ai import AsyncClient
    from workers_ai.generation import agenerate

    async def source() -> Any:
        for item in inputs(5):
            yield item

    transport = httpx.MockTransport(FakeQueue())
    async with AsyncClient(http_async_client=httpx.AsyncClient(transport=transport), **account) as client:
        report = await agenerate(source(), ledger=ledger, model=KIMI, client=client, progress=False)
    assert report.answered == 5
