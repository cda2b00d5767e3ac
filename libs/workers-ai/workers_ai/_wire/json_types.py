"""Define the type of JSON data, for the modules that read and write it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeAlias

__all__ = ["JSON"]

JSON: TypeAlias = "Mapping[str, JSON] | Sequence[JSON] | str | int | float | bool | None"
"""JSON data. Parsed JSON has dicts and lists; input may have any mapping and sequence.

``workers_ai.types.JSON`` is the type for users: they need not narrow it.
"""
