"""Helpers that the tests of both frameworks share: settings, one caller for sync and async, skipped waits."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import inspect
import threading
import zlib
from collections.abc import Callable, Iterable, Iterator
from time import monotonic
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree

import httpx
import pytest

from workers_ai._limits.limiter import AccountLimiter

if TYPE_CHECKING:
    from workers_ai_emulator import Emulator

ACCOUNT = "0123456789abcdef0123456789abcdef"
TOKEN = "secret-token-for-tests"
Test = Callable[..., None]
AXES = frozenset({"ask", "call", "mode", "route"})
"""Parameters that are axes although a test lists their values: sync or async, route, whole or streamed."""
VALUES = frozenset({"sync", "async", "whole", "streamed", "run", "chat_completions"})
"""Values of the axes that share one flow."""


def wired(emulator: Emulator, **settings: Any) -> dict[str, Any]:
    """Return settings that send requests to an emulator in this process."""
    transport = emulator.transport()
    return {
        "account_id": ACCOUNT,
        "api_token": TOKEN,
        "http_client": httpx.Client(transport=transport),
        "http_async_client": httpx.AsyncClient(transport=transport),
        **settings,
    }


def read_html(shown: Any) -> list[list[str]]:
    """Return the captions and rows of the HTML tables of an object, as text.

    HTML that is not well-formed, or text that is not escaped, raises :class:`xml.etree.ElementTree.ParseError`.
    """
    tables = ElementTree.fromstring(f"<div>{shown._repr_html_()}</div>")
    rows = (element for element in tables.iter() if element.tag in {"caption", "tr"})
    return [[cell.text or "" for cell in row] or [row.text or ""] for row in rows]


def skip_waits(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Make every sleep return at once. Return the list that collects the skipped seconds.

    The clock of the shared limiter advances by the skipped seconds.
    """
    waited: list[float] = []
    pause = asyncio.sleep

    async def asleep(seconds: float, *_: Any) -> None:
        waited.append(seconds)
        await pause(0)

    monkeypatch.setattr("time.sleep", waited.append)
    monkeypatch.setattr("anyio.sleep", asleep)
    monkeypatch.setattr("asyncio.sleep", asleep)
    monkeypatch.setattr(
        "workers_ai._limits.limiter.AccountLimiter", lambda: AccountLimiter(lambda: monotonic() + sum(waited))
    )
    return waited


@contextlib.contextmanager
def held(emulator: Emulator, requests: int) -> Iterator[None]:
    """Hold the requests of a block until some number of them run at once, then answer all.

    The emulator needs a manual clock and a latency of at most a second. The test does not depend on the speed of the
    machine: after a minute, the requests are answered although fewer run.
    """
    stopped = threading.Event()

    def answer() -> None:
        until = monotonic() + 60
        while emulator.log.peak_concurrency < requests and monotonic() < until and not stopped.wait(0.001):
            pass
        stopped.wait(0.02)  # one request too many would start now
        while not stopped.wait(0.001):
            emulator.clock.advance(1)

    thread = threading.Thread(target=answer)
    thread.start()
    try:
        yield
    finally:
        stopped.set()
        thread.join()


class Caller:
    """Call the sync or the async method, so that one test body covers both."""

    def __init__(self, mode: str) -> None:
        self.mode = mode

    def __call__(self, target: Any, method: str, /, *args: Any, **kwargs: Any) -> Any:
        """Return the result of ``target.method(...)``, or of its async form in a new event loop; a stream as a list."""
        if self.mode == "sync":
            result = getattr(target, method)(*args, **kwargs)
            return list(result) if inspect.isgenerator(result) else result

        async def run() -> Any:
            result = getattr(target, f"a{method}")(*args, **kwargs)
            if inspect.isawaitable(result):
                result = await result
            return [item async for item in result] if inspect.isasyncgen(result) else result

        return asyncio.run(run())

    def collect(self, target: Any, /, *args: Any, **kwargs: Any) -> Any:
        """Return the sum of the chunks of a stream."""
        total: Any = None
        for chunk in self(target, "stream", *args, **kwargs):
            total = chunk if total is None else total + chunk
        return total


def axes_of(item: pytest.Item) -> frozenset[str]:
    """Return the parameters that are axes of a test. Its other parameters are its rows.

    Parameters of fixtures are axes. In a test that lists no rows they are rows, except for sync or async, route, and
    whole or streamed.
    """
    if not (callspec := getattr(item, "callspec", None)):
        return frozenset()
    marks = [mark.args[0] if mark.args else mark.kwargs["argnames"] for mark in item.iter_markers("parametrize")]
    listed = {name.strip() for names in marks for name in (names.split(",") if isinstance(names, str) else names)}
    shared = {name for name, value in callspec.params.items() if isinstance(value, str) and value in VALUES}
    rows = listed - (shared & AXES)
    return frozenset(callspec.params if rows else shared) - rows


def thin_out(items: list[pytest.Item]) -> list[pytest.Item]:
    """Return the items to run: one combination of the axes for each row.

    The rows of a test take the combinations in turn, so that each combination is run. A test without rows takes the one
    that its name selects, and every eighth such test takes all. Sync and async, and the routes, share one flow.
    """
    by_test: dict[str, dict[Any, list[pytest.Item]]] = {}
    for item in items:
        axes = axes_of(item)
        params = item.callspec.params if axes else {}  # type: ignore[attr-defined]
        row = frozenset((name, id(value)) for name, value in params.items() if name not in axes) if axes else item
        by_test.setdefault(item.nodeid.partition("[")[0], {}).setdefault(row, []).append(item)
    kept: set[int] = set()
    for test, by_row in by_test.items():
        first = zlib.crc32(test.encode())
        takes_all = len(by_row) == 1 and first % 8 == 0
        for number, combinations in enumerate(by_row.values(), first):
            kept |= {id(item) for item in (combinations if takes_all else [combinations[number % len(combinations)]])}
    return [item for item in items if id(item) in kept]


def every_row(
    names: str | tuple[str, ...], rows: Iterable[Any]
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Run a test for all rows of a table as one item, instead of ``parametrize``. Report each row that fails.

    Use it for tables of cheap checks. The rows share the fixtures of the item.
    """
    table = [(row,) for row in rows] if isinstance(names, str) else list(rows)
    columns = (names,) if isinstance(names, str) else names

    def decorate(test: Test) -> Test:
        @functools.wraps(test)
        def run(*me: Any, **fixtures: Any) -> None:
            failures: list[BaseException] = []
            for row in table:
                try:
                    test(*me, **dict(zip(columns, row, strict=True)), **fixtures)
                except pytest.skip.Exception:
                    continue
                except (Exception, pytest.fail.Exception) as exc:  # noqa: BLE001 - raised below
                    exc.add_note(f"row: {row!r}")
                    failures.append(exc)
            if failures:
                raise BaseExceptionGroup(f"{len(failures)} of {len(table)} rows failed", failures)

        signature = inspect.signature(test)
        fixtures = [parameter for name, parameter in signature.parameters.items() if name not in columns]
        run.__signature__ = signature.replace(parameters=fixtures)  # type: ignore[attr-defined]
        return run

    return decorate
