"""The reranker, a node postprocessor."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, ClassVar, Final, Unpack, overload

from llama_index.core.callbacks.schema import CBEventType, EventPayload
from llama_index.core.instrumentation.events.rerank import ReRankEndEvent, ReRankStartEvent
from llama_index.core.postprocessor.types import BaseNodePostprocessor
from llama_index.core.schema import MetadataMode, NodeWithScore, QueryBundle
from llama_index_instrumentation import get_dispatcher
from pydantic import Field

from workers_ai.errors import BadRequestError
from workers_ai.integration import MAX_CONCURRENCY, ConnectionFields

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from workers_ai.integration import ConnectionConstructor
    from workers_ai.types import RerankScore

__all__ = ["DEFAULT_MODEL", "WorkersAIRerank"]

DEFAULT_MODEL: Final = "@cf/baai/bge-reranker-base"
RETRIEVAL_SCORE: Final = "retrieval_score"

dispatcher = get_dispatcher(__name__)


class WorkersAIRerank(ConnectionFields, BaseNodePostprocessor):
    """Sort nodes by relevance to the query, using a reranking model of Cloudflare Workers AI.

    The given nodes are not changed. Lists of any length are scored, in requests of 100 nodes.

    Raises:
        ConfigurationError: A setting is missing or malformed.
    """

    if TYPE_CHECKING:  # the second overload accepts the framework's own fields

        @overload
        def __init__(self, model: str = ..., **keywords: Unpack[ConnectionConstructor]) -> None: ...
        @overload
        def __init__(self, model: str = ..., **keywords: object) -> None: ...
        def __init__(self, *args: object, **keywords: object) -> None: ...

    _keyword_aliases: ClassVar[dict[str, str]] = {**ConnectionFields._keyword_aliases, "model_name": "model"}
    _ignored_keywords: ClassVar[frozenset[str]] = frozenset({"class_name", "reuse_client"})
    _process_local: ClassVar[frozenset[str]] = ConnectionFields._process_local | {"callback_manager"}

    model: str = DEFAULT_MODEL
    """Model id (alias ``model_name``)."""
    top_n: int | None = Field(default=3, ge=1)
    """Number of nodes to return; None for all."""
    max_concurrency: int | None = MAX_CONCURRENCY
    """Maximum number of concurrent requests of this object."""
    extra_body: dict[str, Any] | None = None
    """Additional fields of each request body, sent unchanged."""
    keep_retrieval_score: bool = False
    """Store the score of the retriever in ``node.metadata["retrieval_score"]``. It is excluded from LLM and embedding
    inputs."""

    @classmethod
    def class_name(cls) -> str:
        """Return the name of the class in dumps."""
        return "WorkersAIRerank"

    def to_dict(self, **kwargs: object) -> dict[str, Any]:
        """Return the arguments of an equal reranker, without secrets and connection settings."""
        return super().to_dict(**{"mode": "json", "exclude": self._not_dumped, "exclude_none": True, **kwargs})

    def _postprocess_nodes(
        self, nodes: list[NodeWithScore], query_bundle: QueryBundle | None = None
    ) -> list[NodeWithScore]:
        with self._reranking(nodes, query_bundle) as ranking:
            ranking.sort(self.client.rerank(self.model, ranking.query, ranking.texts, top_n=self.top_n))
        return ranking.best

    @dispatcher.span  # LlamaIndex adds the span to abstract methods only, and this one is not abstract
    async def _apostprocess_nodes(
        self, nodes: list[NodeWithScore], query_bundle: QueryBundle | None = None
    ) -> list[NodeWithScore]:
        with self._reranking(nodes, query_bundle) as ranking:
            ranking.sort(await self.async_client.rerank(self.model, ranking.query, ranking.texts, top_n=self.top_n))
        return ranking.best

    @contextmanager
    def _reranking(self, nodes: list[NodeWithScore], query_bundle: QueryBundle | None) -> Iterator[_Ranking]:
        """Send LlamaIndex's start and end events of one ranking, also for an empty list."""
        if query_bundle is None:
            raise ValueError("the reranker has no query: pass query_bundle= or query_str=")
        ranking = _Ranking(nodes, query_bundle.query_str, keep_retrieval_score=self.keep_retrieval_score)
        top_n = len(nodes) if self.top_n is None else self.top_n
        dispatcher.event(ReRankStartEvent(query=query_bundle, nodes=nodes, top_n=top_n, model_name=self.model))
        payload: dict[str, Any] = {
            EventPayload.NODES: nodes,
            EventPayload.MODEL_NAME: self.model,
            EventPayload.QUERY_STR: query_bundle.query_str,
            EventPayload.TOP_K: top_n,
        }
        with self.callback_manager.event(CBEventType.RERANKING, payload=payload) as event:
            yield ranking
            event.on_end(payload={EventPayload.NODES: ranking.best})
        dispatcher.event(ReRankEndEvent(nodes=ranking.best))


class _Ranking:
    """One ranking: the texts to score, and the sorted nodes."""

    def __init__(self, nodes: Sequence[NodeWithScore], query: str, *, keep_retrieval_score: bool) -> None:
        if odd := {type(node).__name__ for node in nodes if not isinstance(node, NodeWithScore)}:
            raise BadRequestError(f"nodes contains a {min(odd)}: pass NodeWithScore(node=...)")
        self._nodes = nodes
        self._keep = keep_retrieval_score
        self.query = query
        self.texts = [node.node.get_content(metadata_mode=MetadataMode.EMBED) for node in nodes]
        self.best: list[NodeWithScore] = []

    def sort(self, scores: Sequence[RerankScore]) -> None:
        """Set ``best`` to the scored nodes, in the order of the scores."""
        self.best = [self._scored(self._nodes[score.index], score.score) for score in scores]

    def _scored(self, found: NodeWithScore, score: float) -> NodeWithScore:
        node = found.node
        if self._keep:
            node = node.model_copy(
                update={
                    "metadata": {**node.metadata, RETRIEVAL_SCORE: found.score},
                    "excluded_embed_metadata_keys": [*node.excluded_embed_metadata_keys, RETRIEVAL_SCORE],
                    "excluded_llm_metadata_keys": [*node.excluded_llm_metadata_keys, RETRIEVAL_SCORE],
                }
            )
        return NodeWithScore(node=node, score=score)
