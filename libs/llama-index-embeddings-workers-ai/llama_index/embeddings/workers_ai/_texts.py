"""The texts of one call: each is embedded once, and what a cache knows is not embedded at all. No I/O."""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING

from workers_ai.integration import require_one_length

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from workers_ai.errors import WorkersAIError
    from workers_ai.integration import Flow
    from workers_ai.types import JSON, EmbedReply

__all__ = ["Texts"]


class Texts:
    """Texts on the way to their vectors.

    Args:
        texts: The texts of the caller, in order.
        options: What shapes a vector besides its text: model, kind and more.
    """

    def __init__(self, texts: Sequence[str], options: Sequence[JSON]) -> None:
        self._texts = texts
        self._options = options
        self._vectors: dict[str, list[float]] = {}
        self.new: list[str] = []
        """Texts whose vectors came from the service."""

    def key(self, text: str) -> str:
        """Key of a vector in a cache: the options are part of it, since each of them changes the vector."""
        return hashlib.sha256(json.dumps([*self._options, text], ensure_ascii=False).encode()).hexdigest()

    def entry(self, text: str) -> dict[str, list[float]]:
        """What a cache is to keep of a text."""
        return {"embedding": self._vectors[text]}

    def recall(self, text: str, entry: Mapping[str, list[float]] | None) -> None:
        """Take a vector from a cache, if it has one."""
        if entry:
            self._vectors[text] = next(iter(entry.values()))

    @property
    def missing(self) -> list[str]:
        """Texts without a vector yet, each of them once."""
        return [text for text in dict.fromkeys(self._texts) if text not in self._vectors]

    def watch(self, flow: Flow[EmbedReply], texts: Sequence[str], tick: Callable[[int], object]) -> Flow[None]:
        """The flow that embeds ``texts``; what it brings is kept even if another flow fails."""
        reply = yield from flow
        known = [next(iter(self._vectors.values()))] if self._vectors else []
        require_one_length([*known, *reply.vectors], reply.model)
        self._vectors.update(zip(texts, reply.vectors, strict=True))
        self.new += texts
        tick(len(texts))

    def blame(self, error: WorkersAIError, sent: Sequence[str]) -> None:
        """Let an error name the place of a text in the caller's list, not among the texts that were ``sent``."""
        if error.index is not None:
            place = self._texts.index(sent[error.index])
            error.message = error.message.replace(f"text {error.index} ", f"text {place} ", 1)
            error.index = place

    def vectors(self) -> list[list[float]]:
        """One vector per text of the caller, none of them shared."""
        given: set[str] = set()
        found = []
        for text in self._texts:
            vector = self._vectors[text]
            found.append(list(vector) if text in given else vector)
            given.add(text)
        return found
