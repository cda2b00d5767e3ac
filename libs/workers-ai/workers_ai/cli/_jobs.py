"""What ``workers-ai jobs`` tells of a ledger."""

from __future__ import annotations

from typing import TYPE_CHECKING

from workers_ai.ingest import Ledger

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["forget", "told"]


def told(path: Path) -> str:
    """The state of a ledger, and its submissions in flight, one a line.

    Raises:
        ConfigurationError: There is no ledger.
        LedgerError: It cannot be read.
    """
    with Ledger(path) as ledger:
        counts, jobs = ledger.counts(), ledger.in_flight()
    lines = [
        f"{path}: {ledger.fingerprint.model}",
        f"  texts {counts['texts']:,}, with a vector {counts['vectors']:,}, waiting {counts['waiting']:,}, "
        f"failed {counts['failures']:,}, submissions in flight {len(jobs)}",
    ]
    if jobs:
        lines.append(f"  {'request id':<40} {'texts':>7} {'age':>9}  process")
    lines += [
        f"  {job.request_id or '(being sent)':<40} {job.texts:>7,} {_age(job.age_s):>9}  "
        f"{'at work' if job.alive else 'gone: the next run collects it'}"
        for job in jobs
    ]
    return "\n".join(lines)


def forget(path: Path, request_id: str) -> str:
    """Forget a submission, so that the next run sends its texts again; return what was done.

    Raises:
        ConfigurationError: There is no ledger, or no such submission in flight.
        LedgerError: It cannot be read.
    """
    with Ledger(path) as ledger:
        count = ledger.forget(request_id)
    return f"{path}: forgot {request_id}; the next run sends its {count:,} texts again, and pays for them again"


def _age(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"
