"""The Python Worker, with a substitute for its runtime. ``.ci/run pyodide`` runs it in Pyodide."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Callable
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from tests.transports.conftest import FakeAI

from workers_ai_emulator import Emulator, Fault

QUESTION = '{"question": "Why is the sky blue?"}'
INVALID = ["", "[]", '"text"', "{}", '{"question": 7}', '{"question": ""}', json.dumps({"question": "x" * 4_001})]
FAILURES = [
    (Fault.busy(), 503, "CapacityError", "5"),
    (Fault.error(429, 4006, "daily allocation used up"), 503, "QuotaExhaustedError", "5"),
    (Fault.error(400, 5004, "bad input"), 502, "BadRequestError", None),
]


class Response:
    """The part of ``workers.Response`` that the example uses."""

    def __init__(self, data: Any, status: int, headers: dict[str, str]) -> None:
        self.data, self.status, self.headers = data, status, headers

    @classmethod
    def from_json(cls, data: Any, status: int = 200, headers: dict[str, str] | None = None) -> Response:
        return cls(json.loads(json.dumps(data)), int(status), headers or {})


@pytest.fixture
def post(
    load: Callable[[str], ModuleType], workers_ai_emulator: Emulator, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., Response]:
    """Return a function that sends a request body to the Worker."""
    runtime: Any = ModuleType("workers")
    runtime.Response, runtime.Request, runtime.WorkerEntrypoint = Response, object, object
    monkeypatch.setitem(sys.modules, "workers", runtime)
    worker = load("worker").Default()
    worker.env = SimpleNamespace(AI=FakeAI(workers_ai_emulator))

    async def text(body: str) -> str:
        return body

    def post(body: str, method: str = "POST") -> Response:
        return asyncio.run(worker.fetch(SimpleNamespace(method=method, text=lambda: text(body))))

    return post


def test_the_worker_answers(post: Callable[..., Response], workers_ai_emulator: Emulator) -> None:
    workers_ai_emulator.faults.add(Fault.say("The air scatters blue light."))
    response = post(QUESTION)
    assert (response.status, response.data["answer"]) == (200, "The air scatters blue light.")
    assert response.data["tokens"] > 5


@pytest.mark.parametrize("body", INVALID)
def test_an_invalid_body_is_rejected(post: Callable[..., Response], workers_ai_emulator: Emulator, body: str) -> None:
    assert post(body).status == 400
    assert workers_ai_emulator.log.requests == 0


def test_other_methods_are_rejected(post: Callable[..., Response]) -> None:
    response = post("", method="GET")
    assert (response.status, response.headers["Allow"]) == (405, "POST")


@pytest.mark.parametrize(("fault", "status", "error", "wait"), FAILURES)
def test_an_error_has_a_status(
    post: Callable[..., Response], workers_ai_emulator: Emulator, fault: Fault, status: int, error: str, wait: str
) -> None:
    workers_ai_emulator.faults.add(fault)
    response = post(QUESTION)
    assert (response.status, response.data) == (status, {"error": error})
    assert response.headers.get("Retry-After") == wait
