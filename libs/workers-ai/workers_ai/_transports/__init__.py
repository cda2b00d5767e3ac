"""Ways to send a request: HTTP, the binding of a Worker, a deployed batch Worker."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from types import ModuleType


@functools.cache
def load_bodies() -> ModuleType:
    """Return the module that reads responses. It imports httpx, so it is loaded at the first call."""
    from workers_ai._transports import bodies

    return bodies
