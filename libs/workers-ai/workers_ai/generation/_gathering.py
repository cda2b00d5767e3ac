"""A client that gathers single chats into submissions of the asynchronous queue."""

from __future__ import annotations

import asyncio
import math
import warnings
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Unpack
from weakref import WeakKeyDictionary

from workers_ai._validation import require, require_kind
from workers_ai.client import AsyncClient
from workers_ai.errors import BatchItemError, ConfigurationError
from workers_ai.generation._api import agenerate
from workers_ai.generation._inputs import ChatInput
from workers_ai.generation._options import Options
from workers_ai.generation._report import Answers, chat_reply
from workers_ai.integration import CHAT_PARAMS, PER_CALL, unknown_keyword

if TYPE_CHECKING:
    import os
    from collections.abc import Sequence

    from workers_ai._wire.params import ChatKeywords
    from workers_ai.generation._report import Answer
    from workers_ai.ledger._records import Failure
    from workers_ai.types import JSON, ChatReply

__all__ = ["QueuedClient"]

_SMALL: Final = 10
"""A submission with fewer requests is small. After as many small submissions in a row, a warning is logged."""

_BURST_S: Final = 0.25
"""Seconds for which a full submission waits for more requests, so that one run submits them all."""


_WITHOUT_EFFECT: Final = frozenset({"api", "session_id", "stream_options"})
"""Keywords of a chat that do not change its answer in the queue, which has one route and no streams."""

_OF_ONE_REQUEST: Final = PER_CALL - {"extra_body", "session_id"}


@dataclass
class _Waiting:
    """A request that waits for its answer."""

    chat: ChatInput
    reply: asyncio.Future[ChatReply]

    def resolve(self, reply: ChatReply) -> None:
        """Set the answer, unless the caller was cancelled."""
        if not self.reply.done():
            self.reply.set_result(reply)


class QueuedClient(AsyncClient):
    """An async client that puts single chats into common submissions of the asynchronous queue.

    Create it with :meth:`workers_ai.AsyncClient.queued`. All waiting requests are submitted ``window_s`` after the
    first one, or a quarter of a second after there are ``max_items``. A submission has at most ``max_items`` requests.
    Answers are stored in the ledger, and an equal request gets the stored answer, also in a later process. If the
    process is killed, the next one collects the submitted requests. Requests of each event loop are gathered
    separately. ``stream_chat``, ``embed`` and ``rerank`` send direct requests.

    Use it as an async context manager, or call :meth:`aclose`, to submit and await the waiting requests. Works with
    asyncio only.

    Args:
        client: The client to send with. It is not closed.
        model: Model id. All chats must use it.
        ledger: Path of the ledger, on a local disk. It is created if missing.
        window_s: Maximum seconds from the first waiting request to the submission.
        max_items: Maximum requests per submission.
        deadline_s: Maximum seconds from the submission of waiting requests to their answers; None for no limit.

    Raises:
        ConfigurationError: An argument is invalid, or the model has no queue.
    """

    def __init__(
        self,
        client: AsyncClient,
        model: str,
        *,
        ledger: str | os.PathLike[str],
        window_s: float = 2.0,
        max_items: int = 200,
        deadline_s: float | None = None,
    ) -> None:
        is_number = isinstance(window_s, (int, float)) and 0 <= window_s < math.inf
        require(is_number, f"window_s must be a number of seconds, 0 or more, not {window_s!r}")
        require(type(max_items) is int and max_items >= 1, f"max_items must be at least 1, not {max_items!r}")
        options = Options(ledger, model, requests_per_job=max_items, deadline_s=deadline_s)
        self._task = options.task(None)
        vars(self).update(vars(client))  # share the connection
        self._client = client
        self._model = model
        self._ledger = ledger
        self._window_s = window_s
        self._max_items = max_items
        self._deadline_s = deadline_s
        self._small = 0
        self._reset()

    def _reset(self) -> None:
        self._waiting: WeakKeyDictionary[asyncio.AbstractEventLoop, list[_Waiting]] = WeakKeyDictionary()
        self._timers: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.TimerHandle] = WeakKeyDictionary()
        self._tasks: set[asyncio.Task[None]] = set()

    def __getstate__(self) -> dict[str, Any]:
        local = {"_waiting", "_timers", "_tasks"}
        return {name: value for name, value in vars(self).items() if name not in local}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._reset()

    async def chat(
        self, model: str, messages: Sequence[Mapping[str, JSON]], **options: Unpack[ChatKeywords]
    ) -> ChatReply:
        """Return the answer to a conversation, through the queue.

        Args:
            model: The model of this client.
            messages: OpenAI-shaped messages.
            **options: Parameters, and ``extra_body``, as for :meth:`workers_ai.AsyncClient.chat`. ``api``,
                ``session_id`` and ``stream_options`` have no effect in the queue.

        Raises:
            BatchItemError: This request failed.
            ConfigurationError: ``model`` is not that of the client, a keyword is unknown, or a keyword is a setting of
                a single HTTP request, such as ``timeout``, ``gateway`` and ``extra_headers``.
            WorkersAIError: An error that stopped the submission.
        """
        chat = self._input(model, messages, options)
        loop = asyncio.get_running_loop()
        added = _Waiting(chat, loop.create_future())
        waiting = self._waiting.setdefault(loop, [])
        waiting.append(added)
        if len(waiting) == 1:
            self._timers[loop] = loop.call_later(self._window_s, self._submit, loop)
        if len(waiting) == self._max_items and self._timers[loop].when() > loop.time() + _BURST_S:
            self._timers[loop].cancel()
            self._timers[loop] = loop.call_later(_BURST_S, self._submit, loop)
        return await added.reply

    def _input(self, model: str, messages: Sequence[Mapping[str, JSON]], options: Mapping[str, object]) -> ChatInput:
        if model != self._model:
            raise ConfigurationError(
                f"this client queues requests to {self._model}, not to {model}: create another client"
            )
        given = {name: value for name, value in options.items() if value is not None or name == "reasoning_effort"}
        if shared := sorted(_OF_ONE_REQUEST & given.keys()):
            raise ConfigurationError(
                f"{shared[0]} cannot be set for a queued chat, because chats share a submission: set it on the client"
            )
        extra_body: Any = given.pop("extra_body", None) or {}
        require_kind("extra_body", extra_body, Mapping, "a dict of fields of the body")
        params = {name: value for name, value in given.items() if name not in _WITHOUT_EFFECT}
        if unknown := sorted(params.keys() - CHAT_PARAMS):
            raise unknown_keyword("a queued chat", unknown[0], CHAT_PARAMS, "extra_body")
        chat = ChatInput(messages, params, extra_body)
        self._task.check(chat)
        return chat

    def _submit(self, loop: asyncio.AbstractEventLoop) -> None:
        """Submit the waiting requests of an event loop in the background."""
        if timer := self._timers.pop(loop, None):
            timer.cancel()
        if group := [item for item in self._waiting.pop(loop, []) if not item.reply.cancelled()]:
            self._warn_if_small(len(group))
            task = loop.create_task(self._answer(group))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    def _warn_if_small(self, size: int) -> None:
        self._small = self._small + 1 if size < _SMALL else 0
        if self._small == _SMALL:
            warnings.warn(
                f"the last {_SMALL} submissions had fewer than {_SMALL} requests each: let more calls wait at the same "
                "time (num_workers of a LlamaIndex extractor, max_concurrency of abatch), or use direct requests",
                stacklevel=2,
            )

    async def _answer(self, group: Sequence[_Waiting]) -> None:
        """Generate the answers of a group. Set each as result when it is stored."""
        chats = [item.chat for item in group]
        loop = asyncio.get_running_loop()

        def stored(answer: Answer) -> None:  # called on a thread of the run
            with suppress(RuntimeError):  # the loop is closed
                loop.call_soon_threadsafe(group[int(answer.id)].resolve, chat_reply(answer, self._model))

        try:
            await agenerate(
                list(enumerate(chats)),
                ledger=self._ledger,
                model=self._model,
                requests_per_job=self._max_items,
                deadline_s=self._deadline_s,
                on_answer=stored,
                progress=False,
                client=self._client,
            )
            replies, failures = await asyncio.to_thread(self._read, chats)
        except Exception as exc:  # noqa: BLE001 - raised by each waiting call
            for item in group:
                if not item.reply.done():
                    item.reply.set_exception(exc)
            return
        finally:
            if (task := asyncio.current_task()) and task.cancelling():
                for item in group:
                    item.reply.cancel()
        for item, reply, failure in zip(group, replies, failures, strict=True):
            if reply is not None:
                item.resolve(reply)
            elif not item.reply.done():
                item.reply.set_exception(self._error(failure))

    def _read(self, chats: Sequence[ChatInput]) -> tuple[list[ChatReply | None], list[Failure | None]]:
        with Answers(self._ledger) as answers:
            return answers.find(chats), answers.errors(chats)

    def _error(self, failure: Failure | None) -> BatchItemError:
        why, code = (failure.message, failure.code) if failure else ("the queue returned no answer", None)
        return BatchItemError(f"a queued chat failed: {why}", index=0, code=code, model=self._model)

    async def aclose(self) -> None:
        """Submit the waiting requests of this event loop, and wait for the answers. Connections stay open."""
        loop = asyncio.get_running_loop()
        self._submit(loop)
        if own := [task for task in self._tasks if task.get_loop() is loop]:
            await asyncio.wait(own)
