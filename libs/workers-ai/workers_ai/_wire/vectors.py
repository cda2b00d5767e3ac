"""Embeddings and reranking: requests and replies."""

from __future__ import annotations

import array
import base64
import math
from typing import TYPE_CHECKING, Final, Literal, NamedTuple, TypeAlias

from workers_ai._validation import require_int, require_one_of
from workers_ai._wire.chat.reply import shortened, unwrap
from workers_ai._wire.chat.request import run_request
from workers_ai._wire.json_parsing import whole_number
from workers_ai._wire.quirks import QUERIES_AND_DOCUMENTS
from workers_ai._wire.request import Request
from workers_ai._wire.usage import finite, read_usage
from workers_ai.catalogue import lookup
from workers_ai.errors import APIResponseValidationError, BadRequestError, ConfigurationError
from workers_ai.types import JSON, EmbedReply, RerankScore

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = [
    "CONTEXTS_PER_REQUEST",
    "EmbedApi",
    "EmbedOptions",
    "check_embed_options",
    "embed_api",
    "embed_inputs",
    "embed_request",
    "read_scores",
    "read_vectors",
    "require_one_length",
    "rerank_request",
    "vector_rows",
]

CONTEXTS_PER_REQUEST: Final = 100
"""Texts in one rerank request. No cap is documented; this is the cap of the embedding models."""

EmbedApi: TypeAlias = Literal["run", "embeddings"]
"""Routes of embedding models: the native one, and ``/ai/v1/embeddings`` in OpenAI's form."""


class EmbedOptions(NamedTuple):
    """What shapes a vector besides the text; vectors of different options do not mix.

    Attributes:
        pooling: ``"mean"`` (the service's default) or ``"cls"``, for the bge family.
        truncate_inputs: Let the service cut texts that are too long, where the model has that option.
        query_instruction: For qwen3-embedding sent as ``instruction`` with queries; for other models put before each
            query, which is what their model cards ask for.
        normalize: Scale each vector to length 1.
        api: The route; None chooses it by the model, see :func:`embed_api`.
        dimensions: Length of the vectors, for models that can shorten them; ``api="embeddings"`` only.
    """

    pooling: Literal["mean", "cls"] | None = None
    truncate_inputs: bool | None = None
    query_instruction: str | None = None
    normalize: bool = False
    api: EmbedApi | None = None
    dimensions: int | None = None


def embed_api(model: str, api: EmbedApi | None = None) -> EmbedApi:
    """Return the route of an embedding model.

    The native route serves the models of Cloudflare's own catalogue. Dynamic routes and third-party ``author/model``
    ids, which AI Gateway forwards, speak OpenAI's form
    (https://developers.cloudflare.com/ai-gateway/features/dynamic-routing/).
    """
    if api is not None:
        return api
    return "run" if model.startswith(("@cf/", "@hf/")) or "/" not in model else "embeddings"


def check_embed_options(model: str, options: EmbedOptions, *, queued: bool = False) -> None:
    """Check that the route of a model knows these options.

    Args:
        model: Model id.
        options: What shapes the vectors.
        queued: Whether the texts go through the asynchronous queue.

    Raises:
        ConfigurationError: The route is unknown, or lacks an option.
    """
    require_one_of("api", options.api, (None, "run", "embeddings"))
    require_int("dimensions", options.dimensions, 1, None)
    if embed_api(model, options.api) == "run":
        own = lookup(model).dimensions
        if options.dimensions not in (None, own):
            length = "a fixed length" if own is None else f"{own} dimensions"
            raise ConfigurationError(
                f"dimensions={options.dimensions} exists only on api='embeddings': on the native route, vectors of "
                f"{model} have {length}; drop dimensions=, or choose another model"
            )
        return
    native = {"pooling": options.pooling, "truncate_inputs": options.truncate_inputs}
    if misplaced := [name for name, value in native.items() if value is not None]:
        raise ConfigurationError(f"{', '.join(misplaced)} exists only on api='run', not on api='embeddings'")
    if queued:
        raise ConfigurationError("the asynchronous queue belongs to api='run': use queue='never' with api='embeddings'")


def embed_inputs(
    model: str, texts: Sequence[str], options: EmbedOptions, *, kind: Literal["document", "query"]
) -> dict[str, JSON]:
    """The inputs of one embedding request, as they stand in a body or among the requests of a batch."""
    texts = list(texts)
    body: dict[str, JSON]
    if QUERIES_AND_DOCUMENTS.of(lookup(model)):
        body = {"queries" if kind == "query" else "documents": texts}
        if kind == "query" and options.query_instruction:
            body["instruction"] = options.query_instruction
    else:
        prefix = options.query_instruction if kind == "query" and options.query_instruction else ""
        body = {"text": [prefix + text for text in texts] if prefix else texts}
    if options.pooling is not None:
        body["pooling"] = options.pooling
    if options.truncate_inputs is not None:
        body["truncate_inputs"] = options.truncate_inputs
    return body


def embed_request(
    model: str,
    texts: Sequence[str],
    options: EmbedOptions,
    *,
    kind: Literal["document", "query"],
    reject_if_busy: bool = False,
) -> Request:
    """One synchronous embedding request."""
    api = embed_api(model, options.api)
    inputs = _openai_inputs if api == "embeddings" else embed_inputs
    body = inputs(model, texts, options, kind=kind)
    if reject_if_busy:
        body["options"] = {"rejectIfBusy": True}
    if api == "embeddings":
        return Request("v1/embeddings", body, model, "embeddings")
    return run_request(model, body, task="embeddings")


def _openai_inputs(
    model: str, texts: Sequence[str], options: EmbedOptions, *, kind: Literal["document", "query"]
) -> dict[str, JSON]:
    """The body of ``POST /ai/v1/embeddings``. The instruction stands before each query: the route has no field."""
    prefix = (options.query_instruction or "") if kind == "query" else ""
    body: dict[str, JSON] = {"model": model, "input": [prefix + text for text in texts]}
    if options.dimensions is not None:
        body["dimensions"] = options.dimensions
    return body


def read_vectors(
    data: JSON, model: str, count: int, *, normalize: bool = False, neurons: str | None = None
) -> EmbedReply:
    """Read vectors of any shape on the wire, and check them.

    Accepts ``data`` or ``response`` holding lists of numbers, and OpenAI items with ``index`` and an ``embedding`` that
    is a list or base64 of little-endian float32.

    Raises:
        APIResponseValidationError: Not one finite, non-zero vector per text, all of the same length.
    """
    result = unwrap(data)
    rows = vector_rows(result, model)
    if rows is None:
        what = "was queued" if isinstance(result, dict) and "request_id" in result else "has no vectors"
        raise _misfit(f"the reply {what}", model, data)
    if len(rows) != count:
        raise _misfit(f"the reply has {len(rows)} vectors for {count} texts", model, None)
    _check(rows, model)
    if normalize:
        rows = [_unit(row) for row in rows]
    facts = result if isinstance(result, dict) else {}
    pooling = facts.get("pooling")
    return EmbedReply(
        rows, model, read_usage(facts.get("usage"), neurons), pooling if isinstance(pooling, str) else None
    )


def vector_rows(result: JSON, model: str) -> list[JSON] | None:
    """Return the vectors of a result in the order of the texts, not yet checked; None if there is no list of them.

    Raises:
        APIResponseValidationError: Indexes do not fit, or a text is not base64 of float32.
    """
    rows = (result.get("data") or result.get("response")) if isinstance(result, dict) else result
    if not isinstance(rows, list):
        return None
    if rows and isinstance(rows[0], dict):
        rows = _in_order(rows, model)
    if rows and isinstance(rows[0], str):
        return [_from_base64(row, model) for row in rows]
    if rows and isinstance(rows[0], (int, float)):
        return [rows]  # one vector without the list around it
    return rows


def _misfit(message: str, model: str, data: JSON) -> APIResponseValidationError:
    return APIResponseValidationError(
        message, model=model, body=shortened(data) if data is not None else None, status_code=200
    )


def _in_order(items: Sequence[JSON], model: str) -> list[JSON]:
    """The embeddings of OpenAI items, in the order of their indexes, or as they came where none has one."""
    if not all(isinstance(item, dict) for item in items):
        raise _misfit("the reply mixes items of several kinds", model, None)
    if all("index" not in item and "id" not in item for item in items):
        return [item.get("embedding") for item in items]
    by_index = {whole_number(item.get("index", item.get("id"))): item.get("embedding") for item in items}
    if by_index.keys() != set(range(len(items))):
        raise _misfit("the indexes of the vectors are not those of the texts", model, None)
    return [by_index[index] for index in range(len(items))]


def _from_base64(text: JSON, model: str) -> list[float]:
    floats = array.array("f")
    try:
        floats.frombytes(base64.b64decode(text, validate=True))
    except (TypeError, ValueError):
        raise _misfit("a vector is not base64 of float32 numbers", model, None) from None
    return floats.tolist()


def require_one_length(vectors: Sequence[Sequence[float]], model: str) -> None:
    """Check that vectors of several replies mix.

    Raises:
        APIResponseValidationError: They differ in length.
    """
    if len(lengths := sorted({len(vector) for vector in vectors})) > 1:
        raise _misfit(f"vectors of one call differ in length: {lengths}", model, None)


def _check(rows: Sequence[JSON], model: str) -> None:
    length = len(rows[0]) if isinstance(rows[0], list) else 0
    for index, row in enumerate(rows):
        if not isinstance(row, list) or len(row) != length or not length:
            raise _misfit(f"vector {index} has another length than vector 0 ({length})", model, None)
        try:
            total = sum(row)
        except (TypeError, OverflowError):
            raise _misfit(f"vector {index} holds what is not a number", model, None) from None
        if finite(total) is None:
            raise _misfit(f"vector {index} holds NaN or infinity", model, None)
        if not any(row):
            raise _misfit(f"vector {index} is all zeros", model, None)


def _unit(row: list[float]) -> list[float]:
    length = math.hypot(*row)
    return [value / length for value in row]


def rerank_request(
    model: str, query: str, texts: Sequence[str], top_k: int, *, reject_if_busy: bool = False
) -> Request:
    """One rerank request for the best ``top_k`` of ``texts``.

    Raises:
        BadRequestError: The query is empty or no string.
    """
    if not isinstance(query, str) or not query:
        raise BadRequestError(f"the query is {query!r}: texts are scored against a query", model=model)
    body: dict[str, JSON] = {"query": query, "contexts": [{"text": text} for text in texts], "top_k": top_k}
    if reject_if_busy:
        body["options"] = {"rejectIfBusy": True}
    return run_request(model, body, task="rerank")


def read_scores(data: JSON, model: str, count: int, top_k: int) -> list[RerankScore]:
    """Read the scores of ``count`` texts, matched by ``id``, best first.

    Raises:
        APIResponseValidationError: Fewer than ``top_k`` of the texts have a finite score.
    """
    result = unwrap(data)
    rows: JSON = result
    if isinstance(result, dict):
        rows = next((rows for key in ("response", "data", "results") if (rows := result.get(key))), None)
    scores: dict[int, float] = {}
    for row in rows if isinstance(rows, list) else ():
        index, score = _scored(row)
        if index is not None and index < count and score is not None:
            scores[index] = score
    if len(scores) < top_k:
        raise _misfit(f"the reply scores {len(scores)} of the {top_k} texts asked for", model, data)
    return sorted((RerankScore(index, score) for index, score in scores.items()), key=lambda item: -item.score)[:top_k]


def _scored(row: Mapping[str, JSON]) -> tuple[int | None, float | None]:
    if not isinstance(row, dict):
        return None, None
    index, score = whole_number(row.get("id")), finite(row.get("score"))
    index = whole_number(row.get("index")) if index is None else index
    return index, finite(row.get("relevance_score")) if score is None else score
