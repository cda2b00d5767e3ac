"""Embedding calls: check texts, split them into requests, and join the replies."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, Unpack

from workers_ai._calls.embedding_requests import embed, join_embeddings, set_text_index
from workers_ai._calls.per_call import PER_CALL
from workers_ai._settings.settings import DEADLINE_S
from workers_ai._validation import check_model, require_int, require_kind, require_one_of, unknown_keyword
from workers_ai._wire.json_parsing import replace_lone_surrogates
from workers_ai._wire.params import EMBED_KEYWORDS
from workers_ai._wire.vectors import EmbedOptions, check_embed_options
from workers_ai.catalogue import lookup
from workers_ai.errors import BadRequestError
from workers_ai.types import EmbedReply

if TYPE_CHECKING:
    from collections.abc import Sequence

    from workers_ai._calls.requests import Calls
    from workers_ai._flow.steps import Flow
    from workers_ai._wire.params import EmbedKeywords

__all__ = ["QueueMode", "check_texts", "embed_flows", "join_embeddings"]

QueueMode: TypeAlias = Literal["never", "overflow", "always"]
"""When documents go through the asynchronous queue: never, after a rejected direct request, or always."""


def embed_flows(
    calls: Calls,
    model: str,
    texts: Sequence[str],
    **options: Unpack[EmbedKeywords],
) -> list[Flow[EmbedReply]]:
    """Return one flow for each request of the model's maximum size. Arguments as for :meth:`workers_ai.Client.embed`.

    Raises:
        BadRequestError: A text is empty or not a string.
        ConfigurationError: An option is unknown or malformed, or the model id is malformed.
    """
    kind, queue = options.get("kind", "document"), options.get("queue", "never")
    empty_text, batch_size = options.get("empty_text", "raise"), options.get("batch_size")
    checked = check_texts(texts, empty_text, check_model(model))
    require_int("batch_size", batch_size, 1, None)
    require_one_of("kind", kind, ("document", "query"))
    require_one_of("empty_text", empty_text, ("raise", "space"))
    require_one_of("queue", queue, ("never", "overflow", "always"))
    if unknown := options.keys() - EMBED_KEYWORDS:
        raise unknown_keyword("an embedding call", min(unknown), PER_CALL | EMBED_KEYWORDS, "extra_body")
    cap = lookup(model).texts_per_request
    size = min(batch_size or cap, cap)
    shape = _shape(options)
    require_one_of("pooling", shape.pooling, (None, "mean", "cls"))
    require_kind("query_instruction", shape.query_instruction, str, "text")
    check_embed_options(model, shape, queued=queue != "never")
    if queue != "never" and kind == "document":
        from workers_ai._calls.queued_embeddings import queued_flows

        return queued_flows(
            calls, model, checked, shape, size=size, queue=queue, deadline_s=options.get("deadline_s", DEADLINE_S)
        )
    calls = calls.started()
    return [
        embed(calls, model, checked[first : first + size], shape, kind=kind, first=first)
        for first in range(0, len(checked), size)
    ]


def _shape(options: Mapping[str, Any]) -> EmbedOptions:
    return EmbedOptions(**{name: options[name] for name in EmbedOptions._fields if name in options})


def check_texts(texts: Sequence[str], empty: Literal["raise", "space"], model: str) -> list[str]:
    """Return the texts as they are sent: lone surrogates repaired, and empty texts as one space.

    Raises:
        BadRequestError: ``texts`` is not a list of strings, or a text is empty and ``empty`` is ``"raise"``. ``index``
            is set.
    """
    if isinstance(texts, (str, bytes, Mapping)) or not isinstance(texts, Iterable):
        what = "one string" if isinstance(texts, str) else f"a {type(texts).__name__}"
        raise BadRequestError(f"texts must be a list of strings, not {what}", model=model)
    checked = []
    for index, text in enumerate(texts):
        if not isinstance(text, str):
            raise _invalid_text(index, f"is a {type(text).__name__}, not a string", model)
        if not text and empty == "raise":
            why = "is empty: drop it, or pass empty_text='space' to embed one space in its place"
            raise _invalid_text(index, why, model, "empty_text")
        checked.append(replace_lone_surrogates(text) or " ")
    return checked


def _invalid_text(index: int, why: str, model: str, *arguments: str) -> BadRequestError:
    error = BadRequestError(f"text {index} {why}", model=model)
    error.arguments = arguments
    set_text_index(error, index, why)
    return error
