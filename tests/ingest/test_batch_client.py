"""``client.batch``, sync and async by one body, in virtual time: submit, poll, collect, run."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import httpx
import pytest
from tests.support import every_row

from workers_ai import AsyncClient, Client
from workers_ai._limits import limiter
from workers_ai._wire.chat.reply import read_chat
from workers_ai._wire.request import ReplyContext
from workers_ai._wire.vectors import read_scores, read_vectors
from workers_ai.batch import BatchJob, chat_inputs, rerank_inputs
from workers_ai.errors import (
    APIConnectionError,
    AuthenticationError,
    BadRequestError,
    BatchError,
    BatchItemError,
    BatchTimeoutError,
    ConfigurationError,
    InternalServerError,
    QuotaExhaustedError,
    RequestTooLargeError,
    WorkersAIError,
)
from workers_ai_emulator import Clock, Emulator, Fault
from workers_ai_emulator.state.queue import ItemFailure, QueueSettings

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.bulk_runs import VirtualTime

BGE = "@cf/baai/bge-small-en-v1.5"
LLAMA = "@cf/meta/llama-3.3-70b-instruct-fp8-fast"
GPT_OSS = "@cf/openai/gpt-oss-120b"
UNLISTED = "@cf/someone/new-model"


class Queue:
    """The queue of a client, sync or async. Every async call runs in a new event loop."""

    def __init__(self, mode: str, account: dict[str, Any], clock: VirtualTime, transport: Any, **settings: Any) -> None:
        if not isinstance(transport, httpx.BaseTransport):
            transport = httpx.MockTransport(transport)
        self.mode = mode
        self.client: Client | AsyncClient
        if mode == "sync":
            self.client = Client(http_client=httpx.Client(transport=transport), **account, **settings)
        else:
            self.client = AsyncClient(http_async_client=httpx.AsyncClient(transport=transport), **account, **settings)
        self.client._connection.calls.clock = clock
        self.client._connection.calls.limiter = limiter.AccountLimiter(clock)

    def __call__(self, method: str, *args: Any, **options: Any) -> Any:
        done = getattr(self.client.batch, method)(*args, **options)
        return done if self.mode == "sync" else asyncio.run(done)

    def embed(self, *args: Any, **options: Any) -> Any:
        done: Any = self.client.embed(*args, **options)
        return done if self.mode == "sync" else asyncio.run(done)


@pytest.fixture(params=["sync", "async"])
def queue(request: pytest.FixtureRequest, account: dict[str, Any], clock: VirtualTime) -> Callable[..., Queue]:
    """Return a function that creates a :class:`Queue` from a transport or a function of the request."""
    return lambda transport, **settings: Queue(request.param, account, clock, transport, **settings)


@pytest.fixture
def emulator() -> Emulator:
    return Emulator(clock=Clock("jump"))


class Stub:
    """Scripted answers in order. The last one is repeated. Exceptions are raised. Records the bodies."""

    def __init__(self, *answers: Any) -> None:
        self.answers = list(answers)
        self.bodies: list[Any] = []
        self.requests: list[httpx.Request] = []

    def __call__(self, request: httpx.Request) -> httpx.Response:
        self.requests.append(request)
        self.bodies.append(json.loads(request.content))
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Exception):
            raise answer
        return answer(self.bodies[-1]) if callable(answer) else answer  # type: ignore[no-any-return]

    @property
    def submissions(self) -> list[Any]:
        return [body for body in self.bodies if "requests" in body]

    @property
    def polls(self) -> list[str]:
        return [body["request_id"] for body in self.bodies if "requests" not in body]


def reply(result: Any, status: int = 200) -> Callable[[Any], httpx.Response]:
    return lambda body: httpx.Response(status, json={"result": result, "success": True, "errors": [], "messages": []})


def refusal(status: int, code: int | None, headers: dict[str, str] | None = None) -> Callable[[Any], httpx.Response]:
    errors = [{"message": "AiError: refused"} | ({} if code is None else {"code": code})]
    return lambda body: httpx.Response(
        status, json={"result": None, "success": False, "errors": errors}, headers=headers
    )


def accepted(request_id: Any = "r-1", status: int = 200) -> Callable[[Any], httpx.Response]:
    return reply({"status": "queued", "request_id": request_id, "model": BGE}, status)


def finished(*results: Any) -> Callable[[Any], httpx.Response]:
    return reply({"responses": [{"id": n, "success": True, "result": result} for n, result in enumerate(results)]})


RUNNING = reply({"status": "running", "request_id": "r-1"})
TWO = [{"text": ["a"]}, {"text": ["b"]}]
THREE_JOBS = [{"text": ["x" * 4_000_000]} for _ in range(6)]


KIMI = "@cf/moonshotai/kimi-k2.6"


def test_a_job_of_forty_minutes_is_collected_and_its_polls_count_against_no_limit(
    queue: Callable[..., Queue], clock: VirtualTime
) -> None:
    """Recorded: jobs of 10 to 40 minutes, and 231 polls at 58 a minute on an account with 20 requests a minute."""
    began = clock.now

    def answer(body: Any) -> httpx.Response:
        if "requests" in body:
            return accepted()(body)
        return RUNNING(body) if clock.now < began + 2400 else finished({"response": "a"})(body)

    stub = Stub(answer)
    items = queue(stub, requests_per_minute=1)("run", KIMI, [{"messages": [{"role": "user", "content": "hi"}]}])

    assert [item.result for item in items] == [{"response": "a"}]
    assert 80 <= len(stub.polls) <= 100
    assert 2400 <= clock.now - began <= 2431
    assert max(clock.waits) == 30.0


class TestEveryTask:
    def test_embeddings(self, queue: Callable[..., Queue], emulator: Emulator) -> None:
        requests = [{"text": ["red", "green"]}, {"text": ["blue"]}]

        items = queue(emulator.transport())("run", BGE, requests)

        direct = queue(emulator.transport()).embed(BGE, ["red", "green", "blue"]).vectors
        vectors = [read_vectors(item.result, BGE, count).vectors for item, count in zip(items, (2, 1), strict=True)]
        assert [*vectors[0], *vectors[1]] == direct
        assert [(item.index, item.success, item.error) for item in items] == [(0, True, None), (1, True, None)]

    @pytest.mark.parametrize(("model", "key"), [(LLAMA, "messages"), (GPT_OSS, "input")])
    def test_chat(self, model: str, key: str, queue: Callable[..., Queue], emulator: Emulator) -> None:
        questions = [[{"role": "user", "content": f"What is {number} + 40?"}] for number in range(3)]
        requests = [chat_inputs(model, messages, max_tokens=200) for messages in questions]
        assert all(set(request) >= {key} and "model" not in request for request in requests)

        items = queue(emulator.transport())("run", model, requests)

        answers = [read_chat(item.result, ReplyContext(model), {}).text for item in items]
        assert [str(number + 40) in answer for number, answer in enumerate(answers)] == [True, True, True]

    def test_rerank(self, queue: Callable[..., Queue]) -> None:
        scores = {"response": [{"id": 1, "score": 0.9}, {"id": 0, "score": 0.1}]}
        stub = Stub(accepted(), finished(scores))

        (item,) = queue(stub)("run", UNLISTED, [rerank_inputs("which", ["first", "second"], top_k=2)])

        assert stub.submissions == [
            {"requests": [{"query": "which", "contexts": [{"text": "first"}, {"text": "second"}], "top_k": 2}]}
        ]
        assert [(score.index, score.score) for score in read_scores(item.result, UNLISTED, 2, 2)] == [
            (1, 0.9),
            (0, 0.1),
        ]

    def test_through_a_socket(self, account: dict[str, Any]) -> None:
        emulator = Emulator(queue=QueueSettings(progress="at_once"))
        with emulator.serve() as url:
            with Client(base_url=url, **account) as client:
                items = client.batch.run(BGE, TWO)

            async def run() -> Any:
                async with AsyncClient(base_url=url, **account) as client:
                    return await client.batch.run(BGE, TWO)

            assert asyncio.run(run()) == items
        assert [item.success for item in items] == [True, True]
        assert (emulator.queue.submitted, emulator.log.routes["poll"]) == (2, 2)


class TestSubmitting:
    def test_submit_poll_collect(self, queue: Callable[..., Queue], emulator: Emulator) -> None:
        emulator.queue.settings.polls = 2
        ask = queue(emulator.transport())

        job = ask("submit", BGE, [{"text": ["a"], "external_reference": "doc-7"}, {"text": ["b"]}])

        assert (job.request_id, job.model, job.size) == (emulator.queue.jobs[0].request_id, BGE, 2)
        assert [ask("poll", job).state for _ in range(2)] == ["queued", "running"]
        status = ask("poll", job)
        assert (status.state, len(status.items), status.usage.input_tokens) == ("done", 2, 4)
        assert [item.external_reference for item in ask("collect", job)] == ["doc-7", None]

    def test_the_request_body(self, queue: Callable[..., Queue]) -> None:
        stub = Stub(accepted("r-1"), finished({}))

        queue(stub)("run", BGE, [{"text": ["a"], "external_reference": "x"}])

        assert [request.url.path.rpartition("/ai/run/")[2] for request in stub.requests] == [BGE, BGE]
        assert [request.url.query for request in stub.requests] == [b"queueRequest=true"] * 2
        assert stub.bodies == [{"requests": [{"text": ["a"], "external_reference": "x"}]}, {"request_id": "r-1"}]

    def test_large_batches_are_split_and_merged(self, queue: Callable[..., Queue]) -> None:
        answers: dict[str, Any] = {}

        def service(request: httpx.Request) -> httpx.Response:
            body = json.loads(request.content)
            if "requests" in body:
                assert len(request.content) < 10_000_000
                request_id = f"r-{len(answers)}"
                answers[request_id] = body["requests"]
                return accepted(request_id)(body)
            got = answers[body["request_id"]]
            failing = {"id": 0, "success": False, "error": {"code": 3030, "message": "no"}}
            good = [
                {"id": n, "success": True, "result": {"first": r["text"][0][:5]}, "external_reference": r["reference"]}
                for n, r in enumerate(got)
            ]
            return reply({"responses": [failing, *good[1:]] if body["request_id"] == "r-1" else good})(body)

        requests = [{"text": [f"{n:05}" + "x" * 3_000_000], "reference": f"ref {n}"} for n in range(7)]

        items = queue(service)("run", BGE, requests)

        assert [len(part) for part in answers.values()] == [3, 3, 1]
        assert [item.index for item in items] == list(range(7))
        assert [item.result and item.result["first"] for item in items] == [
            "00000", "00001", "00002", None, "00004", "00005", "00006",
        ]  # fmt: skip
        assert items[6].external_reference == "ref 6"
        assert (items[3].error.index, items[3].error.code) == (3, 3030)

    def test_one_submission_is_not_split_silently(self, queue: Callable[..., Queue]) -> None:
        stub = Stub(accepted())
        with pytest.raises(RequestTooLargeError, match=r"use batch\.run, which splits them"):
            queue(stub)("submit", BGE, THREE_JOBS)
        assert stub.bodies == []

    @every_row(
        ("model", "requests", "error", "words"),
        [
            (BGE, [{"text": ["a"]}, {"text": ["x"] * 101}], BadRequestError, "request 1 has 101 texts; .* accepts 100"),
            ("@cf/baai/bge-m3", [{"contexts": [{"text": "x"}] * 101}], BadRequestError, "request 0 has 101 texts"),
            (BGE, [{"text": ["a"]}, {"text": "x" * 9_900_001}], RequestTooLargeError, "request 1 has 9,900,"),
            (BGE, [{"text": ["a"]}, {"text": {1, 2}}], BadRequestError, "request 1 cannot be written as JSON"),
            (BGE, [{"text": [float("nan")]}], BadRequestError, "request 0 cannot be written as JSON"),
            ("@cf/google/embeddinggemma-300m", [{"text": ["a"]}], ConfigurationError, "has no asynchronous queue"),
            ("@cf/../x", [{"text": ["a"]}], ConfigurationError, "model"),
        ],
    )
    @pytest.mark.parametrize("method", ["submit", "run"])
    def test_requests_that_cannot_be_queued_are_rejected_before_sending(
        self, method: str, model: str, requests: Any, error: Any, words: str, queue: Callable[..., Queue]
    ) -> None:
        stub = Stub(accepted())
        with pytest.raises(error, match=words):
            queue(stub)(method, model, requests)
        assert stub.bodies == []

    def test_an_empty_list_of_requests(self, queue: Callable[..., Queue]) -> None:
        stub = Stub(accepted())
        assert queue(stub)("run", BGE, []) == []
        with pytest.raises(BadRequestError, match="at least one request"):
            queue(stub)("submit", BGE, [])
        assert stub.bodies == []

    @pytest.mark.parametrize(
        "refused",
        [
            refusal(429, 3040),
            refusal(429, None),
            refusal(500, 3043),
            httpx.ConnectError("no route"),
            httpx.ConnectTimeout("slow"),
        ],
    )
    def test_certainly_rejected_submissions_are_retried(self, refused: Any, queue: Callable[..., Queue]) -> None:
        stub = Stub(refused, accepted(), finished({}))
        assert queue(stub)("run", BGE, TWO[:1])[0].success
        assert len(stub.submissions) == 2

    @pytest.mark.parametrize(
        ("lost", "error"),
        [
            (httpx.ReadTimeout("slow"), APIConnectionError),
            (httpx.ReadError("reset"), APIConnectionError),
            (httpx.RemoteProtocolError("closed"), APIConnectionError),
            (lambda body: httpx.Response(502, html="<html>bad gateway</html>"), InternalServerError),
            (refusal(504, None), InternalServerError),
            (refusal(408, 3046), WorkersAIError),
        ],
    )
    def test_a_submission_that_may_have_been_accepted_is_not_repeated(
        self, lost: Any, error: type[WorkersAIError], queue: Callable[..., Queue]
    ) -> None:
        stub = Stub(lost)
        with pytest.raises(error) as raised:
            queue(stub)("run", BGE, TWO)
        assert (len(stub.bodies), raised.value.attempts) == (1, 1)

    def test_a_submission_without_id_and_answer_raises(self, queue: Callable[..., Queue]) -> None:
        with pytest.raises(BatchError, match="returned no request id"):
            queue(Stub(reply({"status": "queued"})))("run", BGE, TWO)


class TestItems:
    def test_a_failed_item_is_an_error_with_its_index(self, queue: Callable[..., Queue], emulator: Emulator) -> None:
        emulator.queue.settings.failures = [ItemFailure(index=1, code=3030, message="AiError: too many tokens")]
        requests = [{"text": [word], "external_reference": f"ref-{word}"} for word in ("red", "green", "blue")]

        items = queue(emulator.transport())("run", BGE, requests)

        assert [item.success for item in items] == [True, False, True]
        error = items[1].error
        assert isinstance(error, BatchItemError)
        assert (error.index, error.external_reference, error.code, error.model) == (1, "ref-green", 3030, BGE)
        assert "too many tokens" in str(error)
        assert items[1].result is None
        assert (
            read_vectors(items[2].result, BGE, 1).vectors[0]
            == queue(emulator.transport()).embed(BGE, ["blue"]).vectors[0]
        )

    def test_a_malformed_request_fails_alone(self, queue: Callable[..., Queue], emulator: Emulator) -> None:
        items = queue(emulator.transport())("run", BGE, [{"text": ["a"]}, {"wrong": 1}, {"text": ["c"]}])

        assert [item.success for item in items] == [True, False, True]
        assert items[1].error.code == 5006

    def test_items_are_matched_by_id_never_by_position(self, queue: Callable[..., Queue], emulator: Emulator) -> None:
        emulator.queue.settings.shuffle = True
        words = [f"word{number}" for number in range(40)]

        items = queue(emulator.transport())("run", BGE, [{"text": [word]} for word in words])

        direct = queue(emulator.transport()).embed(BGE, words).vectors
        assert [read_vectors(item.result, BGE, 1).vectors[0] for item in items] == direct


class TestUnknowns:
    """All possible behaviours where the documentation leaves them open."""

    @every_row(
        "choice",
        [
            {},
            {"submit_status": 202},
            {"pending_status": 202},
            {"submit_status": 202, "pending_status": 202},
            {"status_when_done": "complete"},
            {"status_when_done": "running"},
            {"answers_at_once": True},
            {"poll_needs_flag": True},
            {"shuffle": True},
            {"progress": "at_once"},
            {"polls": 5},
        ],
    )
    def test_the_result_is_the_same(self, choice: dict[str, Any], queue: Callable[..., Queue]) -> None:
        emulator = Emulator(clock=Clock("jump"), queue=QueueSettings(**choice))

        items = queue(emulator.transport())("run", BGE, TWO)

        plain = queue(Emulator().transport()).embed(BGE, ["a", "b"]).vectors
        assert [read_vectors(item.result, BGE, 1).vectors[0] for item in items] == plain
        assert emulator.queue.submitted == 1

    @pytest.mark.parametrize("key", ["error", "errors", ""])
    def test_the_error_of_a_failed_item(self, key: Any, queue: Callable[..., Queue]) -> None:
        failures = [ItemFailure(index=0, code=3030, message="AiError: too long")]
        emulator = Emulator(clock=Clock("jump"), queue=QueueSettings(error_key=key, failures=failures))

        first, second = queue(emulator.transport())("run", BGE, TWO)

        assert (first.success, second.success) == (False, True)
        assert first.error.code == (3030 if key else None)
        assert ("too long" in str(first.error)) == bool(key)

    def test_a_pending_answer_without_a_body(self, queue: Callable[..., Queue]) -> None:
        stub = Stub(accepted(), lambda body: httpx.Response(202), finished({}))
        assert queue(stub)("run", BGE, TWO[:1])[0].success

    def test_an_id_that_is_a_number(self, queue: Callable[..., Queue]) -> None:
        stub = Stub(accepted(17), finished({}))
        queue(stub)("run", BGE, TWO[:1])
        assert stub.polls == ["17"]

    def test_a_model_that_answers_at_once_is_not_polled(self, queue: Callable[..., Queue]) -> None:
        stub = Stub(finished({"n": 1}, {"n": 2}))
        ask = queue(stub)

        job = ask("submit", BGE, TWO)

        assert (job.request_id, ask("poll", job).state) == ("", "done")
        assert [item.result for item in ask("collect", job)] == [{"n": 1}, {"n": 2}]
        assert len(stub.bodies) == 1


class TestWaiting:
    def test_polls_back_off_until_the_deadline(
        self, queue: Callable[..., Queue], emulator: Emulator, clock: VirtualTime
    ) -> None:
        emulator.queue.settings.progress = "never"
        ask = queue(emulator.transport())
        job = ask("submit", BGE, TWO)

        with pytest.raises(BatchTimeoutError) as raised:
            ask("collect", job, deadline_s=200)

        assert raised.value.request_ids == (job.request_id,)
        assert job.request_id in str(raised.value)
        assert clock.waits[:4] == pytest.approx([0.1, 0.17, 0.289, 0.4913])
        assert max(clock.waits) == 30.0
        assert sum(clock.waits) == pytest.approx(200)
        assert emulator.log.routes["poll"] == len(clock.waits) + 1  # one more poll at the deadline

    def test_a_timed_out_job_is_collected_later_by_its_id(
        self, queue: Callable[..., Queue], emulator: Emulator
    ) -> None:
        emulator.queue.settings.progress = "never"
        ask = queue(emulator.transport())
        with pytest.raises(BatchTimeoutError) as raised:
            ask("run", BGE, TWO, deadline_s=1)
        emulator.queue.settings.progress = "at_once"

        (request_id,) = raised.value.request_ids
        items = queue(emulator.transport())("collect", BatchJob(request_id, BGE))

        assert [(item.index, item.success) for item in items] == [(0, True), (1, True)]
        assert emulator.queue.submitted == 1

    def test_no_deadline(self, queue: Callable[..., Queue], clock: VirtualTime) -> None:
        stub = Stub(accepted(), *[RUNNING] * 500, finished({}))
        assert queue(stub)("run", BGE, TWO[:1], deadline_s=None)[0].success
        assert sum(clock.waits) > 4 * 3600

    @pytest.mark.parametrize("status", [400, 404, 410])
    def test_an_unknown_id_of_the_queue(self, status: int, queue: Callable[..., Queue], clock: VirtualTime) -> None:
        """An unknown id is polled for a minute, because a queue may accept it with a delay."""
        stub = Stub(accepted("gone"), refusal(status, 3043))

        with pytest.raises(BatchError, match="the request id gone is unknown") as raised:
            queue(stub)("run", BGE, TWO)

        assert raised.value.request_ids == ("gone",)
        assert 3 < len(stub.polls) < 10
        assert 60 <= sum(clock.waits) < 90

    def test_a_poll_of_an_unknown_id(self, queue: Callable[..., Queue], emulator: Emulator) -> None:
        with pytest.raises(BatchError, match="the request id no-such-id is unknown") as raised:
            queue(emulator.transport())("poll", BatchJob("no-such-id", BGE))
        assert raised.value.request_ids == ("no-such-id",)

    def test_an_id_that_is_known_a_little_later(self, queue: Callable[..., Queue]) -> None:
        stub = Stub(accepted(), refusal(404, None), refusal(404, None), RUNNING, refusal(404, None), finished({}))
        assert queue(stub)("run", BGE, TWO[:1])[0].success

    def test_a_batch_that_fails_as_a_whole(self, queue: Callable[..., Queue], emulator: Emulator) -> None:
        emulator.queue.settings.fail_batches = 1
        with pytest.raises(BatchError, match="failed in the asynchronous queue") as raised:
            queue(emulator.transport())("run", BGE, TWO)
        assert raised.value.request_ids
        assert emulator.log.routes["poll"] < 45

    @pytest.mark.parametrize(
        "trouble",
        [
            httpx.ReadTimeout("slow"),
            httpx.RemoteProtocolError("closed"),
            refusal(500, None),
            refusal(429, 3040),
            lambda body: httpx.Response(522, html="<html>"),
        ],
    )
    def test_transient_failures_of_polls_are_retried(self, trouble: Any, queue: Callable[..., Queue]) -> None:
        stub = Stub(accepted(), trouble, trouble, trouble, finished({}))
        assert queue(stub)("run", BGE, TWO[:1])[0].success
        assert len(stub.submissions) == 1

    def test_permanent_failures_of_polls_raise_with_the_id(
        self, queue: Callable[..., Queue], clock: VirtualTime
    ) -> None:
        stub = Stub(accepted("r-9"), httpx.ReadTimeout("slow"))
        with pytest.raises(APIConnectionError) as raised:
            queue(stub)("run", BGE, TWO)
        assert raised.value.request_ids == ("r-9",)
        assert 900 <= sum(clock.waits) < 1000

    def test_retry_after_of_the_queue_is_honoured(self, queue: Callable[..., Queue], clock: VirtualTime) -> None:
        stub = Stub(accepted(), refusal(429, None, {"retry-after": "7"}), finished({}))
        queue(stub)("run", BGE, TWO[:1])
        assert max(clock.waits) == 7.0

    @pytest.mark.parametrize(
        ("refused", "error"), [(refusal(401, 10000), AuthenticationError), (refusal(429, 3036), QuotaExhaustedError)]
    )
    @pytest.mark.parametrize("method", ["collect", "run"])
    def test_a_permanent_error_ends_the_wait_with_the_id(
        self, refused: Any, error: type[WorkersAIError], method: str, queue: Callable[..., Queue]
    ) -> None:
        stub = Stub(accepted("r-5"), refused)
        ask = queue(stub)
        with pytest.raises(error) as raised:
            ask("run", BGE, TWO) if method == "run" else ask("collect", ask("submit", BGE, TWO))
        assert raised.value.request_ids == ("r-5",)
        assert len(stub.polls) == 1


class TestUnfinished:
    """Every error of a call has the ids of the accepted submissions."""

    @pytest.mark.parametrize(
        ("failure", "error"),
        [
            (refusal(401, 10000), AuthenticationError),
            (httpx.ReadTimeout("slow"), APIConnectionError),
            (reply({"nothing": 1}), BatchError),
        ],
    )
    def test_job_two_of_three_fails_at_submission(
        self, failure: Any, error: type[WorkersAIError], queue: Callable[..., Queue]
    ) -> None:
        stub = Stub(accepted("first"), failure)
        with pytest.raises(error) as raised:
            queue(stub)("run", BGE, THREE_JOBS)
        assert raised.value.request_ids == ("first",)
        assert len(stub.bodies) == 2

    def test_the_second_of_three_is_lost(self, queue: Callable[..., Queue]) -> None:
        stub = Stub(accepted("one"), accepted("two"), accepted("three"), finished({}, {}), refusal(404, None))
        with pytest.raises(BatchError, match="the request id two is unknown") as raised:
            queue(stub)("run", BGE, THREE_JOBS)
        # The results of the first submission were lost with the call. Like the third, it can be collected again.
        assert sorted(raised.value.request_ids) == ["one", "three", "two"]

    def test_an_error_omits_the_submissions_of_another_call(self, queue: Callable[..., Queue]) -> None:
        stub = Stub(accepted("old"), refusal(401, 10000), accepted("new"), refusal(401, 10000))
        ask = queue(stub)
        batch = ask.client.batch
        for name in ("old", "new"):
            with pytest.raises(AuthenticationError) as raised:
                batch.run(BGE, TWO) if ask.mode == "sync" else asyncio.run(batch.run(BGE, TWO))
            assert raised.value.request_ids == (name,)

    def test_an_interrupt(self, account: dict[str, Any], clock: VirtualTime, monkeypatch: pytest.MonkeyPatch) -> None:
        def interrupt(seconds: float) -> None:
            raise KeyboardInterrupt

        monkeypatch.setattr(clock, "sleep", interrupt)
        monkeypatch.setattr("workers_ai._flow.drivers.time.sleep", interrupt)

        with pytest.raises(KeyboardInterrupt) as raised:
            Queue("sync", account, clock, Stub(accepted("r-3"), RUNNING))("run", BGE, TWO)

        assert raised.value.__notes__ == ["pending in the asynchronous queue: r-3"]

    def test_a_cancellation(self, account: dict[str, Any], clock: VirtualTime) -> None:
        stub = Stub(accepted("r-4"), RUNNING)
        batch = Queue("async", account, clock, stub).client.batch
        notes: list[str] = []

        async def noting() -> None:
            try:
                await batch.run(BGE, TWO, deadline_s=None)  # type: ignore[misc]
            except asyncio.CancelledError as exc:
                notes.extend(exc.__notes__)
                raise

        async def main() -> None:
            task = asyncio.ensure_future(noting())
            while not stub.polls:
                await asyncio.sleep(0)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task

        asyncio.run(main())
        assert notes == ["pending in the asynchronous queue: r-4"]

    def test_no_error_has_the_token(self, queue: Callable[..., Queue], account: dict[str, Any]) -> None:
        with pytest.raises(WorkersAIError) as raised:
            queue(Stub(accepted(), refusal(401, 10000)))("run", BGE, TWO)
        assert account["api_token"] not in f"{raised.value} {raised.value!r} {vars(raised.value)}"


class TestBusy:
    def test_the_queue_accepts_work_while_the_model_is_at_capacity(self, queue: Callable[..., Queue]) -> None:
        emulator = Emulator(clock=Clock("jump"), slots=1, max_wait_s=0)
        emulator.faults.add(Fault.busy(route="run", times=None))

        items = queue(emulator.transport(), on_busy="raise")("run", BGE, TWO)

        assert [item.success for item in items] == [True, True]
