"""Every request that came in, and what it added up to."""

from __future__ import annotations

import collections
import hashlib
import json
import threading
from dataclasses import dataclass, field
from typing import Any

REDACTED = "REDACTED"
_SECRET_HEADERS = {"authorization", "cf-aig-authorization", "x-auth-key"}
_MAX_HEADERS = 100
_MAX_VALUE = 2_000


@dataclass(slots=True)
class LogEntry:
    """One request.

    Attributes:
        method: HTTP method.
        path: Decoded path.
        query: Query parameters.
        headers: Request headers in lower case, secrets replaced by ``REDACTED``.
        at: Clock time of arrival, in seconds since the epoch.
        route: Name of the route, empty when none matched.
        model: Model asked for, empty when there was none.
        status: HTTP status of the reply; None while it is in work or when the connection was dropped.
        code: Cloudflare's code of the reply, None on success.
        body: Raw request body; None once the log has forgotten it to stay small.
    """

    method: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]
    at: float
    body: bytes | None = field(repr=False, default=None)
    route: str = ""
    model: str = ""
    status: int | None = None
    code: int | None = None

    @property
    def json(self) -> Any:
        """The request body, parsed; None when it is empty, forgotten or not JSON."""
        try:
            return json.loads(self.body) if self.body else None
        except ValueError:
            return None

    def as_dict(self) -> dict[str, Any]:
        """The entry as plain data."""
        names = ("method", "path", "query", "headers", "at", "route", "model", "status", "code")
        return {name: getattr(self, name) for name in names} | {"body": self.json}


class Log:
    """The requests, oldest first, and counters over all of them.

    Args:
        max_entries: Requests kept; older ones are forgotten, the counters are not.
        max_body_bytes: Bytes of request bodies kept in all; older bodies are forgotten first. Of paths and headers,
            2,000 characters each are kept, and 100 headers.
    """

    def __init__(self, max_entries: int = 20_000, max_body_bytes: int = 64 * 2**20) -> None:
        self._lock = threading.Lock()
        self._max_body_bytes = max_body_bytes
        self._max_entries = max_entries
        self.clear()

    def clear(self) -> None:
        """Forget everything."""
        with self._lock:
            self._entries: collections.deque[LogEntry] = collections.deque()
            self._bodies: collections.deque[LogEntry] = collections.deque()
            self._body_bytes = 0
            self._texts: collections.Counter[bytes] = collections.Counter()
            self.requests = 0
            self.statuses: collections.Counter[int] = collections.Counter()
            self.codes: collections.Counter[int] = collections.Counter()
            self.routes: collections.Counter[str] = collections.Counter()
            self.running = 0
            self.peak_concurrency = 0

    @property
    def entries(self) -> list[LogEntry]:
        """A copy of the requests kept, oldest first."""
        with self._lock:
            return list(self._entries)

    @property
    def last(self) -> LogEntry:
        """The newest request.

        Raises:
            IndexError: If there was none.
        """
        with self._lock:
            return self._entries[-1]

    @property
    def rejected(self) -> int:
        """Requests refused for want of capacity (code 3040)."""
        return self.codes[3040]

    @property
    def texts_embedded(self) -> int:
        """Texts taken for embedding, repeats included, by request or by queue."""
        with self._lock:
            return self._texts.total()

    @property
    def texts_repeated(self) -> int:
        """How many of them had been taken before."""
        with self._lock:
            return self._texts.total() - len(self._texts)

    def times_embedded(self, text: str) -> int:
        """How often this text was taken for embedding."""
        with self._lock:
            return self._texts[_digest(text)]

    def add(self, entry: LogEntry) -> None:
        """Record a request at its arrival."""
        entry.headers = {
            name.lower(): REDACTED if name.lower() in _SECRET_HEADERS else value[:_MAX_VALUE]
            for name, value in list(entry.headers.items())[:_MAX_HEADERS]
        }
        entry.path = entry.path[:_MAX_VALUE]
        entry.query = {
            name[:_MAX_VALUE]: value[:_MAX_VALUE] for name, value in list(entry.query.items())[:_MAX_HEADERS]
        }
        with self._lock:
            if len(self._entries) == self._max_entries:
                self._forget_body_of(self._entries.popleft())
            self._entries.append(entry)
            self.requests += 1
            self.running += 1
            self.peak_concurrency = max(self.peak_concurrency, self.running)
            if entry.body:
                self._bodies.append(entry)
                self._body_bytes += len(entry.body)
            while self._body_bytes > self._max_body_bytes:
                oldest = self._bodies.popleft()
                self._body_bytes -= len(oldest.body or b"")
                oldest.body = None

    def _forget_body_of(self, entry: LogEntry) -> None:
        """Keep the list of bodies no longer than the list of entries; both are in order of arrival."""
        if self._bodies and self._bodies[0] is entry:
            self._bodies.popleft()
            self._body_bytes -= len(entry.body or b"")

    def answer(self, entry: LogEntry, status: int | None, code: int | None = None) -> None:
        """Note the reply to a request."""
        with self._lock:
            entry.status, entry.code = status, code
            self.routes[entry.route] += 1
            if status is not None:
                self.statuses[status] += 1
            if code is not None:
                self.codes[code] += 1

    def leave(self) -> None:
        """A request is over: its reply was sent to the end, or given up."""
        with self._lock:
            self.running -= 1

    def embed(self, texts: list[str]) -> None:
        """Count texts taken for embedding."""
        digests = [_digest(text) for text in texts]
        with self._lock:
            self._texts.update(digests)

    def counters(self) -> dict[str, Any]:
        """All counters as plain data."""
        with self._lock:
            total, distinct = self._texts.total(), len(self._texts)
            return {
                "requests": self.requests,
                "rejected": self.codes[3040],
                "statuses": dict(self.statuses),
                "codes": dict(self.codes),
                "routes": dict(self.routes),
                "running": self.running,
                "peak_concurrency": self.peak_concurrency,
                "texts_embedded": total,
                "texts_repeated": total - distinct,
            }


def _digest(text: str) -> bytes:
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=12).digest()
