"""``workers-ai demo``: the arguments of its parts.

Only ``langchain_part`` and ``llama_index_part`` import a framework. A part is skipped if its packages are missing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from workers_ai import SettingKeywords
    from workers_ai._demo.corpus import Docstring

__all__ = ["Stage"]


@dataclass(frozen=True)
class Stage:
    """Arguments of one part of the demo.

    Attributes:
        settings: Keywords for every class of the packages: account, token, URL.
        corpus: Documents; their vectors are in the ledger.
        ledger: Ledger with the vectors of the corpus.
        questions: Questions about the corpus.
        chat_model: Model id for chat.
        embed_model: Model id of the vectors.
        rerank_model: Model id for reranking.
        say: Function that prints one line.
        title: Function that prints the heading of a step.
        make_busy: Function that makes the emulator reject a number of requests with 3040; None on a real account.
    """

    settings: SettingKeywords
    corpus: Sequence[Docstring]
    ledger: Path
    questions: Sequence[str]
    chat_model: str
    embed_model: str
    rerank_model: str
    say: Callable[[str], None]
    title: Callable[[str], None]
    make_busy: Callable[[int], None] | None = None
