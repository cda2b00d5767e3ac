"""The interface between the engine and its two tasks, embedding and generating."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from workers_ai.types import BatchItem, BatchStatus, Usage

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from workers_ai._flow.steps import Flow
    from workers_ai._wire.json_types import JSON
    from workers_ai.errors import BatchItemError
    from workers_ai.ledger._records import Document, Measured, ResultRow, Stored

__all__ = ["Outcome", "Prepared", "Rewrite", "Task"]


class Prepared(NamedTuple):
    """One request: its body as an item of the queue, and the context for reading its reply."""

    body: Mapping[str, JSON]
    context: Any = None


class Rewrite(NamedTuple):
    """An input to send again in another form, because its answer was invalid."""

    id: int
    text: str
    measured: Measured


@dataclass
class Outcome:
    """Result of reading the reply to one request.

    Attributes:
        rows: Rows of the result table, each beginning with the input id; empty for a failed request.
        error: The error of the request, or None.
        again: The input to send again because its answer was invalid, or None.
        misfit: Reason why the answer does not match the schema, if it is kept anyway; else "".
        usage: Tokens and neurons of this request; None if the reply reports them for the whole job only.
    """

    rows: list[ResultRow] = field(default_factory=list)
    error: BatchItemError | None = None
    again: Rewrite | None = None
    misfit: str = ""
    usage: Usage | None = None


class Task(Protocol):
    """A kind of bulk work.

    Attributes:
        model: Model id.
        noun: Plural name of its inputs.
        verb: Verb for progress bars, such as "embedding".
        per_request: Maximum inputs of one request.
        request_tokens: Maximum estimated tokens of one request, or None.
        reads_inputs: Whether :meth:`read` needs the inputs. If so, they are loaded from the ledger.
    """

    model: str
    noun: str
    verb: str
    per_request: int
    request_tokens: int | None
    reads_inputs: bool

    def document(self, item: object) -> Document:
        """Return an item of the source as the ledger stores it. Raise BadRequestError for an invalid item."""
        ...

    def measure(self, text: str) -> Measured:
        """Return size and price of an input."""
        ...

    def prepare(self, texts: Sequence[str], keys: Sequence[bytes]) -> Prepared:
        """Return the request of some inputs as an item of a submission."""
        ...

    def send(self, texts: Sequence[str]) -> Flow[BatchStatus]:
        """Send a direct request; return its reply as the only item of a finished job."""
        ...

    def begin(self, dimensions: int | None) -> None:
        """Prepare for a run. ``dimensions`` is the length of the ledger's vectors, or None if it has none."""
        ...

    def match(self, items: Sequence[BatchItem], keys: Sequence[bytes] | None) -> Sequence[BatchItem]:
        """Return the items of a job in the order of its requests, checked against their references."""
        ...

    def read(
        self, group: Sequence[int], item: BatchItem, inputs: Sequence[Stored], context: Any, request_id: str | None
    ) -> Outcome:
        """Return the results in the reply to one request."""
        ...

    def share(self, outcomes: Sequence[Outcome], usage: Usage | None, tokens: int) -> Usage:
        """Return the usage of a job. Set the usage of each row without one to its share."""
        ...

    def neurons(self, usage: Usage) -> float | None:
        """Return the neurons of a job: as reported, else by list price; None without a price."""
        ...
