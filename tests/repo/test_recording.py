"""The recording of the demo matches the demo and loads nothing from other hosts."""

from __future__ import annotations

import re
from xml.etree import ElementTree

from repository import ROOT

PICTURE = ROOT / "docs" / "images" / "demo.svg"
DEMO = ROOT / "libs" / "workers-ai" / "workers_ai" / "_demo"


def test_the_recording_has_every_heading_of_the_demo() -> None:
    """If this fails, run ``bash .ci/run recording``."""
    sources = "".join(path.read_text(encoding="utf-8") for path in DEMO.glob("*.py"))
    headings = re.findall(r'\btitle\(f?"([^{"]+)', sources)
    assert len(headings) > 5
    drawn = "".join(ElementTree.parse(PICTURE).getroot().itertext()).replace("\N{NO-BREAK SPACE}", " ")
    assert [heading for heading in headings if heading not in drawn] == []


def test_the_recording_fetches_nothing() -> None:
    text = PICTURE.read_text(encoding="utf-8")
    assert set(re.findall(r"https?://[^\s\"')]+", text)) == {"http://www.w3.org/2000/svg"}
    assert "@import" not in text
