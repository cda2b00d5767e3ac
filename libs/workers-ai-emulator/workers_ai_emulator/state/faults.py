"""Faults: scripted deviations, matched request by request."""

from __future__ import annotations

import dataclasses
import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    import random

    from workers_ai_emulator.wire import Layer, Spelling

FaultKind = Literal[
    "error", "reply", "html", "drop", "latency", "cut", "error_frame", "slow", "one_byte_chunks", "shape"
]
_STREAMED = {"cut", "error_frame"}
_BEFORE = {"error", "reply", "html", "drop"}


@dataclass
class Fault:
    """One deviation.

    Attributes:
        kind: What happens. ``error``: the service refuses. ``reply``: exactly this reply. ``html``: an edge
            error page. ``drop``: the connection closes with no reply. ``latency``: ``seconds`` more. ``cut``:
            a stream closes after ``after_events`` events. ``error_frame``: an error event after
            ``after_events`` events, then the end. ``slow``: ``seconds`` between the pieces of a reply.
            ``one_byte_chunks``: the body arrives byte by byte. ``shape``: a named spelling of the reply, see
            the README.
        times: How many requests it meets; None for all.
        skip: How many matching requests pass untouched first.
        probability: Chance to meet a matching request, drawn from the emulator's seeded generator.
        model: Only this model.
        route: Only this route: ``run``, ``run_shared``, ``chat_completions``, ``embeddings``, ``responses``,
            ``submit``, ``poll``, ``models_search``, ``models_schema``, ``verify``, ``batch_worker``.
        stream: Only streaming (True) or whole (False) requests.
        status: HTTP status of an ``error``, ``reply`` or ``html``.
        code: Cloudflare's code of an ``error`` or ``error_frame``.
        message: Its text, without prefix and request id.
        layer: Envelope of an ``error``: who refuses.
        spelling: Odd envelope of an ``error``: ``object`` (``errors`` is one object) or ``binding``.
        retry_after: Value of a ``retry-after`` header.
        headers: Extra reply headers.
        body: Body of a ``reply``: text, bytes, or anything that becomes JSON.
        chunks: Pieces of a streamed ``reply``; the content type is then ``text/event-stream`` unless set.
        seconds: Length of a ``latency`` or of each pause of ``slow``.
        abrupt: Whether a ``cut`` breaks the connection inside the body instead of ending it in good order.
        after_events: Events that pass before a ``cut`` or ``error_frame``.
        shape: Name of a ``shape``.
        met: How many requests it has met; read it in tests.
    """

    kind: FaultKind
    times: int | None = 1
    skip: int = 0
    probability: float = 1.0
    model: str | None = None
    route: str | None = None
    stream: bool | None = None
    status: int = 500
    code: int | None = None
    message: str = ""
    layer: Layer = "ai"
    spelling: Spelling = ""
    retry_after: str | None = None
    headers: dict[str, str] = field(default_factory=dict)
    body: Any = b""
    chunks: list[bytes] | None = None
    seconds: float = 0.0
    abrupt: bool = False
    after_events: int = 1
    shape: str = ""
    met: int = 0

    @property
    def before(self) -> bool:
        """Whether it takes the place of the service's own answer."""
        return self.kind in _BEFORE

    def matches(self, route: str, model: str, stream: bool) -> bool:
        """Whether it concerns such a request."""
        return (
            (self.times is None or self.met < self.times)
            and self.model in {None, model}
            and self.route in {None, route}
            and self.stream in {None, stream}
            and (stream or self.kind not in _STREAMED)
        )

    @classmethod
    def busy(cls, **where: Any) -> Fault:
        """No capacity: 429, code 3040."""
        return cls(
            "error",
            status=429,
            code=3040,
            message="Capacity temporarily exceeded, please try again.",
            **where,
        )

    @classmethod
    def error(cls, status: int, code: int | None = None, message: str = "", **where: Any) -> Fault:
        """The service refuses with this status and code."""
        return cls("error", status=status, code=code, message=message, **where)

    @classmethod
    def reply(cls, body: Any = b"", status: int = 200, **where: Any) -> Fault:
        """Exactly this reply, whole."""
        return cls("reply", status=status, body=body, **where)

    @classmethod
    def sse(cls, chunks: list[bytes], status: int = 200, **where: Any) -> Fault:
        """Exactly these bytes, streamed piece by piece."""
        return cls("reply", status=status, chunks=list(chunks), **where)

    @classmethod
    def drop(cls, **where: Any) -> Fault:
        """The connection closes without a reply."""
        return cls("drop", **where)

    @classmethod
    def html(cls, status: int = 522, **where: Any) -> Fault:
        """An HTML error page of the edge."""
        return cls("html", status=status, **where)

    @classmethod
    def cut(cls, after_events: int = 1, *, abrupt: bool = False, **where: Any) -> Fault:
        """A stream that just ends after so many events; with ``abrupt`` the connection breaks."""
        return cls("cut", after_events=after_events, abrupt=abrupt, **where)

    @classmethod
    def error_frame(cls, code: int, message: str = "", after_events: int = 1, **where: Any) -> Fault:
        """An error event inside a stream that began well."""
        return cls("error_frame", code=code, message=message, after_events=after_events, **where)

    @classmethod
    def slow(cls, seconds: float, **where: Any) -> Fault:
        """So many seconds before each piece of the reply."""
        return cls("slow", seconds=seconds, **where)

    @classmethod
    def latency(cls, seconds: float, **where: Any) -> Fault:
        """So many seconds more before the reply begins."""
        return cls("latency", seconds=seconds, **where)

    @classmethod
    def named_shape(cls, shape: str, **where: Any) -> Fault:
        """The reply in a named odd spelling; for every request unless ``times`` says otherwise."""
        return cls("shape", shape=shape, **{"times": None, **where})

    def as_dict(self) -> dict[str, Any]:
        """The fault as plain data; bytes as text."""
        return {key: _plain(value) for key, value in dataclasses.asdict(self).items()}


class Faults:
    """The script of faults, in the order in which they were added.

    Args:
        rng: The emulator's seeded generator, for ``probability``.
    """

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._lock = threading.Lock()
        self._faults: list[Fault] = []

    def add(self, *faults: Fault) -> Fault:
        """Add faults; returns the last one, to read ``met`` from."""
        with self._lock:
            self._faults.extend(faults)
        return faults[-1]

    def clear(self) -> None:
        """Forget all faults."""
        with self._lock:
            self._faults.clear()

    def remove(self, fault: Fault) -> None:
        """Take one fault out again."""
        with self._lock:
            self._faults.remove(fault)

    @property
    def all(self) -> list[Fault]:
        """A copy of the script."""
        with self._lock:
            return list(self._faults)

    def draw(self, route: str, model: str, stream: bool) -> list[Fault]:
        """The faults that meet this request: at most one that replaces the answer, and all that alter it."""
        drawn: list[Fault] = []
        with self._lock:
            for fault in self._faults:
                if not fault.matches(route, model, stream) or (fault.before and any(one.before for one in drawn)):
                    continue
                if fault.skip > 0:
                    fault.skip -= 1
                elif fault.probability >= 1.0 or self._rng.random() < fault.probability:
                    fault.met += 1
                    drawn.append(fault)
        return drawn


def fault_from_dict(data: dict[str, Any]) -> Fault:
    """A fault from plain data, as it comes over HTTP.

    Raises:
        ValueError: If a key is unknown or ``kind`` is missing.
    """
    names = {item.name for item in dataclasses.fields(Fault)}
    unknown = sorted(set(data) - names)
    if unknown or "kind" not in data:
        raise ValueError(f"unknown keys {unknown}; a fault needs 'kind' and may have {sorted(names)}")
    values = dict(data)
    if values.get("chunks") is not None:
        values["chunks"] = [str(chunk).encode() for chunk in values["chunks"]]
    return Fault(**values)


def _plain(value: Any) -> Any:
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    return [_plain(item) for item in value] if isinstance(value, list) else value
