"""The pieces of a stream, and their padding."""

from __future__ import annotations

import re
import string
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import random

_PIECE = re.compile(r"\s*\S+|\s+\Z")
_ALPHABET = string.ascii_letters + string.digits
_ARGUMENT_PIECE = 12


def text_pieces(text: str) -> list[str]:
    """Split a text into words. The joined pieces equal the text."""
    return _PIECE.findall(text)


def argument_pieces(text: str) -> list[str]:
    """Split the JSON text of arguments into pieces."""
    return [text[start : start + _ARGUMENT_PIECE] for start in range(0, len(text), _ARGUMENT_PIECE)]


class Padding:
    """The ``p`` of stream events: random letters of random length, which hide the lengths of the pieces.

    Args:
        rng: The emulator's seeded generator.
    """

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng

    def __call__(self) -> str:
        """Return the ``p`` of the next event."""
        return "".join(self._rng.choices(_ALPHABET, k=self._rng.randint(1, 36)))
