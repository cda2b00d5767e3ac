"""Calls as flows: one HTTP exchange with its retries, and the four things a client can ask for."""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, ParamSpec, TypeVar
from urllib.parse import urlencode

from workers_ai import catalogue
from workers_ai.errors import (
    APIConnectionError,
    APIResponseValidationError,
    APITimeoutError,
    BadRequestError,
    CapacityError,
    ConfigurationError,
    ContextWindowExceededError,
    RateLimitError,
    RequestTooLargeError,
    WorkersAIError,
)
from workers_ai.flow import Flow, Send, Sleep
from workers_ai.http import is_event_stream, parsed, untie
from workers_ai.limiter import Limiter, Ticket
from workers_ai.per_call import Overrides
from workers_ai.refusals import error_from_reply, read_refusal, scrub_error
from workers_ai.retry import RetryEvent, RetryPolicy
from workers_ai.wire.jsontext import mended
from workers_ai.wire.reply import kept_headers, read_chat, shortened
from workers_ai.wire.types import JSON, ChatReply, EmbedReply, Request, RerankScore
from workers_ai.wire.usage import add_usage
from workers_ai.wire.vectors import EmbedOptions, embed_request, read_scores, read_vectors, rerank_request

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import httpx

    from workers_ai.config import OnBusy, Settings
    from workers_ai.wire.chat import ChatPlan

__all__ = ["Calls", "Reply"]

P = ParamSpec("P")
T = TypeVar("T")

_log = logging.getLogger("workers_ai")
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
    """

    settings: Settings
    limiter: Limiter
    policy: RetryPolicy
    on_retry: Callable[[RetryEvent], None] | None = None
    clock: Callable[[], float] = field(default=time.monotonic, repr=False)
    overrides: Overrides | None = None

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
        ticket = Ticket(
            model=f"queue of {request.model}" if request.task == "queue" else request.model,
            task=request.task,
            patient=on_busy != "raise" and self.policy.max_retries > 0,
            gentle=on_busy == "retry",
            requests_per_minute=self.settings.requests_per_minute,
        )
        began = self.clock()
        attempt = 0
        try:
            while True:
                while wait := self.limiter.wait_s(ticket):
                    yield from self._sleep(wait, "limiter", ticket)
                attempt += 1
                outcome = yield from self._try(request, stream, ticket)
                if begin and isinstance(outcome, Reply) and outcome.stream is not None:
                    outcome = (yield from begin(outcome)) or outcome
                if isinstance(outcome, Reply):
                    if outcome.stream is None:
                        self.limiter.done(ticket)
                    return outcome
                outcome.attempts = attempt
                held = on_busy == "raise" and isinstance(outcome, CapacityError)
                pause = self._pause(outcome, attempt, began, ticket, give_up=held or not repeatable(outcome))
                if pause is None:
                    raise outcome
                yield from self._sleep(pause, str(outcome), ticket)
        except BaseException:
            self.limiter.leave(ticket)
            raise

    def _sleep(self, seconds: float, reason: str, ticket: Ticket) -> Flow[None]:
        """Sleep. Where sleeping is patched away, the seconds count for the ticket all the same: else it would spin."""
        before = self.clock()
        yield Sleep(seconds, reason)
        ticket.ahead += max(0.0, seconds - (self.clock() - before))

    def _try(self, request: Request, stream: bool, ticket: Ticket) -> Flow[Reply | WorkersAIError]:
        try:
            response: httpx.Response = yield Send(request, stream)
        except Exception as exc:  # noqa: BLE001 - whatever the transport throws in means that no reply came
            return connection_error(exc, request.model, self.settings)
        if stream and is_event_stream(response):
            return Reply(None, kept_headers(response.headers.raw), response, ticket)
        if stream and response.is_success and _EVENTS.match(response.content):
            return Reply(response.content, kept_headers(response.headers.raw))
        return read_reply(response, request.model, self.settings)

    def _pause(
        self, error: WorkersAIError, attempt: int, began: float, ticket: Ticket, *, give_up: bool
    ) -> float | None:
        """Seconds to wait before the next try; None to give up. Tells limiter, log and callback."""
        pause = None if give_up else self.policy.wait_s(attempt, error, self.clock() - began)
        # A call that gives up holds nobody else: whoever may wait, finds out itself.
        if isinstance(error, CapacityError):
            self.limiter.busy(ticket, pause or 0.0, told=pause is not None and error.retry_after is not None)
        elif isinstance(error, RateLimitError) and pause is not None:
            self.limiter.limited(ticket, pause)
        else:
            self.limiter.done(ticket)
        if pause is not None:
            _log.info("trying again in %.2f s (attempt %d failed): %s", pause, attempt, error)
            if self.on_retry:
                self.on_retry(RetryEvent(error, attempt, pause))
        return pause

    def chat(self, plan: ChatPlan) -> Flow[ChatReply]:
        """Ask for one whole answer."""
        reply = yield from self.exchange(plan.request)
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


def read_reply(response: httpx.Response, model: str, settings: Settings) -> Reply | WorkersAIError:
    """Parse a reply that has been read; an error reply, and a success that is none, become the typed error."""
    body: JSON = None
    unreadable = False
    try:
        body = parsed(response)
    except ValueError:
        unreadable = True
    failed = isinstance(body, dict) and (
        body.get("success") is False or (not body.get("result") and bool(read_refusal(body)))
    )
    if response.is_success and not failed and not unreadable:
        untie(response)
        return Reply(body, kept_headers(response.headers.raw))
    if response.is_success and unreadable:
        what = "an empty body" if not response.content.strip() else "a body that is not JSON"
        shown = settings.scrub(response.text[:2000])
        return APIResponseValidationError(
            f"HTTP {response.status_code} with {what}", model=model, body=shown, status_code=response.status_code,
            request_id=response.headers.get("cf-ray"),
        )  # fmt: skip
    return error_from_reply(
        response.status_code,
        response.headers,
        response.text,
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
        error: APIConnectionError = APITimeoutError(f"{host} did not answer in time while {during}", model=model)
    elif isinstance(exc, httpx.RequestError):
        detail = settings.scrub(str(exc)) or type(exc).__name__
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
        checked.append(_without_lone_surrogates(text) or " ")
    return checked


def _without_lone_surrogates(text: str) -> str:
    """Return the text as a request carries it: UTF-8 has no lone surrogates."""
    try:
        text.encode()
    except UnicodeEncodeError:
        text = mended(text)
    return text


def _refused_text(index: int, why: str, model: str) -> BadRequestError:
    error = BadRequestError(f"text {index} {why}", model=model)
    error.index = index
    return error
