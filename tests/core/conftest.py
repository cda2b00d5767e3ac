"""Run flows step by step: no socket, no clock."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import httpx
import pytest
from tests.core.virtual_time import VirtualTime

from workers_ai._calls.requests import Calls
from workers_ai._flow.steps import Flow, Send, Sleep
from workers_ai._limits import limiter
from workers_ai._limits.limiter import AccountLimiter
from workers_ai._settings.settings import Settings
from workers_ai._wire.request import Request
from workers_ai.retry import RetryPolicy


@dataclass
class VirtualClock:
    """A clock that advances only on request."""

    now: float = 1000.0

    def __call__(self) -> float:
        return self.now


@dataclass
class Played:
    """The steps and the result of a flow."""

    result: Any = None
    error: BaseException | None = None
    sent: list[Request] = field(default_factory=list)
    slept: list[float] = field(default_factory=list)


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture
def virtual(monkeypatch: pytest.MonkeyPatch) -> VirtualTime:
    """Return virtual time for real clients. The driver sleeps in it, and the account's limiter reads it."""
    time = VirtualTime()
    monkeypatch.setattr("workers_ai._flow.drivers.time.sleep", time.sleep)
    monkeypatch.setattr(limiter, "AccountLimiter", lambda: AccountLimiter(time.now))
    return time


@pytest.fixture
def play(clock: VirtualClock) -> Callable[[Flow[Any], Iterable[Any]], Played]:
    """Return a function that runs a flow with a list of answers: responses, or exceptions of the transport."""

    def play(flow: Flow[Any], answers: Iterable[Any]) -> Played:
        played, left = Played(), iter(answers)
        try:
            step = next(flow)
            while True:
                if isinstance(step, Sleep):
                    played.slept.append(step.seconds)
                    clock.now += step.seconds
                    step = next(flow)
                    continue
                assert isinstance(step, Send)
                played.sent.append(step.request)
                answer = next(left)
                step = flow.throw(answer) if isinstance(answer, Exception) else flow.send(answer)
        except StopIteration as stop:
            played.result = stop.value
        except Exception as exc:  # noqa: BLE001 - the test checks the error of the flow
            played.error = exc
        assert next(left, None) is None, "the flow ended before all answers were used"
        return played

    return play


@pytest.fixture
def make_calls(account: dict[str, Any], clock: VirtualClock) -> Callable[..., Calls]:
    """Return the flows of a client on the virtual clock, with maximum jitter."""

    def make(
        limiter: AccountLimiter | None = None,
        on_retry: Any = None,
        policy: RetryPolicy | None = None,
        **settings: Any,
    ) -> Calls:
        resolved = Settings.resolve(**account, **settings)
        policy = policy or RetryPolicy(max_retries=resolved.max_retries, jitter=lambda: 1.0)
        return Calls(resolved, limiter or AccountLimiter(clock), policy, on_retry, clock)

    return make


@pytest.fixture
def ok() -> Callable[..., httpx.Response]:
    """Return a function that creates a valid reply of the native family."""
    return lambda result=None: httpx.Response(
        200, json={"result": result or {"response": "hi"}, "success": True, "errors": [], "messages": []}
    )


@pytest.fixture
def refusal() -> Callable[..., httpx.Response]:
    """Return a function that creates an error response in the form of the service."""

    def make(
        status: int, code: int | None = None, text: str = "no", headers: dict[str, str] | None = None
    ) -> httpx.Response:
        entry = {"message": f"AiError: {text} (7a0c4040-4290-4404-8429-000000000404)"}
        body = {"errors": [entry | ({"code": code} if code is not None else {})], "success": False, "result": {}}
        return httpx.Response(status, content=json.dumps(body | {"messages": []}), headers=headers)

    return make
