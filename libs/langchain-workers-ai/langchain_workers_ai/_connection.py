"""Connection settings. Invalid settings raise the error classes of this package."""

from __future__ import annotations

from typing import Any

from langchain_workers_ai.errors import framework_errors
from workers_ai.integration import ConnectionFields

__all__ = ["Connection"]


class Connection(ConnectionFields):
    """Base of all classes of this package. See :class:`workers_ai.integration.ConnectionFields`."""

    def __init__(self, *args: Any, **data: Any) -> None:
        self._mask(data)
        with framework_errors:
            super().__init__(*args, **data)

    def __setattr__(self, name: str, value: object) -> None:
        with framework_errors:
            super().__setattr__(name, value)

    def __setstate__(self, state: dict[Any, Any]) -> None:
        with framework_errors:
            super().__setstate__(state)
