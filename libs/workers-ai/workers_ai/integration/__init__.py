"""Building blocks for framework packages: fields, checks, flows and wire helpers.

The names here are public for authors of framework packages. They may change in a minor release, with an entry in the
changelog.
Each name is imported at its first use, so that ``import workers_ai.integration`` is fast.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from workers_ai._calls.embedding_requests import set_text_index
    from workers_ai._calls.embeddings import check_texts, embed_flows, join_embeddings
    from workers_ai._calls.queue import require_queue
    from workers_ai._calls.replies import Reply
    from workers_ai._connection import Connection
    from workers_ai._flow.concurrency import agather, gather
    from workers_ai._flow.drivers import adrive, drive
    from workers_ai._flow.steps import Flow
    from workers_ai._settings.keywords import PER_CALL
    from workers_ai._settings.secrets import mask_secrets
    from workers_ai._settings.settings import MAX_CONCURRENCY
    from workers_ai._validation import check_model, require_kind, unknown_keyword
    from workers_ai._wire.chat.images import image_data_url
    from workers_ai._wire.chat.reply import early_end, shortened, unwrap
    from workers_ai._wire.chat.request import run_request
    from workers_ai._wire.chat.schema_validation import conform
    from workers_ai._wire.chat.schemas import inline_refs
    from workers_ai._wire.chat.tool_calls import CallIds, argument_error, recover_leaked_calls
    from workers_ai._wire.json_parsing import parse_answer, parse_growing, parse_json
    from workers_ai._wire.json_writing import is_cache_mark, plain_json
    from workers_ai._wire.params import CHAT_PARAMS
    from workers_ai._wire.quirks import accepts_null_effort
    from workers_ai._wire.request import Request
    from workers_ai._wire.usage import read_usage
    from workers_ai._wire.vectors import require_one_length
    from workers_ai.integration._constructors import ChatConstructor, ConnectionConstructor, EmbeddingConstructor
    from workers_ai.integration._json_schema import DescribedModel
    from workers_ai.integration._masking import masks_arguments
    from workers_ai.integration._openai_keywords import (
        FOREIGN_KEYWORDS,
        TRANSLATED_KEYWORDS,
        check_one_answer,
        translated_keywords,
        warn_ignored,
    )
    from workers_ai.integration._pydantic_fields import ChatFields, ConnectionFields, EmbeddingFields
    from workers_ai.ledger._records import text_hash

__all__ = [
    "CHAT_PARAMS",
    "FOREIGN_KEYWORDS",
    "MAX_CONCURRENCY",
    "PER_CALL",
    "TRANSLATED_KEYWORDS",
    "CallIds",
    "ChatConstructor",
    "ChatFields",
    "Connection",
    "ConnectionConstructor",
    "ConnectionFields",
    "DescribedModel",
    "EmbeddingConstructor",
    "EmbeddingFields",
    "Flow",
    "Reply",
    "Request",
    "accepts_null_effort",
    "adrive",
    "agather",
    "argument_error",
    "check_model",
    "check_one_answer",
    "check_texts",
    "conform",
    "drive",
    "early_end",
    "embed_flows",
    "gather",
    "image_data_url",
    "inline_refs",
    "is_cache_mark",
    "join_embeddings",
    "mask_secrets",
    "masks_arguments",
    "parse_answer",
    "parse_growing",
    "parse_json",
    "plain_json",
    "read_usage",
    "recover_leaked_calls",
    "require_kind",
    "require_one_length",
    "require_queue",
    "run_request",
    "set_text_index",
    "shortened",
    "text_hash",
    "translated_keywords",
    "unknown_keyword",
    "unwrap",
    "warn_ignored",
]

_MODULES = {
    # Fields of pydantic classes
    "integration._constructors": ("ChatConstructor", "ConnectionConstructor", "EmbeddingConstructor"),
    "integration._json_schema": ("DescribedModel",),
    "integration._masking": ("masks_arguments",),
    "integration._openai_keywords": (
        "FOREIGN_KEYWORDS",
        "TRANSLATED_KEYWORDS",
        "check_one_answer",
        "translated_keywords",
        "warn_ignored",
    ),
    "integration._pydantic_fields": ("ChatFields", "ConnectionFields", "EmbeddingFields"),
    # Keywords of a call, and checks of arguments
    "_settings.keywords": ("PER_CALL",),
    "_settings.secrets": ("mask_secrets",),
    "_settings.settings": ("MAX_CONCURRENCY",),
    "_validation": ("check_model", "require_kind", "unknown_keyword"),
    "_wire.params": ("CHAT_PARAMS",),
    "_wire.quirks": ("accepts_null_effort",),
    # Flows, their drivers, and the rate limiter of a framework
    "_calls.embeddings": ("check_texts", "embed_flows", "join_embeddings"),
    "_calls.embedding_requests": ("set_text_index",),
    "_calls.replies": ("Reply",),
    "_calls.queue": ("require_queue",),
    "_flow.concurrency": ("agather", "gather"),
    "_flow.drivers": ("adrive", "drive"),
    "_flow.steps": ("Flow",),
    "_connection": ("Connection",),
    # Requests and replies
    "_wire.chat.images": ("image_data_url",),
    "_wire.chat.reply": ("early_end", "shortened", "unwrap"),
    "_wire.chat.request": ("run_request",),
    "_wire.chat.schema_validation": ("conform",),
    "_wire.chat.schemas": ("inline_refs",),
    "_wire.chat.tool_calls": ("CallIds", "argument_error", "recover_leaked_calls"),
    "_wire.json_parsing": ("parse_answer", "parse_growing", "parse_json"),
    "_wire.json_writing": ("is_cache_mark", "plain_json"),
    "_wire.request": ("Request",),
    "_wire.usage": ("read_usage",),
    "_wire.vectors": ("require_one_length",),
    # The ledger of an ingestion
    "ledger._records": ("text_hash",),
}
_HOMES = {name: f"workers_ai.{module}" for module, names in _MODULES.items() for name in names}


def __getattr__(name: str) -> object:
    if home := _HOMES.get(name):
        from importlib import import_module

        return getattr(import_module(home), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
