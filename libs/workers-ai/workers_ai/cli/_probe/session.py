"""Send the calls of the probe: each one once, at most :data:`MAX_REQUESTS` in all."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Final

import httpx

from workers_ai._wire.error_mapping import classify
from workers_ai.cli._probe.calls import Call, OpenQuestionError, Reply, poll
from workers_ai.errors import (
    AuthenticationError,
    CapacityError,
    ConfigurationError,
    ModelRetiredError,
    PaidPlanRequiredError,
    PermissionDeniedError,
    QuotaExhaustedError,
    RateLimitError,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from workers_ai._settings.settings import Settings

__all__ = ["MAX_REQUESTS", "Exchange", "ProbeStoppedError", "Session", "polls_per_batch"]

MAX_REQUESTS: Final = 60
PAUSES_S: Final = (0.0, 5.0, 20.0, 60.0, 120.0)
"""Seconds before each poll of a batch."""
_TIMEOUT_S: Final = 120.0

_EMULATOR_HEADER: Final = "x-workers-ai-emulator"
_BLOCKING: Final = (
    AuthenticationError,
    CapacityError,
    RateLimitError,
    PermissionDeniedError,
    PaidPlanRequiredError,
    ModelRetiredError,
)

Exchange = tuple[Call, Reply]


class ProbeStoppedError(Exception):
    """No further question can be tested now. The message contains the reason."""


def polls_per_batch() -> int:
    """Return the maximum number of polls of a batch."""
    return len(PAUSES_S)


class Session:
    """The calls of one probe.

    Args:
        settings: Account, token and URL.
        jobs: Request ids of batches that an earlier run submitted, by the key of their call; updated in place.
        live_only: Whether to raise an error if the emulator replies.
        http_client: Client to send with; None for a new one.
        wait: Function that waits for a number of seconds; None for real time.
    """

    def __init__(
        self,
        settings: Settings,
        jobs: dict[str, str] | None = None,
        *,
        live_only: bool = False,
        http_client: httpx.Client | None = None,
        wait: Callable[[float], object] | None = None,
    ) -> None:
        self._settings = settings
        self._http = http_client or httpx.Client(timeout=_TIMEOUT_S)
        self._wait = wait or threading.Event().wait
        self._live_only = live_only
        self._replies: dict[str, Reply | OpenQuestionError] = {}
        self.jobs = {} if jobs is None else jobs
        self.sent = 0
        self.exchanges: list[Exchange] = []
        """Exchanges since the list was last emptied; repeated ones are listed again."""

    def send(self, call: Call) -> Reply:
        """Return the reply to a call; send the call unless this session has its reply.

        Raises:
            OpenQuestionError: The service rejected the call for an unrelated reason, or did not reply in time.
            ProbeStoppedError: No further call can succeed.
            ConfigurationError: The emulator replied, but only the real service is allowed.
        """
        if call.key not in self._replies:
            self._replies[call.key] = self._first_reply(call)
        reply = self._replies[call.key]
        if isinstance(reply, OpenQuestionError):
            raise reply
        self.exchanges.append((call, reply))
        return reply

    def submit(self, submission: Call) -> Reply:
        """Submit a batch and keep its request id.

        Raises:
            OpenQuestionError: As :meth:`send`; also if the reply has no request id.
            ProbeStoppedError: As :meth:`send`.
        """
        reply = self.send(submission)
        request_id = reply.result.get("request_id")
        if not isinstance(request_id, str):
            raise OpenQuestionError(f"HTTP {reply.status} without a request id")
        self.jobs[submission.key] = request_id
        return reply

    def poll(self, submission: Call) -> Reply:
        """Poll a batch once, after submitting it if no run has.

        Raises:
            OpenQuestionError: As :meth:`submit`.
            ProbeStoppedError: As :meth:`send`.
        """
        if submission.key not in self.jobs:
            self.submit(submission)
        call = poll(submission, self.jobs[submission.key])
        reply = self._first_reply(call)
        if isinstance(reply, OpenQuestionError):
            raise reply
        self.exchanges.append((call, reply))
        return reply

    def collect(self, submission: Call) -> Reply:
        """Return the reply that has the items of a batch.

        Raises:
            OpenQuestionError: The batch is unfinished after the last poll; the next run polls it again.
            ProbeStoppedError: As :meth:`send`.
        """
        key = f"items of {submission.key}"
        if isinstance(done := self._replies.get(key), Reply):
            return done
        for pause_s in PAUSES_S:
            self._wait(pause_s)
            reply = self.poll(submission)
            if reply.error:
                del self.jobs[submission.key]
                raise OpenQuestionError(reply.summary)
            if is_finished(reply):
                self._replies[key] = reply
                return reply
        raise OpenQuestionError("the batch is still in the queue; run the probe again later")

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def _first_reply(self, call: Call) -> Reply | OpenQuestionError:
        if self.sent >= MAX_REQUESTS:
            raise ProbeStoppedError(f"the limit of {MAX_REQUESTS} requests per run is reached; run the probe again")
        self.sent += 1
        try:
            response = self._http.post(
                f"{self._settings._root}/{call.path}", json=dict(call.body), headers=self._settings._headers()
            )
        except httpx.TimeoutException as exc:
            return OpenQuestionError(f"no reply in time ({type(exc).__name__})")
        except httpx.HTTPError as exc:
            raise ProbeStoppedError(
                f"the service cannot be reached ({self._settings._scrub(str(exc))}): run `workers-ai doctor`"
            ) from exc
        headers = {name.lower(): value for name, value in response.headers.items()}
        reply = Reply(response.status_code, headers, self._settings._scrub(response.text))
        if self._live_only and _EMULATOR_HEADER in headers:
            raise ConfigurationError(
                "the emulator replied, but only replies of the service are recorded: pass --no-record"
            )
        error = classify(reply.error, reply.status) if reply.error else None
        if error and (issubclass(error, QuotaExhaustedError) or reply.status == 401):
            raise ProbeStoppedError(reply.summary)
        if error and issubclass(error, _BLOCKING):
            return OpenQuestionError(reply.summary)
        return reply


def is_finished(reply: Reply) -> bool:
    """Return whether a reply to a poll has the items of the batch."""
    return any(isinstance(reply.result.get(key), list) for key in ("results", "responses"))
