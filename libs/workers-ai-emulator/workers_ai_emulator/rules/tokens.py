"""Words, tokens and neurons, for embeddings, reranking, chat and prices."""

from __future__ import annotations

import functools
import math
import re
import struct
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from workers_ai_emulator.catalogue import Model

_CJK = r"\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af"
_WORD = re.compile(rf"[{_CJK}]|[^\W{_CJK}]+")
_BYTES_PER_TOKEN = 6
_TOKENS_PER_WORD = 1.3

_STOP_WORDS_TEXT = """
    a about after all also an and any are as at be because been before being but by can could did do
    does doing for from had has have he her here him his how i if in into is it its just me more
    most my no not now of on once only or other our out over own please s she should so some such t
    than that the their them then there these they this those to too under until up very was we were
    what when where which while who whom why will with would you your
"""
STOP_WORDS = frozenset(_STOP_WORDS_TEXT.split())


def word_set(text: str) -> frozenset[str]:
    """Return the words of a text that is separated by spaces, for tables of words."""
    return frozenset(text.split())


def words_of(text: str) -> list[str]:
    """Return the words of a text in lower case. Each CJK character is a word."""
    return _WORD.findall(text.lower())


@functools.lru_cache(maxsize=50_000)
def stem(word: str) -> str:
    """Return an approximate stem: the same for ``models`` and ``model``, and for ``waiting`` and ``wait``."""
    for ending in ("ing", "ed", "es", "s"):
        if word.endswith(ending) and len(word) - len(ending) >= 3 and not word.endswith("ss"):
            return word[: -len(ending)]
    return word


def content_stems(text: str) -> set[str]:
    """Return the stems of all words except stop words. If all words are stop words, return their stems."""
    words = words_of(text)
    return {stem(word) for word in words if word not in STOP_WORDS} or {stem(word) for word in words}


def count_tokens(text: str) -> int:
    """Estimate the tokens of a text: 1.3 per word, more for text without spaces, at least one."""
    if not text:
        return 0
    return math.ceil(
        max(_TOKENS_PER_WORD * (text.count(" ") + 1), len(text.encode("utf-8", "replace")) / _BYTES_PER_TOKEN)
    )


def neurons(model: Model, prompt_tokens: int, completion_tokens: int, cached_tokens: int = 0) -> float:
    """Return the neurons of a request: list price in US dollars over 0.000011, rounded to 32 bits.

    Prices: https://developers.cloudflare.com/workers-ai/platform/pricing/ ($0.011 per 1,000 neurons).
    """
    cached_price = model.usd_in_per_m if model.usd_cached_in_per_m is None else model.usd_cached_in_per_m
    per_million = (
        (prompt_tokens - cached_tokens) * model.usd_in_per_m
        + cached_tokens * cached_price
        + completion_tokens * model.usd_out_per_m
    )
    return _float32(per_million / 11)


def _float32(value: float) -> float:
    packed = struct.pack("f", value)
    for digits in (6, 7, 8):
        short = float(f"{value:.{digits}g}")
        if struct.pack("f", short) == packed:
            return short
    return float(f"{value:.9g}")
