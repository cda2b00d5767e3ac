"""Generation in Daft: the backends of ``daft.functions.prompt`` and ``daft.functions.classify_text``."""

# pyright: reportMissingImports=false

from __future__ import annotations

import asyncio
import logging
import shutil
import tempfile
import weakref
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from daft import DataType
from daft.ai.protocols import PrompterDescriptor, TextClassifierDescriptor
from daft.ai.typing import UDFOptions

from workers_ai._connection import Connection
from workers_ai._settings.settings import MAX_CONCURRENCY
from workers_ai._validation import require, require_one_of, unknown_keyword
from workers_ai.client import AsyncClient, Client
from workers_ai.errors import (
    AuthenticationError,
    BadRequestError,
    ConfigurationError,
    PermissionDeniedError,
    QuotaExhaustedError,
    WorkersAIError,
)
from workers_ai.generation._api import generate
from workers_ai.generation._options import Options, SamplingOptions
from workers_ai.generation._output import OutputFormat

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from workers_ai._settings.settings import Settings
    from workers_ai.ledger._engine import Mode
    from workers_ai.retry import RetryPolicy

__all__ = ["ClassifierDescriptor", "GenerationOptions", "MessageDescriptor", "close_client"]

_PARAMS: Final = frozenset(SamplingOptions.__annotations__)
_QUEUE: Final = frozenset({"queue", "ledger"})
_ALL_ROWS: Final = (AuthenticationError, PermissionDeniedError, QuotaExhaustedError, ConfigurationError)
"""Errors that every other row would raise, too."""

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class GenerationOptions:
    """Options of ``prompt`` and ``classify_text``.

    Attributes:
        params: Parameters of the chat calls.
        queue: Whether rows go through the asynchronous queue.
        ledger: Path of the ledger, or None.
        on_error: ``"raise"`` ends the query at a failed row; otherwise the row is null.
    """

    params: dict[str, Any] = field(default_factory=dict)
    queue: bool = False
    ledger: str | Path | None = None
    on_error: str = "log"

    @classmethod
    def read(cls, owner: str, given: Mapping[str, Any]) -> GenerationOptions:
        """Return checked options.

        Raises:
            ConfigurationError: An option is unknown or invalid.
        """
        known = {*_PARAMS, *_QUEUE, "on_error"}
        if unknown := sorted(given.keys() - known):
            raise unknown_keyword(owner, unknown[0], known)
        options = cls({name: given[name] for name in _PARAMS & given.keys()}, given.get("queue", False),
                      given.get("ledger"), given.get("on_error", "log"))  # fmt: skip
        require_one_of("on_error", options.on_error, ("raise", "log", "ignore"))
        require_one_of("queue", options.queue, (True, False))
        return options

    def failed(self, error: WorkersAIError) -> None:
        """Log the error of a failed row.

        Raises:
            WorkersAIError: The query must end: ``on_error`` is ``"raise"``, or all rows would fail.
        """
        if self.on_error == "raise" or isinstance(error, _ALL_ROWS):
            raise error
        if self.on_error == "log":
            logger.warning("a row failed and is null: %s", error)


@dataclass
class _Descriptor:
    """Base of both descriptors. Daft pickles them for its workers."""

    provider_name: str
    settings: Settings
    retry: RetryPolicy | None
    model: str
    options: GenerationOptions

    def get_provider(self) -> str:
        return self.provider_name

    def get_model(self) -> str:
        return self.model

    def get_options(self) -> dict[str, object]:
        return {**self.options.params, "queue": self.options.queue}

    def get_udf_options(self) -> UDFOptions:
        # Daft retries a whole batch after one failed row, so all retries happen inside the row.
        return UDFOptions(max_retries=0, on_error="raise")


@dataclass
class MessageDescriptor(_Descriptor, PrompterDescriptor):
    """The backend of ``daft.functions.prompt``."""

    return_format: object = None
    system_message: str | None = None

    def __post_init__(self) -> None:
        require(not self.options.queue or self.options.ledger is not None, "queue=True requires ledger=, a local path")
        mode: Mode = "queue" if self.options.queue else "direct"
        Options("", self.model, schema=self.return_format, mode=mode, **self.options.params)  # check the arguments

    def instantiate(self) -> _Prompter:
        return _Prompter(self)


class _Prompter:
    """Answer one row per call. Daft awaits all rows of a partition at the same time."""

    def __init__(self, descriptor: MessageDescriptor) -> None:
        self._options = descriptor.options
        self._model = descriptor.model
        self._system = descriptor.system_message
        self._output = OutputFormat(descriptor.return_format)
        self._as_text = _is_text_column(descriptor.return_format)
        self._client = self._connected = AsyncClient._of(Connection.open(descriptor.settings, retry=descriptor.retry))
        self._closes = False
        self._limit = descriptor.settings.max_concurrency or MAX_CONCURRENCY
        self._slots: asyncio.Semaphore | None = None
        if descriptor.options.queue:
            assert descriptor.options.ledger is not None
            self._client = self._client.queued(descriptor.model, ledger=descriptor.options.ledger)
            self._limit = 0

    async def prompt(self, messages: tuple[object, ...]) -> object:
        """Return the answer of one row; None for a null and for a failed row."""
        if any(message is None for message in messages):
            return None
        if not self._closes:
            weakref.finalize(self, close_client, self._connected, asyncio.get_running_loop())
            self._closes = True
        try:
            text = await self._send_in_slot(messages)
            return self._parsed(text)
        except WorkersAIError as exc:
            self._options.failed(exc)
            return None

    async def _send_in_slot(self, messages: tuple[object, ...]) -> str:
        if self._limit and self._slots is None:
            self._slots = asyncio.Semaphore(self._limit)
        if self._slots is None:
            return await self._send(messages)
        async with self._slots:
            return await self._send(messages)

    async def _send(self, messages: tuple[object, ...]) -> str:
        texts = [message for message in messages if isinstance(message, str)]
        if len(texts) < len(messages):
            odd = next(type(message).__name__ for message in messages if not isinstance(message, str))
            raise ConfigurationError(
                f"prompt accepts columns of text, not {odd}: cast the column to a string; send "
                "images as data URLs with workers_ai.generation"
            )
        chat = [{"role": "system", "content": self._system}] if self._system else []
        chat += [{"role": "user", "content": "\n".join(texts)}]
        params = dict(self._options.params)
        if not self._output.is_text:
            params["response_format"] = self._output.response_format
        reply = await self._client.chat(self._model, chat, **params)
        return reply.text

    def _parsed(self, text: str) -> object:
        if self._output.is_text:
            return text
        try:
            data = self._output.parse(text)
        except ValueError as exc:
            raise BadRequestError(f"the answer does not match return_format: {exc!s:.300}", model=self._model) from exc
        return data.model_dump_json() if self._as_text else data


def close_client(client: AsyncClient, loop: asyncio.AbstractEventLoop) -> None:
    """Close the connections of a deleted backend. Daft never closes one, and its event loop keeps running."""
    if loop.is_running():
        asyncio.run_coroutine_threadsafe(client.aclose(), loop)


def _is_text_column(return_format: object) -> bool:
    """Return whether Daft creates a String column for a class. Daft crashes if such a column receives an object."""
    try:
        return bool(DataType.infer_from_type(return_format) == DataType.string())
    except Exception:  # noqa: BLE001 - Daft itself falls back to a String column on any error
        return True


@dataclass
class ClassifierDescriptor(_Descriptor, TextClassifierDescriptor):
    """The backend of ``daft.functions.classify_text``."""

    def instantiate(self) -> _Classifier:
        return _Classifier(self)


class _Classifier:
    """Label one batch per call."""

    def __init__(self, descriptor: ClassifierDescriptor) -> None:
        self._options = descriptor.options
        ledger = descriptor.options.ledger
        if ledger is None:
            folder = tempfile.mkdtemp(prefix="workers-ai-")
            weakref.finalize(self, shutil.rmtree, folder, ignore_errors=True)
            ledger = Path(folder) / "ledger"
        self._arguments: dict[str, Any] = {
            "ledger": ledger,
            "model": descriptor.model,
            "mode": "queue" if descriptor.options.queue else "direct",
            "progress": False,
            **descriptor.options.params,
        }
        self._client = Client._of(Connection.open(descriptor.settings, retry=descriptor.retry))

    def classify_text(self, text: Sequence[str | None], labels: str | Sequence[str]) -> list[object]:
        """Return the label of each text; None for a null and for a failed row."""
        arguments = {**self._arguments, "labels": [labels] if isinstance(labels, str) else list(labels)}
        Options(**arguments)
        found: list[object] = [None] * len(text)
        inputs = [(index, given) for index, given in enumerate(text) if given is not None]
        if inputs:
            report = generate(inputs, client=self._client, **arguments)
            for answer in report.answers():
                if answer.error is None:
                    found[int(answer.id)] = answer.data
                else:
                    self._options.failed(BadRequestError(answer.error.message, model=report.model))
        return found
