"""Fuzz the readers and writers for any time.

``uv run python tests/fuzz/run.py --replies 100000 --histories 20000 --schemas 2000 --seed 1``

Only the given kinds are run; without arguments, a few of each kind. The first failure of each kind is
printed so that it can be repeated: with a seed for replies (``--replies 1 --seed N``), else with the smallest example.
Ctrl+C ends a run early.
"""

from __future__ import annotations

import argparse
import logging
import random
import sys
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from tests.fuzz import langchain_histories, llama_index_histories
from tests.fuzz.readers import READERS, Readers
from tests.fuzz.replies import mutated_reply

_DEFAULTS = {"replies": 2_000, "histories": 500, "schemas": 200}


def fuzz_replies(count: int, seed: int) -> int:
    """Pass each reply to one reader in turn. Return the number of failures."""
    readers, failures = Readers(), Counter[str]()
    done = 0
    with suppress(KeyboardInterrupt):
        for number in range(seed, seed + count):
            try:
                readers.put(mutated_reply(random.Random(number)), number)
            except AssertionError as exc:
                failures[str(exc)[:80]] += 1
                if failures[str(exc)[:80]] == 1:
                    _print(f"seed {number} ({READERS[number % len(READERS)]}): {exc}")
            done += 1
    _print(f"{done:,} replies: {failures.total()} failures")
    return failures.total()


def fuzz_examples(name: str, check: Callable[[int, int], None], count: int, seed: int) -> int:
    """Run a hypothesis check. It stops at its first failure and prints the smallest example. Return 1 if it failed."""
    failures = 0
    try:
        check(count, seed)
    except Exception:  # noqa: BLE001 - any exception is a failure
        failures = 1
        _print(traceback.format_exc())
    _print(f"{count:,} {name}: {failures} failures")
    return failures


def main() -> int:
    """Run the selected kinds. Return 1 if one of them failed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--replies", type=int, default=0, help="broken replies, each to one reader in turn")
    parser.add_argument("--histories", type=int, default=0, help="random histories, for each framework")
    parser.add_argument("--schemas", type=int, default=0, help="random tools and schemas")
    parser.add_argument("--seed", type=int, default=0, help="seed of the first reply and of the other kinds")
    options = parser.parse_args()
    counts = {name: getattr(options, name) for name in _DEFAULTS}
    if not any(counts.values()):
        counts = _DEFAULTS
    warnings.simplefilter("ignore")
    logging.disable()
    started = time.perf_counter()
    checks = {
        "histories of LangChain": (langchain_histories.fuzz_histories, counts["histories"]),
        "histories of LlamaIndex": (llama_index_histories.fuzz_histories, counts["histories"]),
        "tools and schemas": (langchain_histories.fuzz_tools, counts["schemas"]),
    }
    failures = fuzz_replies(counts["replies"], options.seed) if counts["replies"] else 0
    for name, (check, count) in checks.items():
        failures += fuzz_examples(name, check, count, options.seed) if count else 0
    _print(f"{time.perf_counter() - started:.0f} s")
    return 1 if failures else 0


def _print(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
