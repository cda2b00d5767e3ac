"""A local emulator of Cloudflare Workers AI: library, pytest fixtures and command.

It is unofficial and written from public documents; it never imports the client that is tested against it.
"""

from workers_ai_emulator._version import __version__
from workers_ai_emulator.emulator import Emulator
from workers_ai_emulator.settings import Settings
from workers_ai_emulator.state.clock import Clock
from workers_ai_emulator.state.faults import Fault
from workers_ai_emulator.state.queue import ItemFailure, QueueSettings

__all__ = ["Clock", "Emulator", "Fault", "ItemFailure", "QueueSettings", "Settings", "__version__"]
