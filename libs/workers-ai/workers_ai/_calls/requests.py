"""The flows of a client: one exchange with its retries, and the state that all calls use."""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, ParamSpec, TypeVar, cast

from workers_ai._calls.attempts import Attempts
from workers_ai._calls.per_call import PER_CALL, Overrides, override
from workers_ai._calls.replies import Reply, connection_error, read_reply
from workers_ai._calls.suggestions import hint_for
from workers_ai._flow.steps import Flow, Send
from workers_ai._limits.gate import Gate
from workers_ai._limits.limiter import AccountLimiter, Limiter, limiter_for
from workers_ai._limits.tickets import Ticket
from workers_ai._settings.secrets import mask_secrets
from workers_ai._settings.settings import MAX_CONCURRENCY
from workers_ai._wire.chat.reply import kept_headers
from workers_ai._wire.error_mapping import scrub_error
from workers_ai._wire.sse import is_event_stream, looks_like_events
from workers_ai.errors import BadRequestError, NotFoundError, RateLimitError, WorkersAIError
from workers_ai.retry import RetryEvent, RetryPolicy

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    import httpx

    from workers_ai._settings.settings import Settings
    from workers_ai._validation import OnBusy
    from workers_ai._wire.request import Request

__all__ = ["Calls", "Reply"]

P = ParamSpec("P")
T = TypeVar("T")
Options = TypeVar("Options", bound="Mapping[str, object]")


@dataclass
class Calls:
    """The flows of one client. Pickles and deep copies have their own gate; pickles use the shared limiter.

    Attributes:
        settings: Checked settings.
        limiter: Shared by all objects of the account.
        policy: The retry policy.
        on_retry: Function to call before each wait.
        clock: Function that returns a monotonic time in seconds.
        overrides: Settings of one call that change its requests, or None.
        gate: The limit of the object's requests in flight; None for no limit.
        paced: Whether each request waits for a turn at the framework's rate limiter, held by the transport.
        ends: When the call has to end, by ``clock``; None for no bound.
    """

    settings: Settings
    limiter: AccountLimiter
    policy: RetryPolicy
    on_retry: Callable[[RetryEvent], None] | None = None
    clock: Callable[[], float] = field(default=time.monotonic, repr=False)
    overrides: Overrides | None = None
    gate: Gate | None = None
    paced: bool = False
    ends: float | None = None

    @classmethod
    def of(
        cls,
        settings: Settings,
        *,
        retry: RetryPolicy | None = None,
        on_retry: Callable[[RetryEvent], None] | None = None,
        limiter: Limiter | None = None,
    ) -> Calls:
        """Return the flows for ``settings``.

        Args:
            settings: Checked settings.
            retry: The retry policy; the default follows ``settings.max_retries``.
            on_retry: Called before each wait.
            limiter: The limiter; the default is shared by all objects of the account.
        """
        return cls(
            settings,
            limiter._of_account if limiter else limiter_for(settings.base_url, settings.account_id),
            retry or RetryPolicy(max_retries=settings.max_retries),
            on_retry,
            gate=_gate_of(settings),
        )

    def __reduce__(self) -> tuple[object, ...]:
        is_default = self.policy == RetryPolicy(max_retries=self.settings.max_retries)
        return _restored, (self.settings, None if is_default else self.policy, self.overrides, self.paced)

    def __deepcopy__(self, memo: dict[int, object]) -> Calls:
        return replace(self, gate=_gate_of(self.settings))

    @property
    def concurrency(self) -> int:
        """Maximum requests in flight of one call that sends several."""
        return self.settings.max_concurrency or MAX_CONCURRENCY

    def started(self) -> Calls:
        """Return the flows of a call that sends several requests: ``total_timeout`` bounds them together, from now."""
        total = self.settings.total_timeout
        return self if total is None or self.ends is not None else replace(self, ends=self.clock() + total)

    def for_call(self, options: Options, *, keep: frozenset[str] = frozenset()) -> tuple[Calls, Options]:
        """Return the flows with the settings of one call, and the other options.

        Args:
            options: Options of the call; those in :data:`~workers_ai._calls.per_call.PER_CALL` are settings. Secrets
                are masked in place: a traceback would show them.
            keep: Settings that stay among the options.

        Raises:
            ConfigurationError: A setting of the call is malformed.
        """
        mask_secrets(cast("dict[str, object]", options))
        names = (PER_CALL & options.keys()) - keep
        if not names:
            return self, cast("Options", dict(options))
        given = {name: options[name] for name in names}
        settings, overrides = override(self.settings, given)
        policy = self.policy
        if given.get("max_retries") is not None:
            policy = replace(policy, max_retries=settings.max_retries)
        calls = replace(self, settings=settings, policy=policy, overrides=overrides.over(self.overrides))
        rest = {name: value for name, value in options.items() if name not in names}
        return calls, cast("Options", rest)

    def exchange(
        self,
        request: Request,
        *,
        stream: bool = False,
        on_busy: OnBusy | None = None,
        is_repeatable: Callable[[WorkersAIError], bool] | None = None,
        begin: Callable[[Reply], Flow[WorkersAIError | None]] | None = None,
        reads_events: bool = False,
    ) -> Flow[Reply]:
        """Send a request until it succeeds or fails permanently.

        Waits for slots, retries by the policy, and rejects invalid 2xx responses. A stream has succeeded once its
        first event has been read; it is never restarted after that.

        Args:
            request: The request.
            stream: Whether to read the response as an event stream.
            on_busy: Replaces the client's setting.
            is_repeatable: Function that returns whether a request with this error may be sent again; None for always.
            begin: Flow that reads the beginning of a reply, and returns the error if it has no content.
            reads_events: Whether the caller reads a whole event stream that arrives in place of a whole answer.

        Raises:
            WorkersAIError: The typed error of the last attempt, with ``attempts`` set.
        """
        if self.overrides is not None:
            request = self.overrides.apply(request)
        on_busy = on_busy or self.settings.on_busy
        attempts = Attempts(self, request, on_busy)
        try:
            while True:
                yield from attempts.admit()
                outcome = yield from self._try(attempts.bounded_request(), stream, attempts.ticket, reads_events)
                if begin and isinstance(outcome, Reply):
                    outcome = (yield from begin(outcome)) or outcome
                if isinstance(outcome, Reply):
                    if outcome.stream is None:
                        self.finish(attempts.ticket)
                    return outcome
                outcome.attempts = attempts.made
                is_final = on_busy == "raise" and isinstance(outcome, RateLimitError)
                is_final = is_final or (is_repeatable is not None and not is_repeatable(outcome))
                pause = attempts.pause(outcome, give_up=is_final)
                if pause is None:
                    raise outcome
                yield from attempts.sleep(pause, str(outcome))
        except BaseException:
            self.limiter.leave(attempts.ticket)
            self.leave_gate(attempts.ticket)
            raise

    def finish(self, ticket: Ticket) -> None:
        """Release the slots of a completed call."""
        self.limiter.done(ticket)
        self.leave_gate(ticket)

    def leave_gate(self, ticket: Ticket) -> None:
        """Release the slot of a call in the gate of its object."""
        if self.gate is not None:
            self.gate.leave(ticket, self.limiter.now())

    def _try(self, request: Request, stream: bool, ticket: Ticket, reads_events: bool) -> Flow[Reply | WorkersAIError]:
        try:
            response: httpx.Response = yield Send(request, stream)
        except Exception as exc:  # noqa: BLE001 - any exception of the transport means that no response arrived
            return connection_error(exc, request.model, self.settings)
        if stream and is_event_stream(response.status_code, response.headers.get("content-type")):
            return Reply(None, kept_headers(response.headers.raw), response, ticket)
        if stream and response.is_success and looks_like_events(response.content):
            return Reply(response.content, kept_headers(response.headers.raw))
        reply = read_reply(response, request.model, self.settings, reads_events=reads_events)
        if isinstance(reply, (NotFoundError, BadRequestError)):
            reply.hint = reply.hint or hint_for(reply, request)
        return reply

    def read(self, reader: Callable[P, T], *args: P.args, **options: P.kwargs) -> T:
        """Call a reader and return its result. If it raises, remove secrets from the error: a reply may repeat them."""
        try:
            return reader(*args, **options)
        except WorkersAIError as exc:
            scrub_error(exc, self.settings._scrub)
            raise


def _gate_of(settings: Settings) -> Gate | None:
    return Gate(settings.max_concurrency) if settings.max_concurrency else None


def _restored(settings: Settings, policy: RetryPolicy | None, overrides: Overrides | None, paced: bool) -> Calls:
    return replace(Calls.of(settings, retry=policy), overrides=overrides, paced=paced)
