"""Long fuzz runs: ``uv run python tests/fuzz/run.py --replies 100000 [--seed 1]``.

Prints the seed of the first reply of each failure; ``--replies 1 --seed N`` repeats it. Ctrl+C ends a run early.
"""

from __future__ import annotations

import argparse
import logging
import random
import sys
import time
import warnings
from collections import Counter
from contextlib import suppress
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from tests.fuzz.readers import READERS, Readers
from tests.fuzz.replies import mutated_reply


def main() -> int:
    """Run, and return 1 if a reply failed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--replies", type=int, default=10_000, help="how many replies, each to one reader in turn")
    parser.add_argument("--seed", type=int, default=0, help="seed of the first reply")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    logging.disable()
    readers, failures = Readers(), Counter[str]()
    began = time.perf_counter()
    done = 0
    with suppress(KeyboardInterrupt):
        for seed in range(options.seed, options.seed + options.replies):
            try:
                readers.put(mutated_reply(random.Random(seed)), seed)
            except AssertionError as exc:
                failures[str(exc)[:80]] += 1
                if failures[str(exc)[:80]] == 1:
                    _say(f"seed {seed} ({READERS[seed % len(READERS)]}): {exc}")
            done += 1
    _say(f"{done} replies in {time.perf_counter() - began:.0f} s, {failures.total()} failed")
    return 1 if failures else 0


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
