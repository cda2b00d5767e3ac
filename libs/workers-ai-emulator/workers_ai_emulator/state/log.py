"""The log of requests, and counters."""

from __future__ import annotations

import collections
import hashlib
import json
import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from workers_ai_emulator.wire import Json

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
        headers: Request headers in lower case. Secrets are replaced by ``REDACTED``.
        at: Clock time of arrival, in seconds since the epoch.
        route: Name of the route; empty if none matched.
        model: Id of the requested model; empty if there is none.
        status: HTTP status of the reply; None while the request runs and after a dropped connection.
        code: Cloudflare's code of the reply; None on success.
        body: Raw request body; None after it was dropped to save memory.
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
        """Return the parsed request body; None if it is empty, dropped or invalid JSON."""
        try:
            return json.loads(self.body) if self.body else None
        except ValueError:
            return None

    def as_dict(self) -> Json:
        """Return the entry as plain data."""
        names = ("method", "path", "query", "headers", "at", "route", "model", "status", "code")
        return {name: getattr(self, name) for name in names} | {"body": self.json}


class Log:
    """Requests, oldest first, and counters over all of them.

    Args:
        max_entries: Maximum number of stored requests. Older requests are dropped, but counters include them.
        max_body_bytes: Maximum total bytes of stored bodies. Older bodies are dropped first. At most 100 headers are
            stored, and paths and headers are truncated to 2,000 characters.
    """

    def __init__(self, max_entries: int = 20_000, max_body_bytes: int = 64 * 2**20) -> None:
        self._lock = threading.Lock()
        self._max_body_bytes = max_body_bytes
        self._max_entries = max_entries
        self.clear()

    def clear(self) -> None:
        """Remove all entries and reset the counters."""
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
        """Return a copy of the stored requests, oldest first."""
        with self._lock:
            return list(self._entries)

    @property
    def last(self) -> LogEntry:
        """Return the newest request.

        Raises:
            IndexError: If the log is empty.
        """
        with self._lock:
            return self._entries[-1]

    @property
    def rejected(self) -> int:
        """Return the number of requests rejected at capacity (code 3040)."""
        return self.codes[3040]

    @property
    def texts_embedded(self) -> int:
        """Return the number of embedded texts, repeats included, by direct request or queue."""
        with self._lock:
            return self._texts.total()

    @property
    def texts_repeated(self) -> int:
        """Return the number of embedded texts that had been embedded before."""
        with self._lock:
            return self._texts.total() - len(self._texts)

    def times_embedded(self, text: str) -> int:
        """Return how often a text was embedded."""
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
                self._drop_body_of(self._entries.popleft())
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

    def _drop_body_of(self, entry: LogEntry) -> None:
        """Drop the body of an entry. Bodies and entries are in the same order."""
        if self._bodies and self._bodies[0] is entry:
            self._bodies.popleft()
            self._body_bytes -= len(entry.body or b"")

    def answer(self, entry: LogEntry, status: int | None, code: int | None = None) -> None:
        """Record the status and code of a reply."""
        with self._lock:
            entry.status, entry.code = status, code
            self.routes[entry.route] += 1
            if status is not None:
                self.statuses[status] += 1
            if code is not None:
                self.codes[code] += 1

    def leave(self) -> None:
        """Count a request as finished, after its reply was read to the end or closed."""
        with self._lock:
            self.running -= 1

    def embed(self, texts: list[str]) -> None:
        """Count embedded texts."""
        digests = [_digest(text) for text in texts]
        with self._lock:
            self._texts.update(digests)

    def counters(self) -> Json:
        """Return all counters as plain data."""
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
