"""The result of one check."""

from __future__ import annotations

from typing import Literal, NamedTuple

__all__ = ["Finding", "Status"]

Status = Literal["ok", "warning", "failed", "skipped"]


class Finding(NamedTuple):
    """The result of one check.

    Attributes:
        check: What was checked.
        status: ``"failed"`` if calls cannot work, ``"warning"`` if they may, ``"skipped"`` if it could not be checked.
        detail: The observation; never the token.
        remedy: What to do, or "".
    """

    check: str
    status: Status
    detail: str
    remedy: str = ""
