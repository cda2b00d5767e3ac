"""The figures in the guide's section on sizing match the catalogue and the output of ``estimate``."""

from __future__ import annotations

import contextlib
import io
import re
from pathlib import Path

import pytest

from workers_ai.catalogue import USD_PER_NEURON, known_models, lookup

GUIDE = Path(__file__).parents[2] / "docs" / "guides" / "capacity.md"
SIZING = GUIDE.read_text(encoding="utf-8").partition("\n## Sizing\n")[2].partition("\n## ")[0]
TOKENS = 200


def _figure(text: str) -> float:
    return float(text.replace(",", ""))


ROWS = [
    [cell.strip(" `") for cell in line.strip("|").split("|")]
    for line in SIZING.splitlines()
    if line.startswith("| `@cf/")
]


@pytest.mark.parametrize("row", ROWS, ids=[row[0] for row in ROWS])
def test_a_row_equals_the_catalogue(row: list[str]) -> None:
    card = lookup(row[0])
    per_request, per_minute, per_hour, usd = map(_figure, row[1:5])
    assert (per_request, per_minute) == (card.max_items, card.requests_per_minute)
    assert per_hour == per_request * per_minute * 60
    assert card.usd_per_m_in is not None
    assert usd == pytest.approx(card.usd_per_m_in * TOKENS, abs=0.005)
    assert row[5] == ("yes" if card.batch else "no")


def test_every_model_with_a_price_and_a_cap_has_a_row() -> None:
    cards = known_models("Text Embeddings")
    assert {row[0] for row in ROWS} == {card.id for card in cards if card.max_items and card.usd_per_m_in}


def test_the_free_texts_of_a_day() -> None:
    (m3, base) = map(_figure, re.search(r"free: ([\d,]+) .* ([\d,]+) with bge-base", SIZING).groups())  # type: ignore[union-attr]
    for texts, model in ((m3, "@cf/baai/bge-m3"), (base, "@cf/baai/bge-base-en-v1.5")):
        usd = lookup(model).usd_per_m_in
        assert usd is not None
        neurons = texts * TOKENS * usd / 1e6 / USD_PER_NEURON
        assert 10_000 - TOKENS * usd / 1e6 / USD_PER_NEURON < neurons <= 10_000


def test_the_estimate_prints_the_figures_of_the_guide() -> None:
    (code,) = re.findall(r"```python\n(.*?)```", SIZING, re.DOTALL)
    (shown,) = re.findall(r"```text\n(.*?)```", SIZING, re.DOTALL)
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        exec(compile(code, str(GUIDE), "exec"), {})
    assert printed.getvalue() == shown
