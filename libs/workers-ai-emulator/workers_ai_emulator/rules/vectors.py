"""Deterministic vectors by feature hashing: texts that share words are near each other.

Each word has two positions in the vector, each with a sign. Its weight grows with the logarithm of its count. Stop
words have a small weight. Vectors have unit length. The length of the service's vectors is not documented.
"""

from __future__ import annotations

import functools
import hashlib
import math
from collections import Counter

from workers_ai_emulator.rules.tokens import STOP_WORDS, stem, words_of

_STOP_WEIGHT = 0.1


@functools.lru_cache(maxsize=200_000)
def _places(word: str, dimensions: int, salt: str) -> tuple[int, float, int, float]:
    """Return the two positions of a word, each with its signed weight."""
    number = int.from_bytes(
        hashlib.blake2b(f"{salt}{stem(word)}".encode("utf-8", "replace"), digest_size=16).digest(), "little"
    )
    weight = _STOP_WEIGHT if word in STOP_WORDS else 1.0
    first, second = number % dimensions, (number >> 48) % dimensions
    return first, weight if number >> 100 & 1 else -weight, second, weight if number >> 101 & 1 else -weight


def sparse_vector(text: str, dimensions: int, salt: str = "") -> dict[int, float]:
    """Return the non-zero values of a text's vector, by position.

    Args:
        text: Any text; a text without words is hashed as a whole.
        dimensions: Length of the vector.
        salt: Name of the vector space: the model, with ``/cls`` for that pooling.
    """
    sums: dict[int, float] = {}
    for word, count in Counter(words_of(text) or [text]).items():
        first, first_weight, second, second_weight = _places(word, dimensions, salt)
        scale = 1.0 + math.log(count) if count > 1 else 1.0
        sums[first] = sums.get(first, 0.0) + scale * first_weight
        sums[second] = sums.get(second, 0.0) + scale * second_weight
    norm = math.sqrt(sum(value * value for value in sums.values()))
    if norm < 1e-9:
        return {len(text) % dimensions: 1.0}
    rounded = {value: round(value / norm, 7) or 0.0 for value in set(sums.values())}  # round each distinct value once
    return {place: rounded[value] for place, value in sums.items()}


def vector(text: str, dimensions: int, salt: str = "") -> list[float]:
    """Return a text's vector."""
    values = [0.0] * dimensions
    for place, value in sparse_vector(text, dimensions, salt).items():
        values[place] = value
    return values


def vector_json(text: str, dimensions: int, salt: str = "", length: float = 1.0) -> str:
    """Return a text's vector as JSON text. Faster than ``json.dumps`` of :func:`vector`.

    Args:
        text: Any text.
        dimensions: Number of values.
        salt: Name of the vector space.
        length: Length of the vector.
    """
    sparse = sparse_vector(text, dimensions, salt)
    written = {value: f"{value * length!r}," for value in set(sparse.values())}
    pieces: list[str] = []
    end = 0
    for place in sorted(sparse):
        pieces += ("0.0," * (place - end), written[sparse[place]])
        end = place + 1
    values = f"{''.join(pieces)}{'0.0,' * (dimensions - end)}"
    return f"[{values[:-1]}]"


def relevance(query: str, text: str) -> float:
    """Return the share of the query's words that are in a text, between 0 and 1.

    A higher density of these words increases the value slightly.
    """
    weights = {stem(word): (_STOP_WEIGHT if word in STOP_WORDS else 1.0) for word in words_of(query)}
    found = Counter(stem(word) for word in words_of(text))
    total = sum(weights.values())
    if not total or not found:
        return 0.0
    shared = sum(weight for word, weight in weights.items() if word in found)
    density = sum(found[word] for word in weights) / found.total()
    return round(0.001 + 0.9 * shared / total + 0.09 * density, 6)
