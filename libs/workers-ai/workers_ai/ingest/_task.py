"""Embedding as a task of the engine."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any, Literal

from workers_ai._wire.batch import MAX_SUBMISSION_BYTES, json_bytes
from workers_ai._wire.usage import read_usage
from workers_ai._wire.vectors import EmbedOptions, embed_inputs, embed_request, read_vectors
from workers_ai.catalogue import lookup
from workers_ai.errors import APIResponseValidationError, BatchItemError
from workers_ai.ledger._engine import LengthError
from workers_ai.ledger._progress import neurons_of
from workers_ai.ledger._records import (
    Document,
    Measured,
    as_sent,
    checked,
    estimated_tokens,
    input_window,
    text_hash,
    unsendable,
)
from workers_ai.ledger._task import Outcome, Prepared
from workers_ai.types import BatchItem, BatchStatus, Usage

if TYPE_CHECKING:
    from collections.abc import Sequence

    from workers_ai._calls.requests import Calls
    from workers_ai._flow.steps import Flow
    from workers_ai.ledger._records import ResultRow, Stored
    from workers_ai.ledger._store.fingerprints import Fingerprint

__all__ = ["EmbedTask"]


class EmbedTask:
    """Embed texts, up to 100 in one request.

    Args:
        fingerprint: Model and options.
        empty_text: ``"space"`` embeds one space in place of an empty text, which otherwise fails.
        calls: Flows for direct requests.
    """

    noun = "texts"
    verb = "embedding"
    reads_inputs = False

    def __init__(self, fingerprint: Fingerprint, empty_text: Literal["raise", "space"], calls: Calls) -> None:
        self.model = fingerprint.model
        self._options = EmbedOptions(fingerprint.pooling, fingerprint.truncate_inputs, None, fingerprint.normalize)
        self._instruction = fingerprint.instruction
        self._empty_text: Literal["raise", "space"] = empty_text
        self._calls = calls
        card = lookup(self.model)
        self.per_request = card.texts_per_request
        self.request_tokens = card.context_window
        self._window = input_window(self.model)
        self._length: int | None = None

    def begin(self, dimensions: int | None) -> None:
        """Set the length of the vectors in the ledger; None if it has none."""
        self._length = dimensions

    def document(self, item: object) -> Document:
        """Return a document as the ledger stores it."""
        doc_id, given = checked(item)
        text = as_sent(given, self._instruction, self._empty_text)
        is_long = self._window is not None and estimated_tokens(json_bytes(text)) > self._window
        return Document(doc_id, text_hash(text), text, is_long)

    def measure(self, text: str) -> Measured:
        """Return size and price of a text."""
        size = json_bytes(text)
        tokens = estimated_tokens(size, self._window)
        return Measured(
            size, tokens, neurons_of(self.model, tokens) or 0.0, unsendable(text, size, MAX_SUBMISSION_BYTES)
        )

    def prepare(self, texts: Sequence[str], keys: Sequence[bytes]) -> Prepared:
        """Return the request of some texts."""
        return Prepared(embed_inputs(self.model, texts, self._options, kind="document"))

    def send(self, texts: Sequence[str]) -> Flow[BatchStatus]:
        """Embed texts by a direct request."""
        reject = self._calls.settings.on_busy != "wait"
        request = embed_request(self.model, texts, self._options, kind="document", reject_if_busy=reject)
        reply = yield from self._calls.exchange(request)
        payload = reply.data.get("result", reply.data) if isinstance(reply.data, dict) else {}
        usage = payload.get("usage") if isinstance(payload, dict) else None
        item = BatchItem(0, None, True, reply.data, None)
        return BatchStatus("done", [item], read_usage(usage, reply.headers.get("cf-ai-neurons")))

    def match(self, items: Sequence[BatchItem], keys: Sequence[bytes] | None) -> Sequence[BatchItem]:
        """Return the items unchanged, since embedding requests have no references."""
        return items

    def read(
        self, group: Sequence[int], item: BatchItem, inputs: Sequence[Stored], context: Any, request_id: str | None
    ) -> Outcome:
        """Return the vectors of an item as little-endian float32."""
        try:
            vectors = read_vectors(item.result, self.model, len(group), normalize=self._options.normalize).vectors
            length = len(vectors[0])
            if self._length not in (None, length):
                raise LengthError(
                    f"the vectors have {length} dimensions, not {self._length} as in the ledger",
                    index=item.index,
                    model=self.model,
                )
            pack = struct.Struct(f"<{length}f").pack
            rows: list[ResultRow] = [(text_id, pack(*vector)) for text_id, vector in zip(group, vectors, strict=True)]
        except LengthError as exc:
            return Outcome(error=exc)
        except (APIResponseValidationError, OverflowError) as exc:
            return Outcome(error=BatchItemError(str(exc), index=item.index, model=self.model))
        self._length = length
        return Outcome(rows)

    def share(self, outcomes: Sequence[Outcome], usage: Usage | None, tokens: int) -> Usage:
        """Return the usage of a job as reported, else as estimated."""
        reported = usage.input_tokens if usage else 0
        return Usage(reported or tokens, neurons=usage.neurons if usage else None)

    def neurons(self, usage: Usage) -> float | None:
        """Return the neurons of a job: as reported, else by list price."""
        return neurons_of(self.model, usage.input_tokens) if usage.neurons is None else usage.neurons
