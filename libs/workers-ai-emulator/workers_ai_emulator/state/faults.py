"""Faults: scripted deviations, matched request by request."""

from __future__ import annotations

import dataclasses
import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, get_args

from workers_ai_emulator.catalogue import is_chat, is_third_party
from workers_ai_emulator.shapes.quirks import WHOLE
from workers_ai_emulator.shapes.sse import FRAMING
from workers_ai_emulator.shapes.stream_quirks import STREAMED

if TYPE_CHECKING:
    import random
    from collections.abc import Collection

    from workers_ai_emulator.wire import Layer, Spelling

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


@dataclass
class Fault:
    """One deviation.

    Attributes:
        kind: What happens. ``answer``: the model says ``text`` and calls ``calls``. ``error``: the service
            refuses. ``reply``: exactly this reply. ``html``: an edge
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
            ``submit``, ``poll``, ``models_search``, ``models_schema``, ``v1_models``, ``verify``, ``batch_worker``,
            ``universal``, ``messages``.
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
        text: Text of an ``answer``.
        calls: Tool calls of an ``answer``, as (name, arguments).
        met: How many requests it has met; read it in tests.

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
    spelling: Spelling = ""
    retry_after: str | None = None
    headers: dict[str, str] = field(default_factory=dict)
    body: Any = b""
    chunks: list[bytes] | None = None
    seconds: float = 0.0
    abrupt: bool = False
    after_events: int = 1
    shape: str = ""
    text: str = ""
    calls: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    met: int = 0

    def __post_init__(self) -> None:
        _check_name("kind", self.kind, get_args(FaultKind))
        if self.kind == "shape":
            _check_name("shape", self.shape, SHAPES)
        if self.route is not None:
            _check_name("route", self.route, get_args(Route))
        if self.model is not None and not self.model.startswith("@") and not is_third_party(self.model):
            raise ValueError(f"unknown model {self.model!r}; ids of the catalogue begin with @")

    @property
    def replaces_reply(self) -> bool:
        """Return whether the fault replaces the whole reply."""
        return self.kind in _REPLACE_REPLY

    @property
    def replaces_answer(self) -> bool:
        """Return whether the fault replaces the model's answer; at most one such fault applies to a request."""
        return self.kind in _REPLACE_ANSWER

    def on(self, **changes: Any) -> Fault:
        """Return a copy with other fields: ``Fault.say("a").on(model=…, times=2)``."""
        return dataclasses.replace(self, **changes)

    def and_call(self, name: str, /, **arguments: Any) -> Fault:
        """Return a copy of an ``answer`` with one more tool call."""
        return dataclasses.replace(self, calls=[*self.calls, (name, arguments)])

    def matches(self, route: str, model: str, stream: bool) -> bool:
        """Whether it concerns such a request."""
        return (
            (self.times is None or self.met < self.times)
            and self.model in {None, model}
            and self.route in {None, route}
            and self.stream in {None, stream}
            and (stream or self.kind not in _STREAMED)
            and (self.kind != "answer" or (route in _CHAT_ROUTES and is_chat(model)))
        )

    @classmethod
    def say(cls, text: str, **where: Any) -> Fault:
        """The model answers this text to one chat request; several are a script, in the order of adding."""
        return cls("answer", text=text, **where)

    @classmethod
    def call(cls, name: str, /, **arguments: Any) -> Fault:
        """The model calls this tool with these arguments; see also :meth:`and_call` and :meth:`on`."""
        return cls("answer", calls=[(name, arguments)])

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
                if not fault.matches(route, model, stream) or (
                    fault.replaces_answer and any(one.replaces_answer for one in drawn)
                ):
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
    values["calls"] = [(str(name), dict(arguments)) for name, arguments in values.get("calls") or []]
    return Fault(**values)


def _check_name(what: str, name: str, known: Collection[str]) -> None:
    if name not in known:
        raise ValueError(f"unknown {what} {name!r}; choose one of {sorted(known)}")


def _plain(value: Any) -> Any:
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    return [_plain(item) for item in value] if isinstance(value, list) else value
