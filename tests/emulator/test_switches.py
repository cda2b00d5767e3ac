"""Open questions: one switch, one field, one line of the README."""

from __future__ import annotations

import dataclasses
import pathlib
import re

import pytest
from tests.support import every_row

from workers_ai_emulator import SWITCHES, Emulator, QueueSettings, Settings, Switch

README = pathlib.Path(__file__).parents[2] / "libs" / "workers-ai-emulator" / "README.md"


def test_the_readme_has_one_line_for_each_switch() -> None:
    section = README.read_text(encoding="utf-8").partition("## What was never seen live")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| (.+?) \| (.+?) \| (.+?) \| `(\w+)` \|$", section, re.MULTILINE)

    assert rows == [
        (one.question, f"`{one.default!r}`", ", ".join(f"`{other!r}`" for other in one.positions[1:]), one.name)
        for one in SWITCHES
    ]


@every_row("switch", SWITCHES)
def test_a_switch_sets_one_field(switch: Switch) -> None:
    emulator = Emulator()
    fields = {field.name for field in dataclasses.fields(Settings if switch.holder == "settings" else QueueSettings)}

    assert switch.name in fields
    assert switch.get(emulator) == switch.default
    for position in switch.positions:
        switch.set(emulator, position)
        assert switch.get(emulator) == position
    with pytest.raises(ValueError, match="has no position"):
        switch.set(emulator, object())
