"""Progress of a run: its counters, and the bars that show them."""

from __future__ import annotations

import sys
import time
import warnings
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any, Final, Protocol

from workers_ai.catalogue import USD_PER_NEURON, lookup

__all__ = ["Bar", "LineBar", "NoBar", "Tally", "TqdmBar", "neurons_of", "progress_bar"]

_TICK_S: Final = 1.0
_LINE_S: Final = 30.0


@dataclass
class Tally:
    """The counters of one run.

    Attributes:
        model: Model id.
        verb: Verb of the run, such as "embedding".
        documents: Inputs read from the source.
        done: Inputs that received a result in this run.
        reused: Inputs whose result was in the ledger, or is that of another input of the run.
        failed: Inputs given up.
        jobs: Submissions (or direct requests) in flight.
        retries: Submissions and requests that were sent again, whole or in part.
        tokens: Input tokens: as the service reports them, else estimated.
        output_tokens: Output tokens: as the service reports them, else estimated.
        neurons: Neurons: as the service reports them, else by list price; None without a price.
        truncated: Documents whose text is probably longer than the model reads.
        waits_for: Host and process of another run, and the seconds until this run adopts its inputs unless it sends a
            heartbeat; None if this run waits for no other.
    """

    model: str
    verb: str = "embedding"
    documents: int = 0
    done: int = 0
    reused: int = 0
    failed: int = 0
    jobs: int = 0
    retries: int = 0
    tokens: int = 0
    output_tokens: int = 0
    neurons: float | None = 0.0
    truncated: int = 0
    waits_for: tuple[str, int, float] | None = None

    @property
    def cost_usd(self) -> float | None:
        """List price of ``neurons`` in USD, without the free allocation."""
        return None if self.neurons is None else self.neurons * USD_PER_NEURON

    def charge(self, tokens: int, neurons: float | None, output_tokens: int = 0) -> None:
        """Add the cost of one submission."""
        self.tokens += tokens
        self.output_tokens += output_tokens
        self.neurons = None if neurons is None or self.neurons is None else self.neurons + neurons


def neurons_of(model: str, tokens: int, output_tokens: int = 0) -> float | None:
    """Return the neurons of tokens by list price; None if the catalogue has no price."""
    cost = lookup(model).cost_usd(tokens, output_tokens)
    return None if cost is None else cost / USD_PER_NEURON


class Bar(Protocol):
    """A display of progress."""

    def show(self, tally: Tally) -> None:
        """Show the counters."""
        ...

    def tick(self, tally: Tally) -> None:
        """Update the elapsed time. The counters have not changed."""
        ...

    def close(self) -> None:
        """Show the last state and end."""
        ...


class TqdmBar:
    """A tqdm bar with inputs, submissions in flight, retries, neurons and cost. Its clock runs while jobs wait."""

    def __init__(self, total: int | None, verb: str, noun: str) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # in notebooks without ipywidgets, tqdm warns and draws its bar as text
            from tqdm.auto import tqdm

        self._ticked = time.monotonic()
        self._bar: Any = tqdm(total=total, unit=f" {noun}", desc=verb, dynamic_ncols=True, mininterval=0.2)

    def show(self, tally: Tally) -> None:
        """Move the bar."""
        self._bar.set_postfix_str(_postfix(tally), refresh=False)
        self._bar.update(tally.done + tally.reused + tally.failed - self._bar.n)

    def tick(self, tally: Tally) -> None:
        """Redraw the bar, at most once a second."""
        if time.monotonic() - self._ticked >= _TICK_S:
            self._ticked = time.monotonic()
            self._bar.refresh()

    def close(self) -> None:
        """Keep the bar on the screen."""
        self._bar.close()


class LineBar:
    """Lines on stderr for logs and files: one every half minute, and one at the end.

    Args:
        total: Number of inputs, or None.
        last: Whether to write the last line if no other line was written.
        noun: Plural name of the inputs.
    """

    def __init__(self, total: int | None, *, last: bool = True, noun: str = "texts") -> None:
        self._noun = noun
        self._total = total
        self._last = last
        self._line = ""
        self._shown = time.monotonic()

    def show(self, tally: Tally) -> None:
        """Write a line if half a minute has passed."""
        done = tally.done + tally.reused + tally.failed
        of = f"/{self._total:,} ({100 * done // max(1, self._total)}%)" if self._total is not None else ""
        self._line = f"{tally.verb}: {done:,}{of} {self._noun}, {_postfix(tally)}"
        if time.monotonic() - self._shown >= _LINE_S:
            self._shown, self._last = time.monotonic(), True
            sys.stderr.write(f"{self._line}\n")

    def tick(self, tally: Tally) -> None:
        """Write a line if half a minute has passed."""
        if time.monotonic() - self._shown >= _LINE_S:
            self.show(tally)

    def close(self) -> None:
        """Write the last line."""
        if self._last and self._line:
            sys.stderr.write(f"{self._line}\n")


class NoBar:
    """A bar that shows nothing."""

    def show(self, tally: Tally) -> None:
        """Do nothing."""

    def tick(self, tally: Tally) -> None:
        """Do nothing."""

    def close(self) -> None:
        """Do nothing."""


def progress_bar(total: int | None, verb: str, noun: str) -> Bar:
    """Return a bar for a terminal or a notebook, or lines for redirected output."""
    is_terminal = sys.stderr is not None and sys.stderr.isatty()
    is_interactive = is_terminal or "ipykernel" in sys.modules
    if is_interactive and find_spec("tqdm"):
        return TqdmBar(total, verb, noun)
    return LineBar(total, noun=noun)


def _postfix(tally: Tally) -> str:
    parts = [f"jobs {tally.jobs}", f"retries {tally.retries}"]
    if tally.failed:
        parts.append(f"failed {tally.failed}")
    if tally.waits_for is not None:
        host, pid, seconds = tally.waits_for
        parts.append(f"waiting for process {pid} on {host}, adopted in {seconds / 60:.0f} min if it sends no heartbeat")
    if tally.neurons is not None:
        parts += [f"neurons {tally.neurons:,.0f}", f"${tally.cost_usd:.4f}"]
    return ", ".join(parts)
