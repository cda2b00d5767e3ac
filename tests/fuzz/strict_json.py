"""Parse JSON as other programs do: without Python's NaN and Infinity."""

from __future__ import annotations

import json

__all__ = ["parse_strict"]


def parse_strict(text: str | bytes) -> object:
    """Parse strict JSON.

    Raises:
        AssertionError: The text contains NaN or Infinity.
    """

    def reject(name: str) -> None:
        raise AssertionError(f"{name} is not JSON")

    return json.loads(text, parse_constant=reject)
