"""Extract metadata from all nodes of a pipeline through the asynchronous queue."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from pathlib import Path
from string import Formatter
from typing import TYPE_CHECKING, Any, ClassVar, Final, Literal, TypeVar

from llama_index.core.bridge.pydantic import BaseModel, Field, PrivateAttr, field_serializer
from llama_index.core.extractors import BaseExtractor
from llama_index.core.schema import BaseNode, Document, MetadataMode, TextNode
from llama_index.core.storage.docstore.types import BaseDocumentStore
from llama_index.llms.workers_ai._generation import generation_options
from llama_index.llms.workers_ai._pacing import limited
from llama_index.llms.workers_ai.base import WorkersAI
from pydantic.json_schema import SkipJsonSchema

from workers_ai.errors import BatchItemError, ConfigurationError
from workers_ai.integration import DescribedModel, unknown_keyword

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from workers_ai.client import AsyncClient
    from workers_ai.generation import Answer, Failure, GenerateReport

__all__ = ["WorkersAIBatchExtractor"]

_DOCUMENT: Final = "document_str"

T = TypeVar("T")

logger = logging.getLogger(__name__)


class WorkersAIBatchExtractor(DescribedModel, BaseExtractor):
    """Extract metadata from nodes, with one answer of an LLM per node, through the asynchronous queue.

    ::

        extractor = WorkersAIBatchExtractor(
            llm=WorkersAI(max_tokens=200),
            ledger="summaries.ledger",
            prompt_template="Summarize in one sentence: {context_str}",
            metadata_key="summary",
        )
        nodes = IngestionPipeline(transformations=[splitter, extractor]).run(documents=documents)

    All nodes are submitted at once, and each answer is stored in the ledger when it arrives. After an interrupted run,
    the next run sends only the nodes without an answer. Several processes can share a ledger. A ledger belongs to one
    model, prompt, schema and set of parameters.

    A failed node does not affect the others. With ``raise_on_error`` (the default) the call raises
    :class:`~workers_ai.errors.BatchItemError` after all other answers were stored. Otherwise a failed node gets no
    metadata and is listed in :attr:`failures`.

    Raises:
        ConfigurationError: A field is invalid, the model has no queue, or the ledger belongs to another model, prompt,
            schema or parameter.
        WorkersAIError: An error that stops the run, such as :class:`~workers_ai.errors.QuotaExhaustedError`.
    """

    _not_dumped: ClassVar[frozenset[str]] = frozenset({
        "ledger", "docstore", "queue", "requests_per_job", "limit_cost_usd", "deadline_s", "show_progress",
        "num_workers", "max_retries", "retry_backoff",
    })  # fmt: skip
    """Fields that do not change the metadata. They are not part of the key of a pipeline's cache."""

    llm: WorkersAI
    """The LLM. Its model, parameters and system prompt are used."""
    ledger: str | Path
    """Path of the ledger, on a local disk. It is created if missing."""
    prompt_template: str
    """The prompt. ``{context_str}`` is the text of the node, ``{document_str}`` the text of its source document; write
    ``{{`` and ``}}`` for braces."""
    output_cls: type[BaseModel] | None = None
    """Pydantic class of the answers. Its fields become metadata."""
    labels: Sequence[str] | None = None
    """Labels to choose from. The label is stored under ``metadata_key``."""
    metadata_key: str | None = None
    """Key of the answer in the metadata. Required unless ``output_cls`` is set."""
    docstore: SkipJsonSchema[BaseDocumentStore | None] = None
    """Store of the source documents. Required for ``{document_str}``."""
    metadata_mode: MetadataMode = MetadataMode.LLM
    """Which metadata ``{context_str}`` contains. A node whose text or metadata changed is sent again."""
    queue: Literal["never", "always"] = "always"
    """``"never"``: send direct requests, with the same ledger."""
    requests_per_job: int | None = Field(default=None, ge=1)
    """Nodes per submission; None for 200."""
    limit_cost_usd: float | None = Field(default=None, ge=0)
    """Maximum cost of one call in US dollars, by list price. The LLM needs ``max_tokens``. None for no limit."""
    deadline_s: float | None = Field(default=None, gt=0)
    """Maximum seconds of one call; None for no limit."""
    repair: int = Field(default=1, ge=0)
    """Maximum number of new requests for an answer that does not fit ``output_cls`` or ``labels``."""

    _report: GenerateReport | None = PrivateAttr(default=None)
    _failures: list[Failure] = PrivateAttr(default_factory=list)

    if not TYPE_CHECKING:  # hidden from type checkers, which read the fields

        def __init__(self, **data: Any) -> None:
            known = type(self).model_fields.keys() | {"class_name"}
            if unknown := sorted(data.keys() - known):
                raise unknown_keyword(type(self).__name__, unknown[0], known, "additional_kwargs of the llm")
            super().__init__(**data)
            self._check()

    def _check(self) -> None:
        try:
            names = {name for _, name, _, _ in Formatter().parse(self.prompt_template) if name is not None}
        except ValueError as exc:
            raise ConfigurationError(f"prompt_template is malformed ({exc}): write {{{{ and }}}} for braces") from None
        if unknown := sorted(names - {"context_str", _DOCUMENT}):
            raise ConfigurationError(
                f"prompt_template has the unknown placeholder {unknown[0]!r}: use {{context_str}} and "
                "{document_str}, and write {{ and }} for braces"
            )
        if self.output_cls is not None and self.labels is not None:
            raise ConfigurationError("pass output_cls= or labels=, not both")
        if _DOCUMENT in names and self.docstore is None:
            raise ConfigurationError("prompt_template has {document_str}: pass docstore= with the source documents")
        if self.output_cls is None and self.metadata_key is None:
            raise ConfigurationError("pass metadata_key= for the answer, or output_cls=")

    @classmethod
    def class_name(cls) -> str:
        """Return the name of the class in dumps and events."""
        return "WorkersAIBatchExtractor"

    @field_serializer("llm")
    def _dump_llm(self, llm: WorkersAI) -> dict[str, Any]:
        return llm.to_dict()

    @field_serializer("output_cls")
    def _dump_class(self, output_cls: type[BaseModel] | None) -> dict[str, Any] | None:
        return None if output_cls is None else output_cls.model_json_schema()

    def to_dict(self, **kwargs: object) -> dict[str, Any]:
        """Return the fields that the metadata depends on. LlamaIndex uses them as the key of an ingestion cache."""
        dumped: dict[str, Any] = super().to_dict(**{"mode": "json", "exclude": self._not_dumped, **kwargs})
        return dumped

    def __getstate__(self) -> dict[str, object]:
        # Use pydantic's method: LlamaIndex's removes unpicklable values from the original object
        # (https://github.com/run-llama/llama_index/issues/22578). The report of the last call is not pickled.
        return {**BaseModel.__getstate__(self), "__pydantic_private__": {"_report": None, "_failures": []}}

    def __setstate__(self, state: dict[str, object]) -> None:
        BaseModel.__setstate__(self, state)

    @property
    def report(self) -> GenerateReport | None:
        """Return the report of the last call: counts, tokens and cost. None before the first call."""
        return self._report

    @property
    def failures(self) -> list[Failure]:
        """Return the failed nodes of the last call. ``id`` is the node's id, ``position`` its position in the call."""
        return self._failures

    def extract(self, nodes: Sequence[BaseNode]) -> list[dict[str, Any]]:
        """Return the metadata of each node. See :meth:`aextract`."""
        return _run(self.aextract(nodes))

    def process_nodes(self, nodes: Sequence[BaseNode], *args: Any, **kwargs: Any) -> list[BaseNode]:
        """Add the metadata to the nodes. See :meth:`aextract`."""
        return _run(self.aprocess_nodes(nodes, *args, **kwargs))

    async def aextract(self, nodes: Sequence[BaseNode]) -> list[dict[str, Any]]:
        """Return the metadata of each node; {} for a failed node and for a node without text.

        Raises:
            BatchItemError: A node failed, and ``raise_on_error`` is true. ``index`` is the position of the first
                failed node.
            WorkersAIError: An error stopped the run.
        """
        from workers_ai.generation import agenerate

        metadata: list[dict[str, Any]] = [{} for _ in nodes]
        self._failures = []
        positions, rows = await self._rows(nodes)
        if rows:
            model, options, _ = self.llm._options({})
            self._report = await agenerate(
                rows,
                ledger=self.ledger,
                model=model,
                prompt=self.prompt_template,
                system=self.llm.system_prompt,
                schema=self.output_cls,
                labels=self.labels,
                mode="queue" if self.queue == "always" else "direct",
                requests_per_job=self.requests_per_job,
                limit_cost_usd=self.limit_cost_usd,
                deadline_s=self.deadline_s,
                repair=self.repair,
                progress=self.show_progress,
                client=self._client(),
                **generation_options(model, options),
            )
            answers = await asyncio.to_thread(list, self._report.answers())
            for position, answer in zip(positions, answers, strict=True):
                metadata[position] = self._metadata(position, answer)
        self._report_failures(len(nodes))
        return metadata

    def _client(self) -> AsyncClient:
        client, limiter = self.llm.async_client, self.llm.rate_limiter
        return client if limiter is None else limited(client, limiter)

    async def _rows(self, nodes: Sequence[BaseNode]) -> tuple[list[int], list[tuple[str, dict[str, str]]]]:
        """Return the positions of the nodes to send, and the rows of the prompt."""
        positions, rows = [], []
        for position, node in enumerate(nodes):
            if self.is_text_node_only and not isinstance(node, (TextNode, Document)):
                continue
            row = {"context_str": node.get_content(metadata_mode=self.metadata_mode)}
            if self.docstore is not None:
                document = await self._document(node)
                if document is None:
                    self._fail(node.node_id, position, "its source document is not in docstore: add the document")
                    continue
                row[_DOCUMENT] = document
            positions.append(position)
            rows.append((node.node_id, row))
        return positions, rows

    async def _document(self, node: BaseNode) -> str | None:
        if self.docstore is None or node.ref_doc_id is None:
            return None
        document = await self.docstore.aget_document(node.ref_doc_id, raise_error=False)
        return None if document is None else document.get_content()

    def _metadata(self, position: int, answer: Answer) -> dict[str, Any]:
        """Return the metadata of a node, and add a failed node to the failures."""
        if answer.error is not None:
            self._fail(answer.id, position, answer.error.message, answer.error.code)
            return {}
        if isinstance(answer.data, BaseModel):
            fields = answer.data.model_dump(mode="json")
            return fields if self.metadata_key is None else {self.metadata_key: fields}
        value = answer.data if self.labels is not None else (answer.text or "").strip()
        return {self.metadata_key or "": value}

    def _fail(self, node_id: str | int, position: int, why: str, code: int | None = None) -> None:
        from workers_ai.generation import Failure

        self._failures.append(Failure(node_id, code, why, position))

    def _report_failures(self, total: int) -> None:
        if not self._failures:
            return
        first = min(self._failures, key=lambda failure: failure.position)
        message = f"{len(self._failures):,} of {total:,} nodes failed, the first is {first.id}: {first.message}"
        if not self.raise_on_error:
            logger.warning("%s; failed nodes get no metadata", message)
            return
        raise BatchItemError(
            f"{message}; run again: the other answers are in the ledger, so the next run sends only the failed nodes",
            index=first.position, code=first.code, model=self.llm.model,
        )  # fmt: skip


def _run(work: Coroutine[object, None, T]) -> T:
    """Run a coroutine from sync code, in a thread if this thread has a running event loop.

    LlamaIndex's ``asyncio_run`` cannot be used: it replaces each ``RuntimeError`` by an error about nested event loops,
    and many errors of :mod:`workers_ai.errors` are a ``RuntimeError``.
    """
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(work)
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(copy_context().run, asyncio.run, work).result()
