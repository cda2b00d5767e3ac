"""Calls as flows: one HTTP exchange with its retries, and the four things a client can ask for."""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, ParamSpec, TypeVar
from urllib.parse import urlencode

from workers_ai import catalogue
from workers_ai._calls.per_call import Overrides
from workers_ai._calls.suggestions import hint_for
from workers_ai._flow.steps import Flow, Send, Sleep, Turn
from workers_ai._limits.limiter import REQUESTS_PER_MINUTE, Gate, Limiter, Ticket
from workers_ai._transports.http import body_text, parsed, untie
from workers_ai._wire.chat.reply import kept_headers, read_chat, shortened
from workers_ai._wire.error_mapping import error_from_reply, read_error, scrub_error
from workers_ai._wire.json_parsing import replace_lone_surrogates
from workers_ai._wire.quirks import repair_request
from workers_ai._wire.request import Request
from workers_ai._wire.sse import is_event_stream
from workers_ai._wire.usage import add_usage
from workers_ai._wire.vectors import EmbedOptions, embed_request, read_scores, read_vectors, rerank_request
from workers_ai.errors import (
    APIConnectionError,
    APIResponseValidationError,
    APITimeoutError,
    BadRequestError,
    CapacityError,
    ConfigurationError,
    ContextWindowExceededError,
    NotFoundError,
    RateLimitError,
    RequestTooLargeError,
    WorkersAIError,
)
from workers_ai.retry import RetryEvent, RetryPolicy
from workers_ai.types import JSON, ChatReply, EmbedReply, RerankScore

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import httpx

    from workers_ai._settings.settings import Settings
    from workers_ai._validation import OnBusy
    from workers_ai._wire.chat.request import ChatPlan

__all__ = ["Calls", "Reply"]

P = ParamSpec("P")
T = TypeVar("T")

_log = logging.getLogger("workers_ai")
_USER_OF_URL = re.compile(r"//[^/@\s]{1,1000}@")
_EVENTS = re.compile(rb"\s*(?:data|event|id|retry)?:")


class Reply(NamedTuple):
    """A successful reply: parsed, or an open event stream (``data`` is None), with the headers worth keeping.

    An event stream that came under another media type has been read, and its bytes are ``data``.
    """

    data: JSON
    headers: Mapping[str, str]
    stream: httpx.Response | None = None
    ticket: Ticket | None = None


@dataclass
class Calls:
    """The flows of one client.

    Attributes:
        settings: Where to send, and what a busy service means.
        limiter: Shared by all objects of the account.
        policy: When a failed call is tried again.
        on_retry: Called before each wait.
        clock: Gives the time in seconds.
        overrides: What the requests of one call have in place of the client's own.
        gate: The bound of the object's requests in flight; None for no bound.
        paced: Whether each request takes a turn at a framework's rate limiter, which the transport has.
        ends: When the call has to be over, by ``clock``; None for no bound.
    """

    settings: Settings
    limiter: Limiter
    policy: RetryPolicy
    on_retry: Callable[[RetryEvent], None] | None = None
    clock: Callable[[], float] = field(default=time.monotonic, repr=False)
    overrides: Overrides | None = None
    gate: Gate | None = None
    paced: bool = False
    ends: float | None = None

    def begun(self) -> Calls:
        """Return the flows of one call of several requests: ``total_timeout`` counts from now for all of them."""
        total = self.settings.total_timeout
        return self if total is None or self.ends is not None else replace(self, ends=self.clock() + total)

    def exchange(
        self,
        request: Request,
        *,
        stream: bool = False,
        on_busy: OnBusy | None = None,
        repeatable: Callable[[WorkersAIError], bool] = lambda error: True,
        begin: Callable[[Reply], Flow[WorkersAIError | None]] | None = None,
    ) -> Flow[Reply]:
        """Send a request until it succeeds, or fails for good.

        Waits its turn at the shared limiter, tries again as the policy says, and checks that a success is one. A
        stream counts as successful once its first piece is in; it is never begun again after that.

        Args:
            request: What to send.
            stream: Whether an event stream is asked for.
            on_busy: In place of the client's own setting.
            repeatable: Whether a request that failed like this may be sent again at all.
            begin: Reads the first piece of a stream, and gives the error that came in its place.

        Raises:
            WorkersAIError: The typed error of the last try, with ``attempts`` set.
        """
        if self.overrides is not None:
            request = self.overrides.apply(request)
        on_busy = on_busy or self.settings.on_busy
        call = _Call(self, request, on_busy)
        try:
            while True:
                yield from call.admit()
                outcome = yield from self._try(call.bounded(), stream, call.ticket)
                if begin and isinstance(outcome, Reply) and outcome.stream is not None:
                    outcome = (yield from begin(outcome)) or outcome
                if isinstance(outcome, Reply):
                    if outcome.stream is None:
                        self.finish(call.ticket)
                    return outcome
                outcome.attempts = call.attempts
                held = on_busy == "raise" and isinstance(outcome, RateLimitError)
                pause = call.pause(outcome, give_up=held or not repeatable(outcome))
                if pause is None:
                    raise outcome
                yield from call.sleep(pause, str(outcome))
        except BaseException:
            self.limiter.leave(call.ticket)
            self.leave_gate(call.ticket)
            raise

    def finish(self, ticket: Ticket) -> None:
        """Release the slots of a call that was served."""
        self.limiter.done(ticket)
        self.leave_gate(ticket)

    def leave_gate(self, ticket: Ticket) -> None:
        """Release the slot of a call at the bound of its object."""
        if self.gate is not None:
            self.gate.leave(ticket, self.limiter.now())

    def _try(self, request: Request, stream: bool, ticket: Ticket) -> Flow[Reply | WorkersAIError]:
        try:
            response: httpx.Response = yield Send(request, stream)
        except Exception as exc:  # noqa: BLE001 - whatever the transport throws in means that no reply came
            return connection_error(exc, request.model, self.settings)
        if stream and is_event_stream(response.status_code, response.headers.get("content-type")):
            return Reply(None, kept_headers(response.headers.raw), response, ticket)
        if stream and response.is_success and _EVENTS.match(response.content):
            return Reply(response.content, kept_headers(response.headers.raw))
        reply = read_reply(response, request.model, self.settings)
        if isinstance(reply, (NotFoundError, BadRequestError)):
            reply.hint = hint_for(reply, request.model, request.task)
        return reply

    def exchange_chat(
        self,
        request: Request,
        *,
        stream: bool = False,
        begin: Callable[[Reply], Flow[WorkersAIError | None]] | None = None,
    ) -> Flow[Reply]:
        """Send a chat request; drop a field that the model rejects and can do without, and send it again."""
        rejected: set[str] = set()
        while True:
            try:
                return (yield from self.exchange(request, stream=stream, begin=begin))
            except BadRequestError as exc:
                repaired = repair_request(request, exc, rejected)
                if repaired is None:
                    raise
                request = repaired

    def chat(self, plan: ChatPlan) -> Flow[ChatReply]:
        """Return one whole answer."""
        reply = yield from self.exchange_chat(plan.request)
        return self.read(read_chat, reply.data, plan.context, reply.headers)

    def read(self, reader: Callable[P, T], *args: P.args, **options: P.kwargs) -> T:
        """What a reader makes of a reply; the error of one that does not fit shows no secret that the reply repeats."""
        try:
            return reader(*args, **options)
        except WorkersAIError as exc:
            scrub_error(exc, self.settings.scrub)
            raise

    def embed(
        self,
        model: str,
        texts: Sequence[str],
        options: EmbedOptions,
        *,
        kind: Literal["document", "query"],
        first: int = 0,
        on_busy: OnBusy | None = None,
    ) -> Flow[EmbedReply]:
        """Embed one request's worth of texts; one that is too large is halved, down to a single text.

        Args:
            model: Model id.
            texts: As many as one request may hold.
            options: What shapes the vectors.
            kind: Whether the texts are documents or queries.
            first: Index of the first text in the caller's list, for errors.
            on_busy: In place of the client's own setting.
        """
        reject = (on_busy or self.settings.on_busy) != "wait"
        request = embed_request(model, texts, options, kind=kind, reject_if_busy=reject)
        try:
            reply = yield from self.exchange(request, on_busy=on_busy)
        except (ContextWindowExceededError, RequestTooLargeError) as exc:
            if len(texts) == 1:
                exc.index = first
                exc.message = f"text {first} is too long: {exc.message}"
                raise
        else:
            neurons = reply.headers.get("cf-ai-neurons")
            return self.read(read_vectors, reply.data, model, len(texts), normalize=options.normalize, neurons=neurons)
        half = len(texts) // 2
        left = yield from self.embed(model, texts[:half], options, kind=kind, first=first, on_busy=on_busy)
        right = yield from self.embed(model, texts[half:], options, kind=kind, first=first + half, on_busy=on_busy)
        return EmbedReply(left.vectors + right.vectors, model, add_usage(left.usage, right.usage), left.pooling)

    def rerank(self, model: str, query: str, texts: Sequence[str], top_k: int) -> Flow[list[RerankScore]]:
        """Score one request's worth of texts against a query, best first."""
        reject = self.settings.on_busy != "wait"
        request = rerank_request(model, query, texts, top_k, reject_if_busy=reject)
        reply = yield from self.exchange(request)
        return self.read(read_scores, reply.data, model, len(texts), top_k)

    def models(self, filters: Mapping[str, Any]) -> Flow[list[dict[str, JSON]]]:
        """List the account's models, page by page until a short one (the reported total counts the platform)."""
        found: list[dict[str, JSON]] = []
        per_page = 100
        for page in range(1, 101):
            query = urlencode({**filters, "page": page, "per_page": per_page}, errors="replace")
            request = Request("models/search", None, "", "catalogue", "GET", query)
            reply = yield from self.exchange(request)
            rows = self.read(_read_models, reply.data)
            found += rows
            if len(rows) < per_page:
                break
        return found


class _Call:
    """One call of :meth:`Calls.exchange`: its waits, and the bounds of each.

    Args:
        calls: The flows of the client.
        request: What the call sends.
        on_busy: What to do when the service is at capacity.
    """

    def __init__(self, calls: Calls, request: Request, on_busy: OnBusy) -> None:
        self._calls = calls
        self._request = request
        self._on_busy = on_busy
        limit = catalogue.lookup(request.model).requests_per_minute
        own = calls.settings.requests_per_minute
        self.ticket = Ticket(
            model=f"queue of {request.model}" if request.task == "queue" else request.model,
            task=request.task,
            patient=on_busy != "raise" and calls.policy.max_retries > 0,
            gentle=on_busy == "retry",
            requests_per_minute=None if own == "documented" else own,
            model_limit=None if limit == REQUESTS_PER_MINUTE.get(request.task, limit) else limit,
            documented=own == "documented",
        )
        self.attempts = 0
        self._began = calls.clock()
        total = calls.settings.total_timeout
        self._ends = self._began + total if calls.ends is None and total is not None else calls.ends
        pool = calls.settings.timeout
        self._patience_s = pool if isinstance(pool, (int, float)) else pool.pool

    def admit(self) -> Flow[None]:
        """Wait for a slot of the object, a turn at the framework's rate limiter, and the account's limiter.

        Raises:
            APITimeoutError: The wait is longer than ``timeout`` or ``total_timeout`` allows.
            RateLimitError: The caller's own limit per minute is reached, and ``on_busy`` is ``"raise"``.
        """
        calls, ticket, gate = self._calls, self.ticket, self._calls.gate
        turn_taken = not calls.paced
        if (left := self._left_s()) is not None and left <= 0:
            raise self._timeout(f"total_timeout={calls.settings.total_timeout} s ended before this request")
        moves, since = -1, 0.0
        while True:
            if gate is not None and (wait := gate.wait_s(ticket, calls.limiter.now() + ticket.ahead)):
                if moves != gate.moves:
                    moves, since = gate.moves, calls.clock()
                self._check_gate(gate, calls.clock() - since)
                yield from self._wait(wait, f"for a slot of max_concurrency={gate.limit}")
                continue
            if not turn_taken:
                yield from self._turn()
                turn_taken = True
            wait = calls.limiter.wait_s(ticket, self._patience_s)
            if not wait:
                self.attempts += 1
                return
            if gate is not None:
                gate.step_back(ticket)
            yield from self._wait_for_limit(wait)

    def _check_gate(self, gate: Gate, still_s: float) -> None:
        if self._patience_s is not None and still_s > self._patience_s:
            raise self._timeout(
                f"no slot of max_concurrency={gate.limit} became free within timeout={self._patience_s:g} s: "
                "close or read the open streams of this object, or raise max_concurrency"
            )

    def _turn(self) -> Flow[None]:
        left = self._left_s()
        bounds = [bound for bound in (left, self._patience_s) if bound is not None]
        within = max(0.0, min(bounds)) if bounds else None
        try:
            yield Turn(within)
        except TimeoutError:
            raise self._timeout(f"rate_limiter let no request through within {within:g} s") from None

    def _wait_for_limit(self, wait: float) -> Flow[None]:
        own = self._calls.settings.requests_per_minute
        if self._on_busy == "raise":
            raise RateLimitError(
                f"requests_per_minute={own} of this client is reached; the next request may go in {wait:.1f} s",
                model=self._request.model,
                retry_after=wait,
            )
        yield from self._wait(wait, "for the shared limiter of the account")

    def _wait(self, seconds: float, reason: str) -> Flow[None]:
        """Sleep, unless ``total_timeout`` ends before."""
        left = self._left_s()
        if left is not None:
            if left <= 0 or seconds > max(left, 1.0):
                total = self._calls.settings.total_timeout
                raise self._timeout(f"total_timeout={total} s ends before a wait of {seconds:.1f} s {reason}")
            seconds = min(seconds, left)
        yield from self.sleep(seconds, reason)

    def sleep(self, seconds: float, reason: str) -> Flow[None]:
        """Sleep. If ``sleep`` is patched out, credit the time to the ticket so that the call does not spin."""
        before = self._calls.clock()
        yield Sleep(seconds, reason)
        self.ticket.ahead += max(0.0, seconds - (self._calls.clock() - before))

    def _timeout(self, message: str) -> APITimeoutError:
        error = APITimeoutError(message, model=self._request.model)
        error.delivered = False
        error.attempts = self.attempts
        return error

    def _elapsed_s(self) -> float:
        return self._calls.clock() - self._began + self.ticket.ahead

    def _left_s(self) -> float | None:
        """Seconds until ``total_timeout``; None for no bound."""
        return None if self._ends is None else self._ends - self._calls.clock() - self.ticket.ahead

    def bounded(self) -> Request:
        """Return the request, bounded by what is left of ``total_timeout``."""
        left = self._left_s()
        return self._request if left is None else self._request._replace(total_s=max(left, 0.001))

    def pause(self, error: WorkersAIError, *, give_up: bool) -> float | None:
        """Return the seconds until the next try; None to give up. Informs limiter, log and callback."""
        calls, ticket = self._calls, self.ticket
        pause = None if give_up else calls.policy.wait_s(self.attempts, error, self._elapsed_s())
        left = self._left_s()
        if pause is not None and left is not None and pause >= left:
            pause = None
        returns = pause is not None
        # A call that gives up holds no other call.
        if isinstance(error, CapacityError):
            told = returns and error.retry_after is not None
            calls.limiter.busy(ticket, pause or 0.0, told=told, returns=returns)
        elif isinstance(error, RateLimitError) and pause is not None:
            calls.limiter.limited(ticket, pause, returns=True)
        else:
            calls.limiter.done(ticket)
        calls.leave_gate(ticket)
        if pause is not None:
            _log.info("trying again in %.2f s (attempt %d failed): %s", pause, self.attempts, error)
            if calls.on_retry:
                calls.on_retry(RetryEvent(error, self.attempts, pause))
        return pause


def read_reply(response: httpx.Response, model: str, settings: Settings) -> Reply | WorkersAIError:
    """Parse a reply that has been read; an error reply, and a success that is none, become the typed error."""
    body: JSON = None
    unreadable = False
    try:
        body = parsed(response)
    except ValueError:
        unreadable = True
    failed = isinstance(body, dict) and (
        body.get("success") is False or (not body.get("result") and bool(read_error(body)))
    )
    if response.is_success and not failed and not unreadable:
        untie(response)
        return Reply(body, kept_headers(response.headers.raw))
    if response.is_success and unreadable:
        what = "an empty body" if not response.content.strip() else "a body that is not JSON"
        shown = settings.scrub(body_text(response)[:2000])
        return APIResponseValidationError(
            f"HTTP {response.status_code} with {what}", model=model, body=shown, status_code=response.status_code,
            request_id=response.headers.get("cf-ray"),
        )  # fmt: skip
    return error_from_reply(
        response.status_code,
        response.headers,
        body_text(response),
        model=model,
        body=body,
        scrub=settings.scrub,
        successor=catalogue.successor,
    )


def _read_models(data: JSON) -> list[dict[str, JSON]]:
    rows = data.get("result") if isinstance(data, dict) else data  # bare from a binding
    if not isinstance(rows, list):
        raise APIResponseValidationError("the list of models has no result", body=shortened(data), status_code=200)
    return rows


def connection_error(exc: Exception, model: str, settings: Settings) -> WorkersAIError:
    """The typed error of an exception of the transport."""
    import httpx

    host = _host_of(exc) or httpx.URL(settings.base_url).host
    if isinstance(exc, httpx.TimeoutException):
        phase = {
            "ConnectTimeout": "connecting",
            "WriteTimeout": "sending",
            "PoolTimeout": "waiting for a connection",
        }
        during = phase.get(type(exc).__name__, "waiting for the reply")
        late = f"{host} did not answer in time while {during}"
        if settings.total_timeout is not None:
            late += f"; total_timeout is {settings.total_timeout:g} s"
        error: APIConnectionError = APITimeoutError(late, model=model)
    elif isinstance(exc, httpx.RequestError):
        detail = _USER_OF_URL.sub("//[redacted]@", settings.scrub(str(exc))) or type(exc).__name__
        error = APIConnectionError(f"no reply from {host}: {detail}", model=model)
    elif isinstance(exc, RuntimeError) and "client has been closed" in str(exc):
        return ConfigurationError(
            "the HTTP client has been closed: pass an http_client (http_async_client) that stays open", model=model
        )
    else:
        raise exc
    with suppress(
        RuntimeError
    ):  # it has no request; else the exception, which stays tied to ours, would hold the token
        exc.request = httpx.Request(exc.request.method, exc.request.url)
    exc.__cause__ = exc.__context__ = None  # their tracebacks have the headers that were sent
    error.delivered = not isinstance(exc, (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout))
    return error


def _host_of(exc: Exception) -> str | None:
    """The host that was asked, which need not be that of the service; None where the exception does not know."""
    try:
        return exc.request.url.host  # type: ignore[attr-defined, no-any-return]
    except (AttributeError, RuntimeError):
        return None


def check_texts(texts: Sequence[str], empty: Literal["raise", "space"], model: str) -> list[str]:
    """The texts as they are sent.

    Raises:
        BadRequestError: These are no texts, or one is not a string, or is empty and ``empty`` is ``"raise"``; names its
            index.
    """
    if isinstance(texts, (str, bytes, Mapping)) or not isinstance(texts, Iterable):
        what = "one string" if isinstance(texts, str) else f"a {type(texts).__name__}"
        raise BadRequestError(f"texts must be a list of strings, not {what}", model=model)
    checked = []
    for index, text in enumerate(texts):
        if not isinstance(text, str):
            raise _refused_text(index, f"is a {type(text).__name__}, not a string", model)
        if not text and empty == "raise":
            why = "is empty: drop it, or pass empty_text='space' to embed one space in its place"
            raise _refused_text(index, why, model)
        checked.append(replace_lone_surrogates(text) or " ")
    return checked


def _refused_text(index: int, why: str, model: str) -> BadRequestError:
    error = BadRequestError(f"text {index} {why}", model=model)
    error.index = index
    return error
