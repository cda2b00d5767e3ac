"""Every rule has existing rows or a reason, and the README has the same table."""

from __future__ import annotations

import re
from pathlib import Path

from rules import BEGIN, END, GAPS, RULES, TABLES, Traced, cited, evidence, markdown, rows_of
from tests.support import every_row

TESTS = Path(__file__).parents[1]
README = Path(__file__).with_name("README.md")


def test_names_are_unique_in_each_table() -> None:
    for table, rows in TABLES.items():
        names = [row.name for row in rows]
        assert len(set(names)) == len(names), table


def test_all_rules_are_listed() -> None:
    assert list(RULES) == list(range(1, 36))


@every_row("number", RULES)
def test_a_rule_has_rows_or_tests(number: int) -> None:
    assert evidence(number)


def test_rows_cite_rules_that_exist() -> None:
    assert {number for number, _ in cited()} <= set(RULES)


@every_row("traced", [*RULES.values(), *GAPS.values()])
def test_cited_names_exist(traced: Traced) -> None:
    assert [pattern for pattern in traced.rows if not rows_of(pattern)] == []
    for test in traced.tests:
        file, _, name = test.partition("::")
        source = (TESTS / file).read_text(encoding="utf-8")
        assert re.search(rf"def {name.replace('*', '.*')}\(", source), test


def test_the_readme_has_the_table() -> None:
    table = README.read_text(encoding="utf-8").partition(BEGIN)[2].partition(END)[0]
    assert table.strip() == markdown().strip(), "uv run python tests/contract/rules.py writes it anew"
