"""Names for data that this package passes on without validation. The core validates what it sends."""

from __future__ import annotations

from typing import Any, TypeAlias

__all__ = ["Data", "Fields"]

Data: TypeAlias = Any
"""Data of unknown shape: a content block of any provider, a field of a message, a value of a schema."""

Fields: TypeAlias = dict[str, Any]
"""A JSON object: a message, part, tool call or schema in OpenAI's form, or metadata."""
