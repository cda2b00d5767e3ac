"""``workers-ai jobs``: the submissions of a ledger."""

from __future__ import annotations

from typing import TYPE_CHECKING

from workers_ai.ledger._ledger import Ledger
from workers_ai.ledger._store.file import LedgerFile

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["describe", "forget"]


def describe(path: Path) -> str:
    """Return the state of a ledger and its submissions in the queue, one per line.

    Raises:
        ConfigurationError: The ledger does not exist.
        LedgerError: The ledger cannot be read.
    """
    with LedgerFile(path) as ledger:
        counts, jobs = ledger.counts(), ledger.in_flight()
    noun, result = ("texts", "a vector") if ledger.task == "embed" else ("inputs", "an answer")
    done = counts["vectors" if ledger.task == "embed" else "answers"]
    lines = [
        f"{path}: {ledger.fingerprint.model}",
        f"  {noun} {counts['texts']:,}, with {result} {done:,}, waiting {counts['waiting']:,}, "
        f"failed {counts['failures']:,}, submissions in flight {len(jobs)}",
    ]
    if jobs:
        lines.append(f"  {'request id':<40} {noun:>7} {'age':>9}  process")
    lines += [
        f"  {job.request_id or '(being sent)':<40} {job.texts:>7,} {_age(job.age_s):>9}  "
        f"{'running' if job.alive else 'ended: the next run collects it'}"
        for job in jobs
    ]
    return "\n".join(lines)


def forget(path: Path, request_id: str) -> str:
    """Forget a submission, so that the next run sends its texts again; return a report.

    Raises:
        ConfigurationError: The ledger or the submission does not exist.
        LedgerError: The ledger cannot be read.
    """
    with Ledger(path) as ledger:
        count = ledger.forget(request_id)
    return f"{path}: forgot {request_id}; the next run sends and pays for its {count:,} texts again"


def _age(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"
