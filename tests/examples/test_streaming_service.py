"""The streaming service: events, errors as status codes, and cancellation."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

import pytest
from fastapi.testclient import TestClient

from workers_ai_emulator import Emulator, Fault

ORDER = {"messages": [{"role": "user", "content": "Where is order 17? Use order_status."}]}
EARLY = [
    (Fault.busy(), 503, "CapacityError", "5"),
    (Fault.busy(retry_after="7"), 503, "CapacityError", "7"),
    (Fault.error(401, 10000, "Authentication error"), 502, "AuthenticationError", None),
    (Fault.error(400, 5021, "The prompt is too long"), 422, "ContextWindowExceededError", None),
]


@pytest.fixture
def service(load: Callable[[str], ModuleType], workers_ai_emulator_env: Emulator) -> Iterator[TestClient]:
    """Return a client of the service."""
    with TestClient(load("streaming_service").app) as client:
        yield client


def read_events(body: str) -> list[tuple[str, Any]]:
    """Return the events of a stream as (event, data)."""
    fields = [dict(line.split(": ", 1) for line in event.splitlines()) for event in body.strip().split("\n\n")]
    return [(event["event"], json.loads(event["data"])) for event in fields]


def test_the_answer_is_streamed(service: TestClient, workers_ai_emulator: Emulator) -> None:
    response = service.post("/chat", json=ORDER)
    assert response.headers["content-type"].startswith("text/event-stream")
    events = read_events(response.text)
    assert events[0] == ("tool", {"name": "order_status", "result": "Order 17 left the warehouse in Moss at 14:02."})
    assert len([kind for kind, _ in events if kind == "text"]) > 2
    assert "14:02" in "".join(data for kind, data in events if kind == "text")
    assert events[-1][0] == "done"
    assert events[-1][1]["tokens"] > 20
    assert workers_ai_emulator.log.statuses == {200: 2}


@pytest.mark.parametrize(("fault", "status", "error", "wait"), EARLY)
def test_an_early_error_has_a_status(
    service: TestClient, workers_ai_emulator: Emulator, fault: Fault, status: int, error: str, wait: str | None
) -> None:
    workers_ai_emulator.faults.add(fault)
    response = service.post("/chat", json=ORDER)
    assert (response.status_code, response.json()) == (status, {"error": error})
    assert response.headers.get("retry-after") == wait


def test_an_exhausted_allocation_waits_for_its_reset(service: TestClient, workers_ai_emulator: Emulator) -> None:
    workers_ai_emulator.faults.add(Fault.error(429, 4006, "daily allocation used up"))
    response = service.post("/chat", json=ORDER)
    assert response.status_code == 503
    assert 0 < int(response.headers["retry-after"]) <= 86_400


def test_a_late_error_is_an_event(service: TestClient, workers_ai_emulator: Emulator) -> None:
    workers_ai_emulator.faults.add(Fault.busy(skip=1))
    events = read_events(service.post("/chat", json=ORDER).text)
    assert [kind for kind, _ in events] == ["tool", "error"]
    assert events[-1] == ("error", {"error": "CapacityError", "retryable": True})


@pytest.mark.parametrize("messages", [[], [{"role": "system", "content": "x"}], [{"role": "user", "content": ""}]])
def test_an_invalid_conversation_is_rejected(service: TestClient, messages: list[Any]) -> None:
    assert service.post("/chat", json={"messages": messages}).status_code == 422


async def leave_after(app: Any, seen: bytes) -> bytes:
    """Send a request to the service, disconnect when the response contains ``seen``, and return the response so far."""
    sent = b""
    left = asyncio.Event()
    if not seen:
        left.set()
    body = [{"type": "http.request", "body": json.dumps(ORDER).encode()}]

    async def receive() -> Any:
        if body:
            return body.pop()
        await left.wait()
        return {"type": "http.disconnect"}

    async def send(message: Any) -> None:
        nonlocal sent
        sent += message.get("body", b"")
        if seen in sent:
            left.set()

    scope = {"type": "http", "method": "POST", "path": "/chat", "query_string": b"", "asgi": {"spec_version": "2.3"}}
    async with app.router.lifespan_context(app):
        await asyncio.wait_for(app({**scope, "headers": [(b"content-type", b"application/json")]}, receive, send), 60)
        await asyncio.wait_for(
            asyncio.gather(*(asyncio.all_tasks() - {asyncio.current_task()}), return_exceptions=True), 60
        )
    return sent


async def test_a_disconnect_cancels_the_request(
    load: Callable[[str], ModuleType], workers_ai_emulator_env: Emulator
) -> None:
    """The client disconnects after the first text. The complete answer would take minutes."""
    log = workers_ai_emulator_env.log
    workers_ai_emulator_env.faults.add(Fault.say("word " * 4000), Fault.slow(0.05))
    sent = await leave_after(load("streaming_service").app, b"event: text")
    for _ in range(1200):
        if log.running == 0:
            break
        await asyncio.sleep(0.05)
    assert log.running == 0
    assert b"done" not in sent


async def test_a_disconnect_before_the_first_message(
    load: Callable[[str], ModuleType], workers_ai_emulator_env: Emulator
) -> None:
    """The client has disconnected, and the answer would begin after 100 s. No task of the agent continues."""
    workers_ai_emulator_env.faults.add(Fault.latency(100.0))
    assert await leave_after(load("streaming_service").app, b"") == b'{"detail":"the client left"}'
