"""The clients: each method checks its arguments, runs a flow, and returns the result."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any, ClassVar, Unpack, cast

from workers_ai._calls.chat import PLANNED, chat, plan_call
from workers_ai._connection import Connection
from workers_ai._flow.drivers import adrive, adrive_stream, drive, drive_stream
from workers_ai._settings.keywords import ClientKeywords
from workers_ai._settings.secrets import mask_secrets
from workers_ai._settings.settings import CLIENT_KEYWORDS, Settings, known_keywords, setting_parameters
from workers_ai._validation import require

if TYPE_CHECKING:
    import os
    from collections.abc import AsyncGenerator, Callable, Generator, Mapping, Sequence
    from typing import Self

    import httpx

    from workers_ai._limits.limiter import Limiter
    from workers_ai._settings.keywords import CallKeywords
    from workers_ai._wire.params import ChatKeywords, EmbedKeywords, ModelFilters
    from workers_ai.batch import AsyncBatch, Batch
    from workers_ai.generation._gathering import QueuedClient
    from workers_ai.retry import RetryEvent, RetryPolicy
    from workers_ai.types import JSON, ChatDelta, ChatReply, EmbedReply, RerankScore

__all__ = ["AsyncClient", "Client", "ClientArguments"]


class ClientArguments(ClientKeywords, total=False):
    """All arguments of a client: its settings, and objects of this process."""

    http_client: httpx.Client | None
    """Your own client for sync calls."""
    http_async_client: httpx.AsyncClient | None
    """Your own client for async calls."""
    async_http_client: httpx.AsyncClient | None
    """Alias of ``http_async_client``."""
    binding: object
    """The ``env.AI`` of a Python Worker."""
    retry: RetryPolicy | None
    """The retry policy."""
    on_retry: Callable[[RetryEvent], None] | None
    """Called before each wait."""
    limiter: Limiter | None
    """The limiter of requests."""


class _BaseClient:
    """The constructor and the settings of both clients."""

    __signature__: ClassVar[inspect.Signature]
    _connection: Connection

    def __init__(
        self,
        *,
        http_client: httpx.Client | None = None,
        http_async_client: httpx.AsyncClient | None = None,
        async_http_client: httpx.AsyncClient | None = None,
        binding: Any = None,
        retry: RetryPolicy | None = None,
        on_retry: Callable[[RetryEvent], None] | None = None,
        limiter: Limiter | None = None,
        **settings: Unpack[ClientKeywords],
    ) -> None:
        mask_secrets(cast("dict[str, Any]", settings), CLIENT_KEYWORDS)
        if async_http_client is not None:
            require(
                http_async_client is None, "http_async_client is given twice, once as async_http_client: pass it once"
            )
            http_async_client = async_http_client
        self._connection = Connection.open(
            Settings.resolve(**known_keywords(type(self).__name__, settings), binding=binding is not None),
            http_client=http_client,
            http_async_client=http_async_client,
            binding=binding,
            retry=retry,
            on_retry=on_retry,
            limiter=limiter,
        )

    @classmethod
    def _of(cls, connection: Connection) -> Self:
        """Return a client that uses a connection. Several clients may share it."""
        client = cls.__new__(cls)
        client._connection = connection
        return client

    def __init_subclass__(cls) -> None:
        own = [
            value
            for value in inspect.signature(_BaseClient.__init__).parameters.values()
            if value.kind is value.KEYWORD_ONLY
        ]
        cls.__signature__ = inspect.Signature([*own, *setting_parameters()])

    @property
    def settings(self) -> Settings:
        """The checked settings."""
        return self._connection.settings

    def __repr__(self) -> str:
        if "_connection" not in vars(self):  # a traceback may contain this repr if a setting is invalid
            return f"{type(self).__name__}()"
        settings = self.settings
        return f"{type(self).__name__}(account_id={settings.account_id!r}, base_url={settings.base_url!r})"


class Client(_BaseClient):
    """The blocking client of Workers AI. Pickles and copies have no open connections.

    Args:
        http_client: Your own ``httpx.Client``. URL and credentials are those of the settings; it is never closed.
        http_async_client: Ignored by this client, which makes sync calls only.
        async_http_client: Alias of ``http_async_client``.
        binding: The ``env.AI`` of a Python Worker, in place of HTTP; only :class:`AsyncClient` can use it.
        retry: The retry policy; the default follows ``max_retries``.
        on_retry: Called before each wait with a :class:`~workers_ai.RetryEvent`.
        limiter: The limiter of concurrent requests; the default is shared by all objects of the account.
        **settings: See :class:`~workers_ai.ClientKeywords`.

    Raises:
        ConfigurationError: A setting is missing or malformed.
    """

    @property
    def batch(self) -> Batch:
        """The asynchronous queue: submit, poll, collect, run."""
        from workers_ai.batch import Batch

        return Batch(self._connection.queue, self._connection.transport)

    def chat(self, model: str, messages: Sequence[Mapping[str, JSON]], **options: Unpack[ChatKeywords]) -> ChatReply:
        """Send messages and return the whole answer.

        Args:
            model: Model id.
            messages: OpenAI-shaped messages.
            **options: Parameters, ``api``, and settings of this call; see :class:`~workers_ai.ChatKeywords`.

        Raises:
            WorkersAIError: See :mod:`workers_ai.errors`.
        """
        calls, options = self._connection.calls.for_call(options, keep=PLANNED)
        plan = plan_call(calls.settings, model, messages, options, stream=False)
        return drive(chat(calls, plan), self._connection.transport)

    def stream_chat(
        self, model: str, messages: Sequence[Mapping[str, JSON]], **options: Unpack[ChatKeywords]
    ) -> Generator[ChatDelta, None, None]:
        """Yield the answer in deltas. The last one has the finish reason and the usage. Arguments as for :meth:`chat`.

        Raises:
            StreamInterruptedError: The stream ended early; ``partial`` is the text received so far.
            WorkersAIError: See :mod:`workers_ai.errors`.
        """
        from workers_ai._calls.streaming import open_chat

        calls, options = self._connection.calls.for_call(options, keep=PLANNED)
        plan = plan_call(calls.settings, model, messages, options, stream=True)
        return drive_stream(open_chat(calls, plan), self._connection.transport)

    def embed(self, model: str, texts: Sequence[str], **options: Unpack[EmbedKeywords]) -> EmbedReply:
        """Embed texts, in concurrent requests of the model's maximum size. Vectors are in the order of the texts.

        Args:
            model: Model id.
            texts: Any number of strings.
            **options: Options, and settings of this call; see :class:`~workers_ai.EmbedKeywords`.

        Raises:
            BadRequestError: A text is empty or not a string; ``index`` is set, and nothing was sent.
            WorkersAIError: See :mod:`workers_ai.errors`.
        """
        from workers_ai._calls.embeddings import embed_flows, join_embeddings
        from workers_ai._flow.concurrency import gather

        calls, options = self._connection.calls.for_call(options)
        flows = embed_flows(calls, model, texts, **options)
        return join_embeddings(model, gather(flows, self._connection.transport, calls.concurrency))

    def rerank(
        self, model: str, query: str, texts: Sequence[str], *, top_n: int | None = None, **options: Unpack[CallKeywords]
    ) -> list[RerankScore]:
        """Score texts against a query, best first.

        Args:
            model: Model id.
            query: The query.
            texts: Any number of strings.
            top_n: Maximum number of scores; None for all.
            **options: Settings of this call, as for :meth:`chat`.

        Raises:
            WorkersAIError: See :mod:`workers_ai.errors`.
        """
        from workers_ai._calls.rerank import join_rankings, rerank_flows
        from workers_ai._flow.concurrency import gather

        calls, options = self._connection.calls.for_call(options)
        flows = rerank_flows(calls, model, query, texts, top_n, options)
        return join_rankings(gather(flows, self._connection.transport, calls.concurrency), top_n)

    def models(self, **filters: Unpack[ModelFilters]) -> list[dict[str, JSON]]:
        """List the models of the account (https://developers.cloudflare.com/api/resources/ai/subresources/models/).

        Args:
            **filters: See :class:`~workers_ai.ModelFilters`.

        Raises:
            ConfigurationError: A filter is unknown.
            WorkersAIError: See :mod:`workers_ai.errors`.
        """
        from workers_ai._calls.models import list_models

        return drive(list_models(self._connection.calls, filters), self._connection.transport)

    def close(self) -> None:
        """Close the connections that this client opened."""
        self._connection.transport.close()

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


class AsyncClient(_BaseClient):
    """The async client of Workers AI: the methods and arguments of :class:`Client`, to be awaited."""

    @property
    def batch(self) -> AsyncBatch:
        """The asynchronous queue: submit, poll, collect, run."""
        from workers_ai.batch import AsyncBatch

        return AsyncBatch(self._connection.queue, self._connection.transport)

    async def chat(
        self, model: str, messages: Sequence[Mapping[str, JSON]], **options: Unpack[ChatKeywords]
    ) -> ChatReply:
        """See :meth:`Client.chat`."""
        calls, options = self._connection.calls.for_call(options, keep=PLANNED)
        plan = plan_call(calls.settings, model, messages, options, stream=False)
        return await adrive(chat(calls, plan), self._connection.transport)

    def stream_chat(
        self, model: str, messages: Sequence[Mapping[str, JSON]], **options: Unpack[ChatKeywords]
    ) -> AsyncGenerator[ChatDelta, None]:
        """See :meth:`Client.stream_chat`."""
        from workers_ai._calls.streaming import open_chat

        calls, options = self._connection.calls.for_call(options, keep=PLANNED)
        plan = plan_call(calls.settings, model, messages, options, stream=True)
        return adrive_stream(open_chat(calls, plan), self._connection.transport)

    async def embed(self, model: str, texts: Sequence[str], **options: Unpack[EmbedKeywords]) -> EmbedReply:
        """See :meth:`Client.embed`."""
        from workers_ai._calls.embeddings import embed_flows, join_embeddings
        from workers_ai._flow.concurrency import agather

        calls, options = self._connection.calls.for_call(options)
        flows = embed_flows(calls, model, texts, **options)
        return join_embeddings(model, await agather(flows, self._connection.transport, calls.concurrency))

    async def rerank(
        self, model: str, query: str, texts: Sequence[str], *, top_n: int | None = None, **options: Unpack[CallKeywords]
    ) -> list[RerankScore]:
        """See :meth:`Client.rerank`."""
        from workers_ai._calls.rerank import join_rankings, rerank_flows
        from workers_ai._flow.concurrency import agather

        calls, options = self._connection.calls.for_call(options)
        flows = rerank_flows(calls, model, query, texts, top_n, options)
        return join_rankings(await agather(flows, self._connection.transport, calls.concurrency), top_n)

    async def models(self, **filters: Unpack[ModelFilters]) -> list[dict[str, JSON]]:
        """See :meth:`Client.models`."""
        from workers_ai._calls.models import list_models

        return await adrive(list_models(self._connection.calls, filters), self._connection.transport)

    def queued(
        self,
        model: str,
        *,
        ledger: str | os.PathLike[str],
        window_s: float = 2.0,
        max_items: int = 200,
        deadline_s: float | None = None,
    ) -> QueuedClient:
        """Return a client whose single chats share submissions of the asynchronous queue.

        Arguments as for :class:`~workers_ai.generation.QueuedClient`.
        """
        from workers_ai.generation._gathering import QueuedClient

        return QueuedClient(self, model, ledger=ledger, window_s=window_s, max_items=max_items, deadline_s=deadline_s)

    async def aclose(self) -> None:
        """Close the connections that this client opened for the running event loop."""
        await self._connection.transport.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.aclose()
