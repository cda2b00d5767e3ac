"""Checks of embedding and reranking requests, and truncation to the model's window.

Sources: the models' input schemas at https://developers.cloudflare.com/workers-ai/models/. Both limits of bge-m3, per
text and per request, and their errors were recorded by public repositories.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from workers_ai_emulator.rules.tokens import count_tokens
from workers_ai_emulator.wire import ServiceError, kind_of

if TYPE_CHECKING:
    from workers_ai_emulator.catalogue import Model
    from workers_ai_emulator.settings import Settings
    from workers_ai_emulator.wire import Json

BGE_M3 = "@cf/baai/bge-m3"
QWEN3 = "@cf/qwen/qwen3-embedding-0.6b"
_QWEN3_INSTRUCTION = "Given a web search query, retrieve relevant passages that answer the query"


def default_pooling(model: Model) -> str:
    """Return the pooling that the bge models report; empty for other models."""
    return "mean" if "/bge-" in model.id else ""


def check_native(model: Model, body: Json, settings: Settings) -> None:
    """Check inputs against the model's schema.

    Raises:
        ServiceError: 5006.
    """
    if model.task == "Text Classification":
        _check_query(body)
        _check_contexts(body.get("contexts"))
    elif model.id == BGE_M3 and "contexts" in body:
        if "query" in body:
            _check_query(body)
        _check_contexts(body["contexts"])
    else:
        key = next((key for key in _keys(model) if key in body), None)
        if key is None:
            raise _mismatch(
                "required properties at '/' are '%s'" % ("contexts" if model.id == BGE_M3 else _keys(model)[0])
            )
        _check_texts(model, key, body[key], settings)
        if body.get("pooling") not in {None, "mean", "cls"}:
            raise _mismatch("'/pooling' must be one of 'mean', 'cls'")


def check_compat(model: Model, body: Json, settings: Settings) -> list[str]:
    """Return the texts of an OpenAI-style request.

    Raises:
        ServiceError: 5006 for input other than texts, such as token ids.
    """
    if "input" not in body:
        raise _mismatch("required properties at '/' are 'input'")
    _check_texts(model, "input", body["input"], settings)
    if body.get("dimensions") is not None and settings.v1_dimensions == "reject":
        raise _mismatch("additional property '/dimensions'")
    texts = _listed(body["input"])
    fit(model, texts, settings, truncate=False)
    return texts


def texts_of(model: Model, body: Json) -> list[str]:
    """Return the texts to embed, from checked inputs."""
    if "contexts" in body:
        return [] if "query" in body else [str(context["text"]) for context in body["contexts"]]
    return _listed(next(body[key] for key in _keys(model) if key in body))


def texts_and_salt(model: Model, body: Json) -> tuple[list[str], str]:
    """Return the texts with their instructions, and the salt of their vector space."""
    texts = texts_of(model, body)
    salt = f"{model.id}/cls" if body.get("pooling") == "cls" else model.id
    if model.id == QWEN3 and "queries" in body:
        instruction = str(body.get("instruction") or "")
        if instruction and instruction != _QWEN3_INSTRUCTION:
            texts = [f"{text} {instruction}" for text in texts]
    return texts, salt


def fit(model: Model, texts: list[str], settings: Settings, *, truncate: bool) -> tuple[list[str], int]:
    """Truncate texts to the model's window. Return them and their number of tokens.

    Raises:
        ServiceError: 3030 if a text or the sum of texts is too long and ``truncate`` is False.
    """
    tokens = [count_tokens(text) for text in texts]
    limit = model.max_input_tokens
    if limit is None:
        return texts, sum(tokens)
    if model.max_text_tokens is not None:
        if not truncate:
            _check_window(model, tokens)
        limit = min(model.max_text_tokens, limit // max(1, len(texts)) if sum(tokens) > limit else limit)
    elif default_pooling(model) and settings.long_texts == "reject" and max(tokens, default=0) > limit:
        raise ServiceError(400, 3030, f"Sequence too long: {max(tokens)} > {limit}")
    if max(tokens, default=0) <= limit:
        return texts, sum(tokens)
    cut = [text if count <= limit else _cut(text, limit) for text, count in zip(texts, tokens, strict=True)]
    return cut, sum(min(count, limit) for count in tokens)


def _check_window(model: Model, tokens: list[int]) -> None:
    longest = max(tokens, default=0)
    if model.max_text_tokens is not None and longest > model.max_text_tokens:
        raise ServiceError(400, 3030, f"Sequence too long: {longest} > {model.max_text_tokens}")
    if model.max_input_tokens is not None and sum(tokens) > model.max_input_tokens:
        text = f"Max context reached {sum(tokens)} tokens but model supports only {model.max_input_tokens}"
        raise ServiceError(400, 3030, text)


def _keys(model: Model) -> list[str]:
    return ["queries", "documents", "text"] if model.id == QWEN3 else ["text"]


def _listed(value: str | list[str]) -> list[str]:
    return [value] if isinstance(value, str) else list(value)


def _check_texts(model: Model, key: str, value: object, settings: Settings) -> None:
    if isinstance(value, str):
        value = [value]
    if not isinstance(value, list):
        raise _mismatch(f"Type mismatch of '/{key}', '{kind_of(value)}' not in 'string','array'")
    if not value and model.id == BGE_M3:
        raise _mismatch("required properties at '/' are 'contexts'")
    if not value:
        raise _mismatch(f"'/{key}' must have at least 1 item")
    if model.max_items is not None and len(value) > model.max_items:
        text = f"'/{key}' must have at most {model.max_items} items, has {len(value)} (maxItems)"
        raise _mismatch(text, settings.too_many_texts_code)
    for index, text in enumerate(value):
        if not isinstance(text, str):
            raise _mismatch(f"Type mismatch of '/{key}/{index}', '{kind_of(text)}' not in 'string'")
        if not text:
            raise _mismatch(f"Length of '/{key}/{index}' must be >= 1 (minLength)")


def _check_query(body: Json) -> None:
    query = body.get("query")
    if not isinstance(query, str) or not query:
        raise _mismatch(f"Type mismatch of '/query', '{kind_of(query)}' not in 'string'")
    top_k = body.get("top_k")
    if top_k is not None and (not isinstance(top_k, int) or top_k < 1):
        raise _mismatch("'/top_k' must be at least 1")


def _check_contexts(contexts: object) -> None:
    if not isinstance(contexts, list) or not contexts:
        raise _mismatch(f"Type mismatch of '/contexts', '{kind_of(contexts)}' not in 'array'")
    for index, context in enumerate(contexts):
        if not isinstance(context, dict) or not isinstance(context.get("text"), str) or not context["text"]:
            raise _mismatch(f"required properties at '/contexts/{index}' are 'text'")


def _cut(text: str, tokens: int) -> str:
    """Return the beginning of a text, about ``tokens`` tokens."""
    words = text.split(" ")[: int(tokens / 1.3)]
    return " ".join(words)[: tokens * 6]


def _mismatch(detail: str, code: int = 5006) -> ServiceError:
    return ServiceError(400, code, f"Bad input: Error: oneOf at '/' not met, 0 matches: {detail}")
