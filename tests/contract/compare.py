"""Run the rows through LangChain classes of this project and of others, and print the comparison.

``uv run --group rivals python tests/contract/compare.py``; ``--rows`` lists every row that a class gets
wrong. A package that is not installed is left out. Sync only: the comparison is about parsing replies.
"""

from __future__ import annotations

import datetime as dt
import importlib.metadata
import logging
import sys
import time
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from unittest import mock

from langchain_rows import MAKERS, REPLIES, Maker, expressible, find_differences, read_with, refused, sent
from refusals import REFUSED
from sent import SENT
from shapes import Shape, Want

ASPECTS = ("text", "calls", "reasoning", "finish", "usage", "errors")


@contextmanager
def jumping_time() -> Iterator[None]:
    """Replace sleeps by a clock that advances at once."""
    ahead_s, monotonic = 0.0, time.monotonic

    def jump(seconds: float) -> None:
        nonlocal ahead_s
        ahead_s += seconds

    def now() -> float:
        return monotonic() + ahead_s

    with mock.patch("time.sleep", jump), mock.patch("time.monotonic", now):
        yield


def aspects(want: Want) -> set[str]:
    """Return the aspects of a row that are compared."""
    if want.error:
        return {"errors"}
    given = {"calls": want.calls, "reasoning": want.reasoning, "usage": want.usage}
    return {"text", "finish", *(name for name, value in given.items() if value)}


def wrong_aspects(want: Want, wrong: Sequence[str]) -> set[str]:
    """Return the wrong aspects. An exception instead of an answer makes all aspects wrong."""
    if wrong in (["raised"], ["no error"]):
        return aspects(want)
    names = {"ids": "calls", "cached": "usage"}
    found = [item.partition(":")[0].partition(" ")[0] for item in wrong]
    return {names.get(one, one) for one in found}


def replies(maker: Maker, route: str, shapes: Sequence[tuple[Shape, bool]], listed: list[str]) -> Iterator[str]:
    """Return the cells of a line: correct rows by aspect, then completely correct rows."""
    right, total = Counter[str](), Counter[str]()
    for shape, stream in shapes:
        wrong = find_differences(shape.want, read_with(maker, shape, route, "sync", stream=stream))
        concerned = aspects(shape.want)
        total.update(concerned)
        right.update(concerned - wrong_aspects(shape.want, wrong))
        total["rows"] += 1
        right["rows"] += not wrong
        listed += [f"{route}, {shape.name}: {'; '.join(wrong)}"] if wrong else []
    for name in (*ASPECTS, "rows"):
        yield f"{right[name]} of {total[name]}" if total[name] else "-"


def refusals(maker: Maker, route: str, listed: list[str]) -> Iterator[str]:
    """Return the cells of a line: raised errors, expected numbers of requests, codes in the text, all together."""
    found = [refused(maker, row, route) for row in REFUSED]
    listed += [f"{route}, {row.name}: {'; '.join(wrong)}" for row, wrong in zip(REFUSED, found, strict=True) if wrong]
    for without in ("no error", "requests", "no code", ""):
        yield f"{sum(not any(without in one for one in wrong) for wrong in found)} of {len(REFUSED)}"


def requests(maker: Maker, route: str, listed: list[str]) -> str:
    """Return the cells of a line: requests that are sent, or rejected before sending, as expected."""
    rows = [row for row in SENT if expressible(row) and route in row.api]
    found = [sent(maker, row, route, "sync") for row in rows]
    listed += [f"{route}, {row.name}: {'; '.join(wrong)}" for row, wrong in zip(rows, found, strict=True) if wrong]
    return f"{sum(not wrong for wrong in found)} of {len(rows)}"


def installed() -> dict[str, Maker]:
    """Return the classes of installed packages."""
    present = {dist.metadata["name"] for dist in importlib.metadata.distributions()}
    return {name: maker for name, maker in MAKERS.items() if name in present}


def main(arguments: Sequence[str]) -> None:
    """Print the comparison."""
    logging.disable()
    makers, listed = installed(), {name: list[str]() for name in MAKERS}
    versions = ", ".join(f"{name} {importlib.metadata.version(name)}" for name in (*makers, "langchain-core"))
    print(f"Measured on {dt.datetime.now(dt.UTC):%Y-%m-%d}: {versions}.\n")
    print(f"| replies | route | package | {' | '.join(ASPECTS)} | whole rows |")
    print(f"|---|---|---|{'---|' * len(ASPECTS)}---|")
    for group, shapes in REPLIES.items():
        for name, maker in makers.items():
            for route in maker.routes:
                print(f"| {group} | {route} | {name} | {' | '.join(replies(maker, route, shapes, listed[name]))} |")
    print("\n| requests | package | as wanted |\n|---|---|---|")
    for name, maker in makers.items():
        for route in maker.routes:
            print(f"| {route} | {name} | {requests(maker, route, listed[name])} |")
    print("\n| refusals | package | raised | requests as wanted | code in the text | all |\n|---|---|---|---|---|---|")
    with jumping_time():
        for name, maker in makers.items():
            for route in maker.routes:
                print(f"| {route} | {name} | {' | '.join(refusals(maker, route, listed[name]))} |")
    if "--rows" in arguments:
        for name, lines in listed.items():
            print(f"\n{name}\n" + "\n".join(f"- {line}" for line in lines))


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    main(sys.argv[1:])
