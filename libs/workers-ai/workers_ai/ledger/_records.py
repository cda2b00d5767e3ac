"""Values that the ledger, the engine and their callers exchange."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from numbers import Integral, Real
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, Protocol, TypeAlias, runtime_checkable

from workers_ai._calls.queue import require_queue
from workers_ai._validation import require_int, require_one_of
from workers_ai._wire.batch import MAX_SUBMISSION_BYTES
from workers_ai._wire.json_parsing import replace_lone_surrogates
from workers_ai.catalogue import lookup
from workers_ai.errors import BadRequestError, ConfigurationError

if TYPE_CHECKING:
    from array import array
    from collections.abc import Iterable

__all__ = [
    "JOBS_IN_FLIGHT",
    "LARGE_RUN",
    "QUEUE_MINUTES",
    "AnswerEntry",
    "AnswerRow",
    "Claim",
    "Document",
    "Failure",
    "Fed",
    "InFlight",
    "Limits",
    "Measured",
    "ResultRow",
    "Row",
    "Stored",
    "as_mapping",
    "as_sent",
    "check_mode",
    "checked",
    "checked_id",
    "estimated_tokens",
    "has_lone_surrogate",
    "input_window",
    "text_hash",
    "unsendable",
    "well_formed",
]

JOBS_IN_FLIGHT: Final = 64
"""Maximum number of submissions in the queue at one time."""

QUEUE_MINUTES: Final = 5.0
"""Minutes in which most jobs of the queue are done, for estimates."""

LARGE_RUN: Final = 1_000_000
"""Number of inputs above which a run sends larger submissions."""

_LARGEST_ID: Final = 2**63


@dataclass
class Limits:
    """Bounds of one run.

    Attributes:
        per_job: Maximum inputs of one submission.
        name: The caller's name of ``per_job``, for errors.
        max_bytes: Maximum bytes of one submission.
        jobs: Maximum submissions that are sent or in the queue at one time.
        deadline_s: Maximum seconds of the run, or None.
        cost_usd: Maximum estimated cost of the run in USD, or None.
        grown: Maximum inputs of one submission in a run of more than a million inputs, or None for ``per_job``.
    """

    per_job: int
    name: str = "texts_per_job"
    max_bytes: int = MAX_SUBMISSION_BYTES
    jobs: int = JOBS_IN_FLIGHT
    deadline_s: float | None = None
    cost_usd: float | None = None
    grown: int | None = None

    def __post_init__(self) -> None:
        """Check the arguments. Raise a ConfigurationError with the caller's name of an invalid one."""
        require_int(self.name, self.per_job, 1, 1_000_000)
        for name, bound in (("deadline_s", self.deadline_s), ("limit_cost_usd", self.cost_usd)):
            if bound is not None and (isinstance(bound, bool) or not (isinstance(bound, Real) and bound >= 0)):
                raise ConfigurationError(
                    f"{name} must be a number of 0 or more, or None, not {bound!r:.200}", arguments=(name,)
                )
        if self.cost_usd is not None and self.cost_usd > sys.float_info.max:
            self.cost_usd = None


class Document(NamedTuple):
    """One input of a run.

    Attributes:
        id: The caller's id.
        key: SHA-256 that identifies the input in the ledger. Documents with one key share one result.
        text: Form of the input in the ledger until it has a result.
        is_long: Whether the input is probably longer than the model reads.
    """

    id: str | int
    key: bytes
    text: str
    is_long: bool = False


class Measured(NamedTuple):
    """Size and price of one input.

    Attributes:
        size: Bytes in a request.
        tokens: Estimated input tokens.
        ahead: Maximum neurons it may cost; 0 without a price.
        why: Reason why it cannot be sent, or None.
        made: Maximum output tokens that the request sets; 0 if it sets none.
    """

    size: int
    tokens: int
    ahead: float = 0.0
    why: str | None = None
    made: int = 0


class Failure(NamedTuple):
    """An input without a usable result.

    Attributes:
        id: The caller's id.
        code: Cloudflare's error code, or None.
        message: Reason of the failure.
        position: Position in the source, from 0.
    """

    id: Any
    code: int | None
    message: str
    position: int


class Row(NamedTuple):
    """One document of a run: its id, the SHA-256 of its text, and its float32 vector (None if it failed)."""

    id: Any
    hash: bytes
    vector: array[float] | None


class AnswerRow(NamedTuple):
    """One input of a run and its answer in the ledger, if any.

    Attributes:
        id: The caller's id.
        hash: SHA-256 of the input.
        answer: The assistant message as JSON text, or None.
        finish: Its finish reason.
        input_tokens: Tokens read; None if not reported.
        output_tokens: Tokens written; None if not reported.
        neurons: Neurons; None if not reported.
        code: Error code of the failure, or None.
        error: Why the input failed, or why its answer does not match the schema; else None.
        position: Position in the source, from 0.
    """

    id: Any
    hash: bytes
    answer: str | None
    finish: str | None
    input_tokens: int | None
    output_tokens: int | None
    neurons: float | None
    code: int | None
    error: str | None
    position: int


class AnswerEntry(NamedTuple):
    """A row of the table of answers.

    Attributes:
        id: Id of the input in the ledger.
        answer: The assistant message as JSON text.
        finish: Its finish reason.
        input_tokens: Tokens read; None if not reported.
        output_tokens: Tokens written; None if not reported.
        neurons: Neurons; None if not reported.
        estimated: 1 if the tokens are a share of those of the whole job.
        request_id: The queue's id of the job, or None.
        at: Seconds since the epoch.
    """

    id: int
    answer: str
    finish: str | None
    input_tokens: int | None
    output_tokens: int | None
    neurons: float | None
    estimated: int
    request_id: str | None
    at: float


ResultRow: TypeAlias = "tuple[int, bytes] | AnswerEntry"
"""A row of the table of results: id and vector, or an answer."""


class InFlight(NamedTuple):
    """A submission that was not collected yet.

    Attributes:
        request_id: The queue's id; None if it is about to be sent.
        texts: Number of inputs.
        age_s: Seconds since its inputs were claimed.
        alive: Whether the process that claimed its inputs still runs.
    """

    request_id: str | None
    texts: int
    age_s: float
    alive: bool


class Stored(NamedTuple):
    """An input of a job as the ledger stores it: its hash, its text, and the number of invalid answers so far."""

    key: bytes
    text: str
    repairs: int


@dataclass
class Claim:
    """Inputs that one run has claimed: one submission.

    Attributes:
        job: Number of the submission in the ledger.
        groups: The input ids of each request.
        texts: The inputs of each request; empty once they are sent, and for an adopted job.
        tokens: Estimated input tokens.
        ahead: Maximum neurons that the submission may cost.
        request_id: The queue's id of the accepted submission, else None.
        age_s: Seconds since an adopted job was claimed, by the clock.
        contexts: Context for reading the reply to each request; empty for an adopted job.
    """

    job: int
    groups: list[list[int]]
    texts: list[list[str]] = field(default_factory=list)
    tokens: int = 0
    ahead: float = 0.0
    request_id: str | None = None
    age_s: float = 0.0
    contexts: list[Any] = field(default_factory=list)

    @property
    def size(self) -> int:
        """Number of inputs."""
        return sum(map(len, self.groups))

    @property
    def ids(self) -> list[int]:
        """The input ids of all requests."""
        return [input_id for group in self.groups for input_id in group]


class Fed(NamedTuple):
    """State of a chunk of documents in the ledger.

    Attributes:
        open: Ids of the inputs that still need a result.
        held: Ids of the inputs that have a usable result.
        failed: Number of documents whose input has failed.
    """

    open: set[int]
    held: set[int]
    failed: int


def check_mode(model: str, mode: str) -> None:
    """Raise ``ConfigurationError`` if the mode is unknown, or the model has no queue."""
    require_one_of("mode", mode, ("queue", "direct"))
    if mode == "queue":
        require_queue(model)


def as_sent(text: str, instruction: str | None, empty_text: Literal["raise", "space"]) -> str:
    """Return the text of a document as direct calls send it; "" for an empty text, which is not sent."""
    if not text and empty_text == "space":
        text = " "
    return well_formed(f"{instruction or ''}{text}") if text else text


def well_formed(text: str) -> str:
    """Return the text as a request sends it: with lone surrogates replaced."""
    if not has_lone_surrogate(text):
        return text
    return replace_lone_surrogates(text)


def checked_id(doc_id: object) -> str | int:
    """Return an id that the ledger can store.

    Raises:
        BadRequestError: The id is neither a string without lone surrogates nor an integer of 64 bits.
    """
    if isinstance(doc_id, str):
        if has_lone_surrogate(doc_id):
            raise BadRequestError(f"the id {doc_id!r:.200} contains a lone surrogate: remove it")
        return doc_id
    if isinstance(doc_id, Integral) and not isinstance(doc_id, bool) and -_LARGEST_ID <= int(doc_id) < _LARGEST_ID:
        return int(doc_id)  # integers of NumPy, too
    raise BadRequestError(f"the id {doc_id!r:.200} is neither a string nor an integer of 64 bits: convert it")


@runtime_checkable
class _DatabaseRow(Protocol):
    def keys(self) -> Iterable[str]: ...
    def __getitem__(self, key: str, /) -> object: ...


def as_mapping(row: object) -> dict[str, object] | None:
    """Return a named tuple, or a row of a database such as a ``sqlite3.Row``, as a dict; None for any other value."""
    if type(row) is tuple:
        return None
    if isinstance(row, tuple) and (as_dict := getattr(row, "_asdict", None)) is not None:
        return dict(as_dict())
    if isinstance(row, (tuple, str, list, Mapping)) or not hasattr(row, "keys") or not isinstance(row, _DatabaseRow):
        return None  # ``hasattr`` first: the check of a protocol takes ten times as long
    return {key: row[key] for key in row.keys()}  # noqa: SIM118 - iterating over a row yields its values


def checked(document: Any) -> tuple[str | int, str]:
    """Return a document as (id, text).

    Raises:
        BadRequestError: The document is neither a pair of an id (a string or an integer) and a text, nor a mapping with
            ``id`` and ``text``.
    """
    if isinstance(document, Mapping) and "id" in document and "text" in document:
        doc_id, text = document["id"], document["text"]
    elif isinstance(document, (tuple, list)) and len(document) == 2:
        doc_id, text = document
    elif (row := as_mapping(document)) is not None:
        return checked(row)
    else:
        raise BadRequestError(
            f"a document must be a pair of id and text, or a mapping with 'id' and 'text', not {document!r:.200}"
        )
    if not isinstance(text, str):
        raise BadRequestError(f"the text of {doc_id!r:.200} is a {type(text).__name__}, not a string: convert it")
    return checked_id(doc_id), text


def unsendable(text: str, size: int, max_bytes: int) -> str | None:
    """Return why a text of ``size`` bytes cannot be sent; None if it can."""
    if not text:
        return "the text is empty"
    if size > max_bytes:
        return f"the text has {size:,} bytes; the limit is {max_bytes:,} bytes: split it"
    return None


def has_lone_surrogate(text: str) -> bool:
    """Return whether a text contains a lone surrogate, which UTF-8 cannot encode."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return True
    return False


def text_hash(text: str) -> bytes:
    """Return the SHA-256 of a text as it is sent; it identifies the text in a ledger of embeddings."""
    try:
        return hashlib.sha256(text.encode()).digest()
    except UnicodeEncodeError:
        return hashlib.sha256(well_formed(text).encode()).digest()


def estimated_tokens(size: int, window: int | None = None) -> int:
    """Estimate the tokens of a text: a quarter of its bytes, at least 1, at most ``window``."""
    tokens = max(1, size // 4)
    return tokens if window is None else min(tokens, window)


def input_window(model: str) -> int | None:
    """Return the maximum number of tokens that a model reads per text; None if unknown."""
    card = lookup(model)
    return card.max_input_tokens or card.context_window
