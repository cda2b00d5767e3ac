"""What the data engines share: settings for work that nobody waits for, and checked options."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from workers_ai._settings.settings import Settings, known_keywords
from workers_ai._validation import check_model, unknown_keyword
from workers_ai.catalogue import TEXTS_PER_REQUEST, lookup
from workers_ai.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["MAX_RETRIES", "OPTIONS", "bulk_settings", "check_options", "texts_per_request"]

MAX_RETRIES: Final = 10
"""Tries after the first of one request. They are made inside the batch: an engine that repeats work repeats the whole
batch or block, and pays for all of it again."""

OPTIONS: Final = ("pooling", "truncate_inputs", "normalize", "empty_text")


def bulk_settings(owner: str, settings: Mapping[str, Any]) -> Settings:
    """Settings of a client, checked; more patient than those of a chat.

    Raises:
        ConfigurationError: A setting is missing, malformed or not known.
    """
    return Settings.resolve(**{"max_retries": MAX_RETRIES, "on_busy": "retry", **known_keywords(owner, settings)})


def check_options(owner: str, options: dict[str, Any]) -> dict[str, Any]:
    """Those options of :meth:`workers_ai.Client.embed` that shape the vectors of documents.

    Raises:
        ConfigurationError: An option is not known.
    """
    for name in options:
        if name not in OPTIONS:
            raise unknown_keyword(owner, name, OPTIONS, "no other place")
    return options


def texts_per_request(model: str | None) -> int:
    """Texts that one request of this model may hold.

    Raises:
        ConfigurationError: No model, or a malformed one.
    """
    if model is None:
        raise ConfigurationError("model is missing: pass model=, such as '@cf/baai/bge-m3'")
    return lookup(check_model(model)).max_items or TEXTS_PER_REQUEST
