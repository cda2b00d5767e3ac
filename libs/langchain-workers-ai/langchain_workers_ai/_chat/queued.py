"""Answers of ``batch`` and ``abatch`` from the asynchronous queue.

The queue first generates all answers into a ledger. Then LangChain invokes the model for each input as usual, and
``_generate`` returns the stored answer. Callbacks, cache, ids and usage therefore work as in direct calls.
"""

from __future__ import annotations

import asyncio
import tempfile
import warnings
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, Generic, TypeVar

from workers_ai.errors import BatchItemError, ConfigurationError, WorkersAIError
from workers_ai.integration import CHAT_PARAMS, PER_CALL, plain_json

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from langchain_core.language_models import BaseChatModel
    from langchain_core.rate_limiters import BaseRateLimiter

    from langchain_workers_ai._types import Fields
    from workers_ai import ChatKeywords
    from workers_ai.client import AsyncClient, Client
    from workers_ai.generation import ChatInput, Failure, GenerateOptions
    from workers_ai.types import ChatReply

__all__ = [
    "QueueRun",
    "QueuedAnswers",
    "anything_queued",
    "limited",
    "queue_params",
    "queued_answers",
    "request_key",
]

ClientT = TypeVar("ClientT", "Client", "AsyncClient")
Model_co = TypeVar("Model_co", bound="BaseChatModel", covariant=True)

_WARN_ABOVE: Final = 100
"""Maximum number of inputs of a batch without a ledger that does not warn."""
_PARAMS: Final = CHAT_PARAMS - {"stream_options"}
_SETTINGS: Final = PER_CALL - {"extra_body"}


class QueuedAnswers(Generic[Model_co]):
    """The answers of one batch, by request.

    Args:
        owner: The model of the batch. Calls of other models do not use these answers.
    """

    def __init__(self, owner: Model_co) -> None:
        self.owner = owner
        self.stopped: WorkersAIError | None = None
        self._outcomes: dict[str, ChatReply | Failure | None] = {}
        self._indices: Mapping[str, int] = {}

    def add(self, indices: Mapping[str, int], outcomes: Sequence[ChatReply | Failure | None]) -> None:
        """Record the outcomes of all requests.

        Args:
            indices: Index of the first input of each request, by key.
            outcomes: The reply or the failure of each request, in the same order; None for an unanswered request.
        """
        self._indices = indices
        self._outcomes.update(zip(indices, outcomes, strict=True))

    def reply(self, messages: list[Fields], options: ChatKeywords, model: str) -> ChatReply:
        """Return the reply to a request.

        Raises:
            BatchItemError: The request failed.
            WorkersAIError: The run stopped before the request was answered.
        """
        from workers_ai.generation import Failure

        key = request_key(messages, options)
        outcome = self._outcomes.get(key)
        index = self._indices.get(key, 0)
        if outcome is None:
            message = "the queue has no answer to this input: call batch again"
            raise self.stopped or BatchItemError(message, index=index, model=model)
        if isinstance(outcome, Failure):
            raise BatchItemError(outcome.message, index=index, code=outcome.code, model=model)
        return outcome

    @contextmanager
    def active(self) -> Iterator[None]:
        """Use these answers for calls of the owner while the context is open."""
        token = _current.set(self)
        try:
            yield
        finally:
            _current.reset(token)


_current: ContextVar[QueuedAnswers[BaseChatModel] | None] = ContextVar("workers_ai_queued_answers", default=None)


def queued_answers(owner: object) -> QueuedAnswers[BaseChatModel] | None:
    """Return the answers of the current batch of a model; None for direct calls."""
    answers = _current.get()
    return answers if answers is not None and answers.owner is owner else None


def anything_queued(owner: object) -> bool:
    """Return whether a batch of this model is in progress in this context."""
    return queued_answers(owner) is not None


def request_key(messages: list[Fields], options: ChatKeywords) -> str:
    """Return the key of a request within one batch."""
    return plain_json([messages, queue_params(options)])


def limited(client: ClientT, limiter: BaseRateLimiter | None, options: ChatKeywords | None = None) -> ClientT:
    """Return a client for the requests of one batch.

    Args:
        client: The client of the model.
        limiter: LangChain's rate limiter, acquired before each request; None for no limiter.
        options: Options of the call. Settings such as ``timeout`` replace those of the client.
    """
    connection = client._connection
    given = {name: value for name, value in (options or {}).items() if name in _SETTINGS and value is not None}
    if given:
        connection = connection.for_call(given)
    if limiter is not None:
        connection = connection.paced(limiter.acquire, limiter.aacquire)
    return client if connection is client._connection else type(client)._of(connection)


def queue_params(options: ChatKeywords) -> dict[str, object]:
    """Return the options that are parameters of a request in the queue."""
    return {name: value for name, value in sorted(options.items()) if name in _PARAMS}


@dataclass(frozen=True)
class QueueRun(Generic[Model_co]):
    """The requests of one batch, and the settings of their generation.

    Attributes:
        owner: The model of the batch.
        model: Model id.
        requests: Distinct requests by key, each with the index of its first input.
        options: Options of the call, with settings that replace those of the client.
        ledger: Path of the ledger; None for a temporary ledger.
        deadline_s: Maximum seconds of the batch; None for no limit.
    """

    owner: Model_co
    model: str
    requests: dict[str, tuple[int, ChatInput]]
    options: ChatKeywords
    ledger: str | None
    deadline_s: float | None

    def run(self, client: Client) -> QueuedAnswers[Model_co]:
        """Generate the answers and return them."""
        from workers_ai.generation import generate

        answers = QueuedAnswers(self.owner)
        with self._ledger() as ledger:
            try:
                if self.requests:
                    generate(self._source(), ledger=ledger, model=self.model, client=client, **self._options)
            except WorkersAIError as exc:
                self._record_error(answers, exc, ledger)
            self._read(answers, ledger)
        return answers

    async def arun(self, client: AsyncClient) -> QueuedAnswers[Model_co]:
        """Generate the answers without blocking the event loop and return them."""
        from workers_ai.generation import agenerate

        answers = QueuedAnswers(self.owner)
        with self._ledger() as ledger:
            try:
                if self.requests:
                    await agenerate(self._source(), ledger=ledger, model=self.model, client=client, **self._options)
            except WorkersAIError as exc:
                self._record_error(answers, exc, ledger)
            await asyncio.to_thread(self._read, answers, ledger)
        return answers

    @contextmanager
    def _ledger(self) -> Iterator[Path]:
        if self.ledger is not None:
            yield Path(self.ledger)
            return
        if len(self.requests) > _WARN_ABOVE:
            warnings.warn(
                f"batch() of {len(self.requests):,} inputs has no ledger: if it is interrupted, the next call pays for "
                "all answers again; pass ledger= to ChatWorkersAI",
                stacklevel=6,
            )
        with tempfile.TemporaryDirectory(prefix="workers-ai-") as folder:
            yield Path(folder) / "batch.ledger"

    def _source(self) -> list[tuple[str, ChatInput]]:
        return [(str(index), request) for index, request in self.requests.values()]

    @property
    def _options(self) -> GenerateOptions:
        return {"deadline_s": self.deadline_s, "progress": False}

    def _record_error(self, answers: QueuedAnswers[Model_co], error: WorkersAIError, ledger: Path) -> None:
        """Record an error that stopped the run. Raise it if no input can have an answer."""
        from workers_ai.generation import LedgerError

        if isinstance(error, (ConfigurationError, LedgerError)) or not ledger.exists():
            raise error
        answers.stopped = error

    def _read(self, answers: QueuedAnswers[Model_co], ledger: Path) -> None:
        from workers_ai.generation import Answers

        if self.requests:
            with Answers(ledger) as stored:
                indices = {key: index for key, (index, _) in self.requests.items()}
                requests = [request for _, request in self.requests.values()]
                replies = stored.find(requests)
                unanswered = [request for request, reply in zip(requests, replies, strict=True) if reply is None]
                failures = iter(stored.errors(unanswered))
                answers.add(indices, [next(failures) if reply is None else reply for reply in replies])
