"""Faults: scripted replies and errors, matched request by request."""

from __future__ import annotations

import dataclasses
import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, TypedDict, Unpack, get_args

from workers_ai_emulator.catalogue import is_chat, is_third_party
from workers_ai_emulator.shapes.quirks import WHOLE
from workers_ai_emulator.shapes.sse import FRAMING
from workers_ai_emulator.shapes.stream_quirks import STREAMED

if TYPE_CHECKING:
    import random
    from collections.abc import Collection

    from workers_ai_emulator.wire import Envelope, Json, Layer

FaultKind = Literal[
    "answer", "error", "reply", "html", "drop", "latency", "cut", "error_frame", "slow", "one_byte_chunks", "shape"
]
Route = Literal[
    "run", "run_shared", "chat_completions", "embeddings", "responses", "submit", "poll", "models_search",
    "models_schema", "verify", "batch_worker", "universal", "v1_models", "messages",
]  # fmt: skip
SHAPES = frozenset(WHOLE) | frozenset(STREAMED) | FRAMING | {"json_for_stream"}
_CHAT_ROUTES = {"run", "run_shared", "chat_completions", "responses"}
_STREAMED = {"cut", "error_frame"}
_REPLACE_REPLY = {"error", "reply", "html", "drop"}
_REPLACE_ANSWER = _REPLACE_REPLY | {"answer"}


class FaultScope(TypedDict, total=False):
    """Keywords of all constructors of :class:`Fault`; see its attributes."""

    times: int | None
    skip: int
    probability: float
    model: str | None
    route: str | None
    stream: bool | None
    layer: Layer
    envelope: Envelope
    retry_after: str | None
    headers: dict[str, str]


@dataclass
class Fault:
    """One scripted reply, error or change of a reply.

    Attributes:
        kind: Effect. ``answer``: the model answers ``text`` and ``calls``. ``error``: an error response.
            ``reply``: exactly this reply. ``html``: an edge error page. ``drop``: the connection closes without a
            reply. ``latency``: the reply starts ``seconds`` later. ``cut``: a stream ends after ``after_events``.
            ``error_frame``: an error event after ``after_events`` events, then the end. ``slow``: ``seconds``
            before each piece of a reply. ``one_byte_chunks``: the body is sent byte by byte. ``shape``: a named
            shape of the reply, see the README.
        times: Number of requests that the fault applies to; None for all.
        skip: Number of matching requests before the fault applies.
        probability: Probability that a matching request is affected, from the seeded generator.
        model: Apply to this model only.
        route: Apply to this route only: ``run``, ``run_shared``, ``chat_completions``, ``embeddings``, ``responses``,
            ``submit``, ``poll``, ``models_search``, ``models_schema``, ``v1_models``, ``verify``, ``batch_worker``,
            ``universal``, ``messages``.
        stream: Apply only to requests with (True) or without (False) streaming.
        status: HTTP status of an ``error``, ``reply`` or ``html``.
        code: Cloudflare's code of an ``error`` or ``error_frame``.
        message: Text of the error, without prefix and request id.
        layer: Origin of an ``error``. It determines the envelope.
        envelope: Another envelope of an ``error``: ``object`` (``errors`` is one object) or ``binding``.
        retry_after: Value of a ``retry-after`` header.
        headers: Extra reply headers.
        body: Body of a ``reply``: text, bytes, or a JSON value.
        chunks: Pieces of a streamed ``reply``. The default content type is ``text/event-stream``.
        seconds: Length of a ``latency`` or of each pause of ``slow``.
        abrupt: Whether a ``cut`` drops the connection instead of ending the body.
        after_events: Events that are sent before a ``cut`` or ``error_frame``.
        shape: Name of a ``shape``.
        text: Text of an ``answer``.
        calls: Tool calls of an ``answer``, as (name, arguments).
        applied: Number of requests that the fault was applied to, for assertions in tests.

    Raises:
        ValueError: If the kind, the shape or the route is unknown, or the model id has no ``@``.
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
    envelope: Envelope = ""
    retry_after: str | None = None
    headers: dict[str, str] = field(default_factory=dict)
    body: Any = b""
    chunks: list[bytes] | None = None
    seconds: float = 0.0
    abrupt: bool = False
    after_events: int = 1
    shape: str = ""
    text: str = ""
    calls: list[tuple[str, Json]] = field(default_factory=list)
    applied: int = 0

    def __post_init__(self) -> None:
        _check_name("kind", self.kind, get_args(FaultKind))
        if self.kind == "shape":
            _check_name("shape", self.shape, SHAPES)
        if self.route is not None:
            _check_name("route", self.route, get_args(Route))
        if self.model is not None and not self.model.startswith("@") and not is_third_party(self.model):
            raise ValueError(f"unknown model {self.model!r}; use an id of the catalogue, which begins with @")

    @property
    def replaces_reply(self) -> bool:
        """Return whether the fault replaces the complete reply."""
        return self.kind in _REPLACE_REPLY

    @property
    def replaces_answer(self) -> bool:
        """Return whether the fault replaces the model's answer. At most one such fault applies to a request."""
        return self.kind in _REPLACE_ANSWER

    def on(self, **changes: Unpack[FaultScope]) -> Fault:
        """Return a copy with other fields: ``Fault.say("a").on(model=…, times=2)``."""
        return dataclasses.replace(self, **changes)

    def and_call(self, name: str, /, **arguments: Any) -> Fault:
        """Return a copy of an ``answer`` with one more tool call."""
        return dataclasses.replace(self, calls=[*self.calls, (name, arguments)])

    def matches(self, route: str, model: str, stream: bool) -> bool:
        """Return whether the fault applies to such a request."""
        return (
            (self.times is None or self.applied < self.times)
            and self.model in {None, model}
            and self.route in {None, route}
            and self.stream in {None, stream}
            and (stream or self.kind not in _STREAMED)
            and (self.kind != "answer" or (route in _CHAT_ROUTES and is_chat(model)))
        )

    @classmethod
    def say(cls, text: str, **scope: Unpack[FaultScope]) -> Fault:
        """Answer one chat request with this text. Several faults form a script and apply in the order of adding."""
        return cls("answer", text=text, **scope)

    @classmethod
    def call(cls, name: str, /, **arguments: Any) -> Fault:
        """Answer one chat request with this tool call. See also :meth:`and_call` and :meth:`on`."""
        return cls("answer", calls=[(name, arguments)])

    @classmethod
    def busy(cls, **scope: Unpack[FaultScope]) -> Fault:
        """Return the error of a model at capacity: 429, code 3040."""
        return cls(
            "error",
            status=429,
            code=3040,
            message="Capacity temporarily exceeded, please try again.",
            **scope,
        )

    @classmethod
    def error(cls, status: int, code: int | None = None, message: str = "", **scope: Unpack[FaultScope]) -> Fault:
        """Return an error response with this status and code."""
        return cls("error", status=status, code=code, message=message, **scope)

    @classmethod
    def reply(cls, body: Any = b"", status: int = 200, **scope: Unpack[FaultScope]) -> Fault:
        """Send exactly this reply, without streaming."""
        return cls("reply", status=status, body=body, **scope)

    @classmethod
    def sse(cls, chunks: list[bytes], status: int = 200, **scope: Unpack[FaultScope]) -> Fault:
        """Stream exactly these bytes, piece by piece."""
        return cls("reply", status=status, chunks=list(chunks), **scope)

    @classmethod
    def drop(cls, **scope: Unpack[FaultScope]) -> Fault:
        """Close the connection without a reply."""
        return cls("drop", **scope)

    @classmethod
    def html(cls, status: int = 522, **scope: Unpack[FaultScope]) -> Fault:
        """Send an HTML error page of the edge."""
        return cls("html", status=status, **scope)

    @classmethod
    def cut(cls, after_events: int = 1, *, abrupt: bool = False, **scope: Unpack[FaultScope]) -> Fault:
        """End a stream after ``after_events`` events; with ``abrupt``, drop the connection."""
        return cls("cut", after_events=after_events, abrupt=abrupt, **scope)

    @classmethod
    def error_frame(cls, code: int, message: str = "", after_events: int = 1, **scope: Unpack[FaultScope]) -> Fault:
        """Send an error event inside a stream that began with status 200."""
        return cls("error_frame", code=code, message=message, after_events=after_events, **scope)

    @classmethod
    def slow(cls, seconds: float, **scope: Unpack[FaultScope]) -> Fault:
        """Wait ``seconds`` before each piece of the reply."""
        return cls("slow", seconds=seconds, **scope)

    @classmethod
    def latency(cls, seconds: float, **scope: Unpack[FaultScope]) -> Fault:
        """Add ``seconds`` before the reply begins."""
        return cls("latency", seconds=seconds, **scope)

    @classmethod
    def named_shape(cls, shape: str, **scope: Unpack[FaultScope]) -> Fault:
        """Send replies in a named shape. Applies to all replies unless ``times`` is set."""
        scope.setdefault("times", None)
        return cls("shape", shape=shape, **scope)

    def as_dict(self) -> Json:
        """Return the fault as plain data. Bytes become text."""
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
        """Add faults. Return the last one, so that tests can read ``applied``."""
        with self._lock:
            self._faults.extend(faults)
        return faults[-1]

    def clear(self) -> None:
        """Remove all faults."""
        with self._lock:
            self._faults.clear()

    def remove(self, fault: Fault) -> None:
        """Remove one fault."""
        with self._lock:
            self._faults.remove(fault)

    @property
    def all(self) -> list[Fault]:
        """Return a copy of the script."""
        with self._lock:
            return list(self._faults)

    def draw(self, route: str, model: str, stream: bool) -> list[Fault]:
        """Return the faults of a request: at most one that replaces the answer, and all that alter it."""
        drawn: list[Fault] = []
        with self._lock:
            for fault in self._faults:
                if not fault.matches(route, model, stream) or (
                    fault.replaces_answer and any(one.replaces_answer for one in drawn)
                ):
                    continue
                if fault.skip > 0:
                    fault.skip -= 1
                elif fault.probability >= 1.0 or self._rng.random() < fault.probability:
                    fault.applied += 1
                    drawn.append(fault)
        return drawn


def fault_from_dict(data: Json) -> Fault:
    """Build a fault from plain data, as received over HTTP.

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
    values["calls"] = [(str(name), dict(arguments)) for name, arguments in values.get("calls") or []]
    return Fault(**values)


def _check_name(what: str, name: str, known: Collection[str]) -> None:
    if name not in known:
        raise ValueError(f"unknown {what} {name!r}; choose one of {sorted(known)}")


def _plain(value: Any) -> Any:
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    return [_plain(item) for item in value] if isinstance(value, list) else value
