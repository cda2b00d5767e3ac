"""Settings and options of the data engines (Daft, Ray)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, cast

from workers_ai._settings.secrets import mask_secrets
from workers_ai._settings.settings import CLIENT_KEYWORDS, Settings, known_keywords
from workers_ai._validation import check_model, unknown_keyword
from workers_ai.catalogue import lookup
from workers_ai.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from workers_ai._settings.keywords import SettingKeywords

__all__ = ["MAX_RETRIES", "OPTIONS", "bulk_settings", "check_options", "texts_per_request"]

MAX_RETRIES: Final = 10
"""Default number of retries of a request. Requests are retried inside the batch: a retry of the engine would repeat
the whole batch or block, and you would pay for all of it again."""

OPTIONS: Final = ("pooling", "truncate_inputs", "normalize", "empty_text")


def bulk_settings(owner: str, settings: Mapping[str, object], *, max_concurrency: int | None = None) -> Settings:
    """Return checked settings, with defaults for bulk work: 10 retries, and retry when the service is at capacity.

    Args:
        owner: Name of the class, for errors.
        settings: Keywords of its constructor. Secrets are masked in place: a traceback would show them.
        max_concurrency: Default limit of requests in flight; None for no limit.

    Raises:
        ConfigurationError: A setting is missing, malformed or unknown.
    """
    mask_secrets(cast("dict[str, object]", settings), CLIENT_KEYWORDS)
    defaults: SettingKeywords = {
        "max_retries": MAX_RETRIES, "on_busy": "retry", "max_concurrency": max_concurrency,
    }  # fmt: skip
    defaults.update(known_keywords(owner, settings))
    return Settings.resolve(**defaults)


def check_options(owner: str, options: dict[str, object]) -> dict[str, object]:
    """Return ``options`` if the engines support each of these options of :meth:`workers_ai.Client.embed`.

    Raises:
        ConfigurationError: An option is unknown.
    """
    for name in options:
        if name not in OPTIONS:
            raise unknown_keyword(owner, name, OPTIONS)
    return options


def texts_per_request(model: str | None) -> int:
    """Return the maximum number of texts in one request of ``model``.

    Raises:
        ConfigurationError: ``model`` is missing or malformed.
    """
    if model is None:
        raise ConfigurationError("model is missing: pass model=, such as '@cf/baai/bge-m3'")
    return lookup(check_model(model)).texts_per_request
