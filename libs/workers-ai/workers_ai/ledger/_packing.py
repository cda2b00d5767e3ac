"""Pack inputs into requests, and requests into a submission. Claims and estimates share it."""

from __future__ import annotations

from typing import Final, Literal

__all__ = ["Packer"]

_FRAME_BYTES: Final = 64


class Packer:
    """Assign the inputs of one submission to its requests.

    Args:
        texts: Maximum inputs of the submission.
        max_bytes: Maximum bytes of the submission.
        max_tokens: Maximum estimated tokens of one request, or None.
        requests: Maximum requests of the submission, or None.
    """

    def __init__(self, texts: int, max_bytes: int, max_tokens: int | None, requests: int | None = None) -> None:
        self._left = texts
        self._bytes_left = max_bytes
        self._max_tokens = max_tokens
        self._requests_left = requests
        self._room = self._length = self._tokens = 0
        self._empty = True

    def add(self, size: int, tokens: int, part: int) -> Literal["same", "new", "full"]:
        """Add an input of ``size`` bytes to the current request or to a new one; return ``"full"`` if it does not fit.

        The first input always fits.
        """
        size += _FRAME_BYTES
        if not self._empty and (self._left == 0 or size > self._bytes_left):
            return "full"
        opens = self._length >= min(self._room, part) or bool(
            self._max_tokens and self._tokens + tokens > self._max_tokens
        )
        if opens:
            if self._requests_left == 0:
                return "full"
            if self._requests_left is not None:
                self._requests_left -= 1
            self._room, self._length, self._tokens = part, 0, 0
        self._empty = False
        self._left -= 1
        self._bytes_left -= size
        self._room = min(self._room, part)
        self._length += 1
        self._tokens += tokens
        return "new" if opens else "same"
