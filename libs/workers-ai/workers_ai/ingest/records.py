"""What the ledger keeps and gives: values without behaviour."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

if TYPE_CHECKING:
    from array import array

__all__ = ["Claim", "Failure", "Fed", "Fingerprint", "InFlight", "Row", "as_sent", "estimated_tokens", "text_hash"]


@dataclass(frozen=True)
class Fingerprint:
    """What shapes the vectors of a ledger, besides the texts; vectors of different fingerprints do not mix.

    Attributes:
        model: Model id.
        pooling: ``"mean"``, ``"cls"`` or None for the service's default.
        instruction: Text put before each document, or None.
        truncate_inputs: Whether the service cuts texts that are too long.
        normalize: Whether vectors are scaled to length 1.
    """

    model: str
    pooling: Literal["mean", "cls"] | None = None
    instruction: str | None = None
    truncate_inputs: bool | None = None
    normalize: bool = False


class Failure(NamedTuple):
    """A document that could not be embedded.

    Attributes:
        id: Its id.
        code: Cloudflare's error code, or None.
        message: Why.
    """

    id: Any
    code: int | None
    message: str


class Row(NamedTuple):
    """One document of a run: its id, the SHA-256 of its text, and its float32 vector (None where it failed)."""

    id: Any
    hash: bytes
    vector: array[float] | None


class InFlight(NamedTuple):
    """A submission that was not collected yet.

    Attributes:
        request_id: The queue's id; None where it was about to be sent.
        texts: Texts in it.
        age_s: Seconds since it was claimed.
        alive: Whether the process that claimed it is still at work.
    """

    request_id: str | None
    texts: int
    age_s: float
    alive: bool


@dataclass
class Claim:
    """Texts that this run alone will have embedded, as one submission.

    Attributes:
        job: Its number in the ledger.
        groups: The text ids of each request.
        texts: The texts of each request; empty once they are not needed, or for a job taken over.
        tokens: Estimated tokens.
        request_id: The queue's id of a job that was taken over, or None.
    """

    job: int
    groups: list[list[int]]
    texts: list[list[str]] = field(default_factory=list)
    tokens: int = 0
    request_id: str | None = None

    @property
    def size(self) -> int:
        """Texts in it."""
        return sum(map(len, self.groups))


class Fed(NamedTuple):
    """What became of a chunk of documents.

    Attributes:
        open: Ids of its texts that are still to be embedded.
        held: Ids of its texts that have a vector.
        failed: Its documents whose text has failed in this run.
    """

    open: set[int]
    held: set[int]
    failed: int


def as_sent(text: str, instruction: str | None, empty_text: Literal["raise", "space"]) -> str:
    """A document's text as it is embedded; "" where it is empty and may not be."""
    if not text and empty_text == "space":
        text = " "
    return f"{instruction or ''}{text}" if text else text


def text_hash(text: str) -> bytes:
    """The SHA-256 of a text, by which the ledger knows it."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()


def estimated_tokens(size: int) -> int:
    """Tokens of a text of so many bytes, about: four bytes make one in English; none is shorter than one."""
    return max(1, size // 4)
