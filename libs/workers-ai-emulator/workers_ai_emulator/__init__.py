"""A local emulator of Cloudflare Workers AI: library, pytest fixtures and command.

It is unofficial and written from public documents. It never imports the client under test. Modules are imported on
first use, so that the pytest plugin adds no import time.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from workers_ai_emulator._version import __version__

if TYPE_CHECKING:
    from workers_ai_emulator.clock import Clock
    from workers_ai_emulator.emulator import Emulator
    from workers_ai_emulator.settings import Settings
    from workers_ai_emulator.state.faults import Fault
    from workers_ai_emulator.state.queue import ItemFailure, QueueSettings
    from workers_ai_emulator.state.upstream import Upstream
    from workers_ai_emulator.switches import SWITCHES, Switch

_HOMES = {
    "Clock": "clock",
    "Emulator": "emulator",
    "Fault": "state.faults",
    "ItemFailure": "state.queue",
    "QueueSettings": "state.queue",
    "SWITCHES": "switches",
    "Settings": "settings",
    "Switch": "switches",
    "Upstream": "state.upstream",
}

__all__ = [
    "SWITCHES",
    "Clock",
    "Emulator",
    "Fault",
    "ItemFailure",
    "QueueSettings",
    "Settings",
    "Switch",
    "Upstream",
    "__version__",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
