"""The texts of one call: distinct texts to embed, and vectors by text. No I/O."""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING

from workers_ai import integration  # its checks are imported at the first call

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from workers_ai.errors import WorkersAIError
    from workers_ai.integration import Flow
    from workers_ai.types import JSON, EmbedReply

__all__ = ["Texts"]


class Texts:
    """The texts of one call and their vectors. Equal texts are embedded once. Cached texts are not embedded.

    Args:
        texts: The texts of the caller, in order.
        options: The options that a vector depends on, such as the model.
    """

    def __init__(self, texts: Sequence[str], options: Sequence[JSON]) -> None:
        self._texts = texts
        self._options = options
        self._vectors: dict[str, list[float]] = {}
        self.new: list[str] = []
        """Texts that were embedded by the service."""

    def key(self, text: str) -> str:
        """Return the cache key of a vector. It includes the options, because a vector depends on each option."""
        return hashlib.sha256(json.dumps([*self._options, text], ensure_ascii=False).encode()).hexdigest()

    def entry(self, text: str) -> dict[str, list[float]]:
        """Return the cache entry of a text."""
        return {"embedding": self._vectors[text]}

    def add_cached(self, text: str, entry: Mapping[str, list[float]] | None) -> None:
        """Store the vector of a cache entry; ignore None."""
        if entry:
            self._vectors[text] = next(iter(entry.values()))

    @property
    def missing(self) -> list[str]:
        """Return the distinct texts without a vector."""
        return [text for text in dict.fromkeys(self._texts) if text not in self._vectors]

    def store(self, flow: Flow[EmbedReply], texts: Sequence[str], tick: Callable[[int], object]) -> Flow[None]:
        """Run ``flow``, and store the vectors of ``texts`` at once, so that they are kept if another flow fails."""
        reply = yield from flow
        known = [next(iter(self._vectors.values()))] if self._vectors else []
        integration.require_one_length([*known, *reply.vectors], reply.model)
        self._vectors.update(zip(texts, reply.vectors, strict=True))
        self.new += texts
        tick(len(texts))

    def correct_index(self, error: WorkersAIError, sent: Sequence[str]) -> None:
        """Replace the index of an error by the index in the caller's list. The error counts the texts in ``sent``."""
        if error.index is not None:
            integration.set_text_index(error, self._texts.index(sent[error.index]))

    def vectors(self) -> list[list[float]]:
        """Return one vector per text of the caller, in order. Equal texts get separate lists."""
        returned: set[str] = set()
        vectors = []
        for text in self._texts:
            vector = self._vectors[text]
            vectors.append(list(vector) if text in returned else vector)
            returned.add(text)
        return vectors
