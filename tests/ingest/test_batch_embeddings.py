"""Embeddings through the queue: always, or if a request is rejected at capacity."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from workers_ai import AsyncClient, Client
from workers_ai.errors import (
    BadRequestError,
    BatchItemError,
    BatchTimeoutError,
    CapacityError,
    ConfigurationError,
    QuotaExhaustedError,
    WorkersAIError,
)
from workers_ai_emulator import Clock, Emulator, Fault
from workers_ai_emulator.state.queue import ItemFailure, QueueSettings

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.bulk_runs import VirtualTime

BGE = "@cf/baai/bge-small-en-v1.5"


@pytest.fixture
def emulator() -> Emulator:
    return Emulator(clock=Clock("jump"), queue=QueueSettings(progress="at_once"))


@pytest.fixture(params=["sync", "async"])
def embed(
    request: pytest.FixtureRequest, account: dict[str, Any], emulator: Emulator, clock: Any
) -> Callable[..., Any]:
    """Return a function that calls ``client.embed`` in virtual time and returns the vectors."""

    def call(texts: list[str], *, model: str = BGE, transport: Any = None, **options: Any) -> Any:
        settings = {"max_concurrency": options.pop("max_concurrency", 4), **account}
        transport = transport or emulator.transport()
        client: Client | AsyncClient
        if request.param == "sync":
            client = Client(http_client=httpx.Client(transport=transport), **settings)
        else:
            client = AsyncClient(http_async_client=httpx.AsyncClient(transport=transport), **settings)
        client._connection.calls.clock = clock
        reply: Any = client.embed(model, texts, **options)
        return (reply if request.param == "sync" else asyncio.run(reply)).vectors

    return call


def texts(count: int) -> list[str]:
    return [f"text number{number}" for number in range(count)]


def direct(count: int) -> list[list[float]]:
    """Return the vectors of these texts from direct requests to another emulator."""
    transport = Emulator().transport()
    with Client(http_client=httpx.Client(transport=transport), account_id="0" * 32, api_token="t") as client:
        return client.embed(BGE, texts(count)).vectors


def routes(emulator: Emulator) -> dict[str, int]:
    return {name: emulator.log.routes[name] for name in ("run", "submit", "poll")}


def queued(emulator: Emulator) -> list[list[list[str]]]:
    """Return the texts of each item of each submission."""
    return [
        [item["text"] for item in entry.json["requests"]] for entry in emulator.log.entries if entry.route == "submit"
    ]


class TestAlways:
    def test_all_documents_wait_in_the_queue(self, embed: Callable[..., Any], emulator: Emulator) -> None:
        vectors = embed(texts(2150), queue="always")

        assert vectors == direct(2150)
        assert [[len(item) for item in job] for job in queued(emulator)] == [[100] * 10, [100] * 10, [100, 50]]
        assert routes(emulator) == {"run": 0, "submit": 3, "poll": 3}

    def test_queries_are_never_queued(self, embed: Callable[..., Any], emulator: Emulator) -> None:
        embed(texts(3), queue="always", kind="query")
        assert routes(emulator) == {"run": 1, "submit": 0, "poll": 0}

    def test_no_texts(self, embed: Callable[..., Any], emulator: Emulator) -> None:
        assert embed([], queue="always") == []
        assert emulator.log.requests == 0

    def test_the_error_of_a_failed_text_has_its_index(self, embed: Callable[..., Any], emulator: Emulator) -> None:
        emulator.queue.settings.failures = [ItemFailure(contains='number137"', code=3030, message="too long")]

        with pytest.raises(BatchItemError, match="too long") as raised:
            embed(texts(250), queue="always")

        assert (raised.value.index, raised.value.code) == (137, 3030)
        sizes = [[len(item) for item in job] for job in queued(emulator)]
        assert sizes[0] == [100, 100, 50]
        assert [sorted(size for job in sizes[1:] for size in job)[-2:]] == [
            [50, 50]
        ]  # halved, not sent again in one request

    def test_a_request_that_fails_once_loses_no_vector(self, embed: Callable[..., Any], emulator: Emulator) -> None:
        emulator.queue.settings.failures = [ItemFailure(index=1, code=3043, times=1)]

        assert embed(texts(250), queue="always") == direct(250)

        assert sum(len(item) for job in queued(emulator) for item in job) == 350

    def test_the_index_of_an_empty_text_is_reported_before_sending(
        self, embed: Callable[..., Any], emulator: Emulator
    ) -> None:
        with pytest.raises(BadRequestError, match="text 1 is empty") as raised:
            embed(["a", ""], queue="always")
        assert raised.value.index == 1
        assert emulator.log.requests == 0
        assert len(embed(["a", ""], queue="always", empty_text="space")) == 2

    def test_a_wrong_number_of_vectors_is_an_error(self, embed: Callable[..., Any], emulator: Emulator) -> None:
        short = {"responses": [{"id": 0, "success": True, "result": {"data": [[0.5]], "shape": [1, 1]}}]}
        emulator.faults.add(Fault.reply({"result": short, "success": True}, route="poll"))
        with pytest.raises(WorkersAIError, match=r"1 vectors? for 2 texts") as raised:
            embed(["a", "b"], queue="always")
        assert raised.value.request_ids == (emulator.queue.jobs[0].request_id,)

    def test_the_deadline(self, embed: Callable[..., Any], emulator: Emulator) -> None:
        emulator.queue.settings.progress = "never"
        with pytest.raises(BatchTimeoutError) as raised:
            embed(texts(1100), queue="always", deadline_s=30)
        assert sorted(raised.value.request_ids) == sorted(job.request_id for job in emulator.queue.jobs)
        assert len(raised.value.request_ids) == 2

    def test_all_rounds_share_one_deadline(
        self, embed: Callable[..., Any], emulator: Emulator, clock: VirtualTime
    ) -> None:
        emulator.queue.settings.progress, emulator.queue.settings.polls = "polls", 8  # about 12 s each
        emulator.queue.settings.failures = [ItemFailure(code=3043)]
        with pytest.raises(BatchTimeoutError):
            embed(texts(100), queue="always", deadline_s=60)
        assert sum(clock.waits) == pytest.approx(60)

    @pytest.mark.usefixtures("clock")
    def test_an_interrupt_lists_the_submissions_in_the_queue(
        self, emulator: Emulator, account: dict[str, Any], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def interrupt(seconds: float) -> None:
            raise KeyboardInterrupt

        emulator.queue.settings.progress = "never"
        monkeypatch.setattr("workers_ai._flow.drivers.time.sleep", interrupt)
        client = Client(http_client=httpx.Client(transport=emulator.transport()), **account)
        with pytest.raises(KeyboardInterrupt) as raised:
            client.embed(BGE, texts(2), queue="always")
        assert raised.value.__notes__ == [f"pending in the asynchronous queue: {emulator.queue.jobs[0].request_id}"]


class TestOverflow:
    def test_nothing_overflows_while_there_is_capacity(self, embed: Callable[..., Any], emulator: Emulator) -> None:
        assert embed(texts(250), queue="overflow") == direct(250)
        assert routes(emulator) == {"run": 3, "submit": 0, "poll": 0}

    @pytest.mark.parametrize("rejected", [0, 1, 2])
    def test_a_rejected_request_has_its_index(
        self, rejected: int, embed: Callable[..., Any], emulator: Emulator
    ) -> None:
        emulator.faults.add(Fault.busy(route="run", skip=rejected))

        vectors = embed(texts(250), queue="overflow", max_concurrency=1)

        assert vectors == direct(250)
        assert queued(emulator) == [[texts(250)[rejected * 100 : rejected * 100 + 100]]]
        assert routes(emulator) == {"run": 3, "submit": 1, "poll": 1}

    def test_requests_set_reject_if_busy(self, embed: Callable[..., Any], emulator: Emulator) -> None:
        embed(texts(1), queue="overflow")
        assert emulator.log.last.json["options"] == {"rejectIfBusy": True}

    def test_a_service_without_any_capacity(self, embed: Callable[..., Any], emulator: Emulator) -> None:
        emulator.faults.add(Fault.busy(route="run", times=None))
        assert embed(texts(450), queue="overflow") == direct(450)
        assert routes(emulator) == {"run": 5, "submit": 5, "poll": 5}

    def test_other_rejections_do_not_overflow(self, embed: Callable[..., Any], emulator: Emulator) -> None:
        emulator.faults.add(Fault.error(429, 3036, "used up", route="run"))
        with pytest.raises(QuotaExhaustedError):
            embed(texts(1), queue="overflow")
        assert routes(emulator)["submit"] == 0

    def test_without_queue_no_request_overflows(self, embed: Callable[..., Any], emulator: Emulator) -> None:
        emulator.faults.add(Fault.busy(route="run", times=None))
        with pytest.raises(CapacityError):
            embed(texts(1), on_busy="raise")
        assert routes(emulator)["submit"] == 0

    def test_an_error_has_the_index_in_the_complete_list(self, embed: Callable[..., Any], emulator: Emulator) -> None:
        emulator.faults.add(Fault.busy(route="run", skip=1))
        emulator.queue.settings.failures = [ItemFailure(contains='number137"', code=3030, message="too long")]
        with pytest.raises(BatchItemError) as raised:
            embed(texts(250), queue="overflow", max_concurrency=1)
        assert raised.value.index == 137

    def test_every_error_lists_the_submissions_in_the_queue(self, embed: Callable[..., Any]) -> None:
        def service(request: httpx.Request) -> httpx.Response:
            body = json.loads(request.content)
            if "requests" in body:
                name = body["requests"][0]["text"][0]
                return httpx.Response(200, json={"result": {"request_id": name}, "success": True})
            if "request_id" in body:
                return httpx.Response(401, json={"success": False, "errors": [{"code": 10000, "message": "no"}]})
            return httpx.Response(429, json={"success": False, "errors": [{"code": 3040, "message": "busy"}]})

        with pytest.raises(WorkersAIError) as raised:
            embed(texts(150), queue="overflow", transport=httpx.MockTransport(service), max_concurrency=1)
        assert raised.value.request_ids == ("text number0",)


@pytest.mark.parametrize("mode", ["always", "overflow"])
def test_a_model_without_a_queue_raises_before_sending(
    mode: Any, embed: Callable[..., Any], emulator: Emulator
) -> None:
    with pytest.raises(ConfigurationError, match="has no asynchronous queue"):
        embed(texts(1), model="@cf/google/embeddinggemma-300m", queue=mode)
    assert emulator.log.requests == 0


def test_an_invalid_mode_is_rejected(embed: Callable[..., Any]) -> None:
    with pytest.raises(ConfigurationError, match="never, overflow, always"):
        embed(texts(1), queue="sometimes")
