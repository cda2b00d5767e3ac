"""The clients: one service behind two faces, sync and async."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any, ClassVar, Unpack, cast

from workers_ai._calls.streaming import awalk, walk
from workers_ai._flow.concurrency import agather, gather
from workers_ai._flow.drivers import adrive, drive
from workers_ai._service import Service, join_embeddings, join_rankings
from workers_ai._settings.settings import Settings, known_keywords, mask_secrets, reject_settings, setting_parameters
from workers_ai._validation import require
from workers_ai.retry import RetryEvent, RetryPolicy
from workers_ai.types import ChatDelta, ChatReply, EmbedReply, RerankScore

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Generator, Mapping, Sequence

    import httpx

    from workers_ai._settings.keywords import CallKeywords, ClientKeywords
    from workers_ai._wire.params import ChatKeywords, EmbedKeywords
    from workers_ai.batch import AsyncBatch, Batch
    from workers_ai.types import JSON

__all__ = ["AsyncClient", "Client"]


class _Face:
    """What both clients share: how they are made."""

    __signature__: ClassVar[inspect.Signature]

    def __init__(
        self,
        *,
        service: Service | None = None,
        http_client: httpx.Client | None = None,
        http_async_client: httpx.AsyncClient | None = None,
        binding: Any = None,
        retry: RetryPolicy | None = None,
        on_retry: Callable[[RetryEvent], None] | None = None,
        **settings: Unpack[ClientKeywords],
    ) -> None:
        mask_secrets(cast("dict[str, Any]", settings))
        owner = type(self).__name__
        if service is not None:
            handles = {"http_client": http_client, "http_async_client": http_async_client, "binding": binding}
            policies = {"retry": retry, "on_retry": on_retry}
            reject_settings(owner, settings)
            doubled = [name for name, value in {**handles, **policies}.items() if value is not None]
            require(not doubled, f"{owner} takes {', '.join(doubled)} from the service it was given")
        self.service = service or Service(
            Settings.resolve(**known_keywords(owner, settings), binding=binding is not None),
            http_client=http_client,
            http_async_client=http_async_client,
            binding=binding,
            retry=retry,
            on_retry=on_retry,
        )

    def __init_subclass__(cls) -> None:
        own = [
            value for value in inspect.signature(_Face.__init__).parameters.values() if value.kind is value.KEYWORD_ONLY
        ]
        cls.__signature__ = inspect.Signature([*own, *setting_parameters()])

    @property
    def settings(self) -> Settings:
        """The checked settings."""
        return self.service.settings

    def __repr__(self) -> str:
        settings = self.settings
        return f"{type(self).__name__}(account_id={settings.account_id!r}, base_url={settings.base_url!r})"


class Client(_Face):
    """Workers AI, blocking.

    Args:
        service: A service to share with another client; then nothing else is needed.
        http_client: Your own ``httpx.Client``; URL and credentials still come from here, and it is never closed here.
        http_async_client: Not used by this client.
        binding: The ``env.AI`` of a Python Worker; only :class:`AsyncClient` can use it.
        retry: When to try again, in place of the default policy.
        on_retry: Called before each wait.
        **settings: See :class:`~workers_ai.ClientKeywords`.

    Raises:
        ConfigurationError: A setting is missing or malformed.
    """

    @property
    def batch(self) -> Batch:
        """The asynchronous queue: submit, poll, collect, run."""
        from workers_ai.batch import Batch

        return Batch(self.service.queue, self.service.transport)

    def chat(self, model: str, messages: Sequence[Mapping[str, JSON]], **options: Unpack[ChatKeywords]) -> ChatReply:
        """Ask for one whole answer.

        Args:
            model: Model id.
            messages: OpenAI-shaped messages.
            **options: Parameters, ``api``, and settings of this call; see :class:`~workers_ai.ChatKeywords`.

        Raises:
            WorkersAIError: See :mod:`workers_ai.errors`.
        """
        service, given = self.service.for_call(options, planned=True)
        plan = service.plan(model, messages, stream=False, **given)
        return drive(service.calls.chat(plan), service.transport)

    def stream_chat(
        self, model: str, messages: Sequence[Mapping[str, JSON]], **options: Unpack[ChatKeywords]
    ) -> Generator[ChatDelta, None, None]:
        """Ask for an answer in pieces; the last one carries finish reason and usage. Arguments as for :meth:`chat`."""
        service, given = self.service.for_call(options, planned=True)
        plan = service.plan(model, messages, stream=True, **given)
        return walk(service.open_chat(plan), service.transport)

    def embed(self, model: str, texts: Sequence[str], **options: Unpack[EmbedKeywords]) -> EmbedReply:
        """Embed texts, in requests of at most the model's cap, several at a time; order and count are checked.

        Args:
            model: Model id.
            texts: Any number of strings.
            **options: Options, and settings of this call; see :class:`~workers_ai.EmbedKeywords`.

        Raises:
            BadRequestError: A text is empty or no string; the index is named, and nothing was sent.
            WorkersAIError: See :mod:`workers_ai.errors`.
        """
        service, given = self.service.for_call(options)
        flows = service.embeddings(model, texts, **given)
        return join_embeddings(model, gather(flows, service.transport, service.concurrency))

    def rerank(
        self, model: str, query: str, texts: Sequence[str], *, top_n: int | None = None, **options: Unpack[CallKeywords]
    ) -> list[RerankScore]:
        """Score texts against a query, best first.

        Args:
            model: Model id.
            query: The query.
            texts: Any number of strings.
            top_n: Scores to return at most; None returns all.
            **options: Settings of this call, as for :meth:`chat`.

        Raises:
            WorkersAIError: See :mod:`workers_ai.errors`.
        """
        service, given = self.service.for_call(options)
        flows = service.rankings(model, query, texts, top_n, **given)
        return join_rankings(gather(flows, service.transport, service.concurrency), top_n)

    def models(self, **filters: Any) -> list[dict[str, JSON]]:
        """List the models of the account (https://developers.cloudflare.com/api/resources/ai/subresources/models/).

        Args:
            **filters: ``task``, ``search``, ``author``, ``source``, ``hide_experimental``.
        """
        return drive(self.service.calls.models(filters), self.service.transport)

    def close(self) -> None:
        """Close the connections made here."""
        self.service.transport.close()

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


class AsyncClient(_Face):
    """Workers AI without blocking: the methods and arguments of :class:`Client`, to be awaited."""

    @property
    def batch(self) -> AsyncBatch:
        """The asynchronous queue: submit, poll, collect, run."""
        from workers_ai.batch import AsyncBatch

        return AsyncBatch(self.service.queue, self.service.transport)

    async def chat(
        self, model: str, messages: Sequence[Mapping[str, JSON]], **options: Unpack[ChatKeywords]
    ) -> ChatReply:
        """See :meth:`Client.chat`."""
        service, given = self.service.for_call(options, planned=True)
        plan = service.plan(model, messages, stream=False, **given)
        return await adrive(service.calls.chat(plan), service.transport)

    def stream_chat(
        self, model: str, messages: Sequence[Mapping[str, JSON]], **options: Unpack[ChatKeywords]
    ) -> AsyncGenerator[ChatDelta, None]:
        """See :meth:`Client.stream_chat`."""
        service, given = self.service.for_call(options, planned=True)
        plan = service.plan(model, messages, stream=True, **given)
        return awalk(service.open_chat(plan), service.transport)

    async def embed(self, model: str, texts: Sequence[str], **options: Unpack[EmbedKeywords]) -> EmbedReply:
        """See :meth:`Client.embed`."""
        service, given = self.service.for_call(options)
        flows = service.embeddings(model, texts, **given)
        return join_embeddings(model, await agather(flows, service.transport, service.concurrency))

    async def rerank(
        self, model: str, query: str, texts: Sequence[str], *, top_n: int | None = None, **options: Unpack[CallKeywords]
    ) -> list[RerankScore]:
        """See :meth:`Client.rerank`."""
        service, given = self.service.for_call(options)
        flows = service.rankings(model, query, texts, top_n, **given)
        return join_rankings(await agather(flows, service.transport, service.concurrency), top_n)

    async def models(self, **filters: Any) -> list[dict[str, JSON]]:
        """See :meth:`Client.models`."""
        return await adrive(self.service.calls.models(filters), self.service.transport)

    async def aclose(self) -> None:
        """Close the connections made here for the running event loop."""
        await self.service.transport.aclose()

    async def __aenter__(self) -> AsyncClient:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.aclose()
