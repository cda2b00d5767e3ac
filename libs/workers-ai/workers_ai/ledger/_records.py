"""What the ledger keeps and gives: values without behaviour."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from numbers import Real
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple

from workers_ai._calls.queue import require_queue
from workers_ai._calls.queued_embeddings import TEXTS_PER_JOB
from workers_ai._validation import check_model, require_int, require_one_of
from workers_ai._wire.batch import MAX_SUBMISSION_BYTES
from workers_ai._wire.json_parsing import replace_lone_surrogates
from workers_ai.catalogue import lookup
from workers_ai.errors import BadRequestError, ConfigurationError

if TYPE_CHECKING:
    from array import array

__all__ = [
    "has_half_pair",
    "JOBS_IN_FLIGHT",
    "Claim",
    "checked",
    "unsendable",
    "Failure",
    "Fed",
    "Fingerprint",
    "Limits",
    "InFlight",
    "Row",
    "as_sent",
    "check_manner",
    "estimated_tokens",
    "input_window",
    "text_hash",
    "well_formed",
]

JOBS_IN_FLIGHT: Final = 64
"""Submissions with the queue at one time: 64,000 texts in the minutes that each of them takes."""

_LARGEST_ID: Final = 2**63
_TASK: Final = "Text Embeddings"


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

    def __post_init__(self) -> None:
        """Check the options; raises :class:`~workers_ai.errors.ConfigurationError`."""
        task = lookup(check_model(self.model)).task
        if task not in (None, _TASK):
            raise ConfigurationError(f"{self.model} is a model for {task}: embed with one such as @cf/baai/bge-m3")
        require_one_of("pooling", self.pooling, (None, "mean", "cls"))
        require_one_of("truncate_inputs", self.truncate_inputs, (None, True, False))
        require_one_of("normalize", self.normalize, (True, False))
        if not isinstance(self.instruction, str | None):
            raise ConfigurationError(f"instruction must be a string or None, not {self.instruction!r:.200}")


@dataclass
class Limits:
    """Bounds of one ingestion.

    Attributes:
        texts_per_job: Texts of one submission.
        max_bytes: Bytes of one submission.
        jobs: Submissions that are sent or with the queue at one time.
        deadline_s: Seconds the run may take, or None.
        cost_usd: Estimated USD it may cost, or None.
    """

    texts_per_job: int = TEXTS_PER_JOB
    max_bytes: int = MAX_SUBMISSION_BYTES
    jobs: int = JOBS_IN_FLIGHT
    deadline_s: float | None = None
    cost_usd: float | None = None

    def __post_init__(self) -> None:
        """Check what a caller gives, under the caller's names; raises ConfigurationError."""
        require_int("texts_per_job", self.texts_per_job, 1, None)
        for name, bound in (("deadline_s", self.deadline_s), ("limit_cost_usd", self.cost_usd)):
            if bound is not None and not (isinstance(bound, Real) and bound >= 0):  # NaN is no bound
                raise ConfigurationError(f"{name} must be a number of 0 or more, or None, not {bound!r:.200}")


class Failure(NamedTuple):
    """A document that could not be embedded.

    Attributes:
        id: Its id.
        code: Cloudflare's error code, or None.
        message: Why.
        position: Its place in the source, from 0.
    """

    id: Any
    code: int | None
    message: str
    position: int


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
        request_id: The queue's id once it is accepted, else None.
        age_s: Seconds since a job that was taken over was claimed, by the clock.
    """

    job: int
    groups: list[list[int]]
    texts: list[list[str]] = field(default_factory=list)
    tokens: int = 0
    request_id: str | None = None
    age_s: float = 0.0

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
        truncated: Its documents whose text is probably longer than the model reads.
    """

    open: set[int]
    held: set[int]
    failed: int
    truncated: int = 0


def check_manner(model: str, mode: str, empty_text: str) -> None:
    """Check how texts are to be sent.

    Raises:
        ConfigurationError: An option is none of those there are, or the model has no queue.
    """
    require_one_of("mode", mode, ("queue", "direct"))
    require_one_of("empty_text", empty_text, ("raise", "space"))
    if mode == "queue":
        require_queue(model)


def as_sent(text: str, instruction: str | None, empty_text: Literal["raise", "space"]) -> str:
    """Return a document's text as it is embedded, as direct calls send it; "" if it is empty and must not be."""
    if not text and empty_text == "space":
        text = " "
    return well_formed(f"{instruction or ''}{text}") if text else text


def well_formed(text: str) -> str:
    """Return the text with lone surrogates replaced, as a request carries it."""
    if not has_half_pair(text):
        return text
    return replace_lone_surrogates(text)


def checked(document: Any) -> tuple[str | int, str]:
    """Return a document as (id, text), as the ledger keeps it.

    Raises:
        BadRequestError: It is neither a pair of an id (a string or an integer) and a text, nor a mapping with ``id``
            and ``text``; says which document.
    """
    if isinstance(document, Mapping) and "id" in document and "text" in document:
        doc_id, text = document["id"], document["text"]
    elif isinstance(document, (tuple, list)) and len(document) == 2:
        doc_id, text = document
    else:
        raise BadRequestError(
            f"a document is a pair of id and text, not {document!r:.200}; a mapping with 'id' and 'text' is one, too"
        )
    if not isinstance(text, str):
        raise BadRequestError(f"the text of {doc_id!r:.200} is a {type(text).__name__}, not a string")
    if isinstance(doc_id, str):
        if has_half_pair(doc_id):
            raise BadRequestError(f"the id {doc_id!r:.200} holds half a surrogate pair, which is no character")
    elif not (isinstance(doc_id, int) and not isinstance(doc_id, bool) and -_LARGEST_ID <= doc_id < _LARGEST_ID):
        raise BadRequestError(f"the id {doc_id!r:.200} is neither a string nor an integer of 64 bits: convert it")
    return doc_id, text


def unsendable(text: str, size: int, max_bytes: int) -> str | None:
    """Why a text of ``size`` bytes cannot be sent; None where it can."""
    if not text:
        return "the text is empty"
    if size > max_bytes:
        return f"the text has {size:,} bytes; {max_bytes:,} can be sent"
    return None


def has_half_pair(text: str) -> bool:
    """Whether a text holds half a surrogate pair, which UTF-8 cannot carry."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return True
    return False


def text_hash(text: str) -> bytes:
    """Return the SHA-256 of a text as it is sent; it identifies the text in the ledger."""
    try:
        return hashlib.sha256(text.encode()).digest()
    except UnicodeEncodeError:
        return hashlib.sha256(well_formed(text).encode()).digest()


def estimated_tokens(size: int, window: int | None = None) -> int:
    """Estimate the tokens that are read of a text: a quarter of its bytes, 1 at least, ``window`` at most."""
    tokens = max(1, size // 4)
    return tokens if window is None else min(tokens, window)


def input_window(model: str) -> int | None:
    """Return the tokens that a model reads of one text; None if that is not known."""
    card = lookup(model)
    return card.max_input_tokens or card.context_window
