"""The demonstration behind ``workers-ai demo``: what every part of it is handed.

A framework package takes part by an entry point of the group ``workers_ai._demo``: a function that takes a
:class:`Stage`. So the core knows no framework.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from workers_ai._demo.corpus import Docstring

__all__ = ["ENTRY_POINTS", "Stage"]

ENTRY_POINTS = "workers_ai._demo"
"""Group of entry points of the parts; they run in the order of their names."""


@dataclass(frozen=True)
class Stage:
    """What a part of the demonstration works with.

    Attributes:
        settings: Keywords for every class of the packages: account, token, URL.
        corpus: The documents, all of them embedded already.
        ledger: The ledger that has their vectors.
        questions: Questions to answer over them.
        chat_model: Model id for chat.
        embed_model: Model id the corpus was embedded with.
        rerank_model: Model id for reranking.
        say: Prints one line.
        title: Prints the heading of a step.
        make_busy: Makes the service reject the next requests for want of capacity; None on a real account, where
            that cannot be arranged.
    """

    settings: dict[str, Any]
    corpus: Sequence[Docstring]
    ledger: Path
    questions: Sequence[str]
    chat_model: str
    embed_model: str
    rerank_model: str
    say: Callable[[str], None]
    title: Callable[[str], None]
    make_busy: Callable[[int], None] | None = None
