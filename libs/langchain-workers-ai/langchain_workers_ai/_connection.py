"""What the classes of this package share: the settings of a connection, with errors that LangChain knows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from workers_ai.fields import ConnectionFields

from langchain_workers_ai.errors import framework_errors

if TYPE_CHECKING:
    from typing import Self

__all__ = ["Connection"]


class Connection(ConnectionFields):
    """The settings of every class here; see :class:`workers_ai.fields.ConnectionFields`."""

    def __init__(self, **data: Any) -> None:
        with framework_errors:
            super().__init__(**data)

    def model_copy(self, *, update: Any = None, deep: bool = False) -> Self:
        """Copy, as pydantic does; the copy makes its own clients."""
        copied: Self = super().model_copy(update=update, deep=deep)
        return copied
