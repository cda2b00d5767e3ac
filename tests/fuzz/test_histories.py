"""A few random histories and tools; the long run is a command, see ``histories.py``."""

from __future__ import annotations

import histories


def test_random_histories_and_tools_are_sent_as_strict_json_or_rejected() -> None:
    histories.fuzz(60, 40)
