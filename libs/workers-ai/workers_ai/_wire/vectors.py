"""Write requests for embeddings and reranking, and read their replies."""

from __future__ import annotations

import array
import base64
import math
from typing import TYPE_CHECKING, Final, Literal, NamedTuple, TypeAlias, cast

from workers_ai._validation import require_int, require_one_of
from workers_ai._wire.chat.reply import shortened, unwrap
from workers_ai._wire.chat.request import run_request
from workers_ai._wire.json_parsing import whole_number
from workers_ai._wire.json_types import JSON
from workers_ai._wire.quirks import QUERIES_AND_DOCUMENTS
from workers_ai._wire.request import Request
from workers_ai._wire.usage import finite, read_usage
from workers_ai.catalogue import lookup
from workers_ai.errors import APIResponseValidationError, BadRequestError, ConfigurationError
from workers_ai.types import EmbedReply, RerankScore

if TYPE_CHECKING:
    from collections.abc import Sequence

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
"""Maximum texts in one rerank request. No limit is documented; this is the limit of the embedding models."""

EmbedApi: TypeAlias = Literal["run", "embeddings"]
"""Routes of embedding models: ``"run"``, or ``"embeddings"`` for ``/ai/v1/embeddings`` in OpenAI's form."""


class EmbedOptions(NamedTuple):
    """Options that change a vector. Vectors with different options cannot be compared.

    Attributes:
        pooling: ``"mean"`` (the service's default) or ``"cls"``, for the bge family.
        truncate_inputs: Whether the service truncates texts that are too long, for models with that option.
        query_instruction: Sent as ``instruction`` with queries of qwen3-embedding; prepended to each query for
            other models, as their model cards require.
        normalize: Scale each vector to length 1.
        api: The route; None for the default of the model, see :func:`embed_api`.
        dimensions: Length of the vectors, for models that can shorten them. Only for ``api="embeddings"``.
    """

    pooling: Literal["mean", "cls"] | None = None
    truncate_inputs: bool | None = None
    query_instruction: str | None = None
    normalize: bool = False
    api: EmbedApi | None = None
    dimensions: int | None = None


def embed_api(model: str, api: EmbedApi | None = None) -> EmbedApi:
    """Return the route of an embedding model.

    Models of Cloudflare's own catalogue have the native route. Dynamic routes and third-party ``author/model`` ids,
    which AI Gateway forwards, have OpenAI's form
    (https://developers.cloudflare.com/ai-gateway/features/dynamic-routing/).
    """
    if api is not None:
        return api
    return "run" if model.startswith(("@cf/", "@hf/")) or "/" not in model else "embeddings"


def check_embed_options(model: str, options: EmbedOptions, *, queued: bool = False) -> None:
    """Check that the route of a model has these options.

    Args:
        model: Model id.
        options: Options of the vectors.
        queued: Whether the texts are sent to the asynchronous queue.

    Raises:
        ConfigurationError: The route is unknown or lacks an option.
    """
    require_one_of("api", options.api, (None, "run", "embeddings"))
    require_int("dimensions", options.dimensions, 1, None)
    if embed_api(model, options.api) == "run":
        own = lookup(model).dimensions
        if options.dimensions not in (None, own):
            length = "a fixed length" if own is None else f"{own} dimensions"
            raise ConfigurationError(
                f"dimensions={options.dimensions} exists only on api='embeddings'. On the native route, vectors of "
                f"{model} have {length}: omit dimensions=, or choose another model"
            )
        return
    native = {"pooling": options.pooling, "truncate_inputs": options.truncate_inputs}
    if misplaced := [name for name, value in native.items() if value is not None]:
        raise ConfigurationError(f"{', '.join(misplaced)} exists only on api='run': omit it, or use api='run'")
    if queued:
        raise ConfigurationError(
            "the asynchronous queue exists only on api='run': use queue='never' with api='embeddings'"
        )


def embed_inputs(
    model: str, texts: Sequence[str], options: EmbedOptions, *, kind: Literal["document", "query"]
) -> dict[str, JSON]:
    """Return the inputs of one embedding request, for a body or for the requests of a batch."""
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
    """Return one synchronous embedding request."""
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
    """Return the body of ``POST /ai/v1/embeddings``. It has no field for the instruction: prepend it to each query."""
    prefix = (options.query_instruction or "") if kind == "query" else ""
    body: dict[str, JSON] = {"model": model, "input": [prefix + text for text in texts]}
    if options.dimensions is not None:
        body["dimensions"] = options.dimensions
    return body


def read_vectors(
    data: JSON, model: str, count: int, *, normalize: bool = False, neurons: str | None = None
) -> EmbedReply:
    """Read and check vectors in every known form.

    Accepts ``data`` or ``response`` with lists of numbers, and OpenAI items with ``index`` and ``embedding``. An
    embedding is a list, or base64 of little-endian float32.

    Raises:
        APIResponseValidationError: The reply does not have one finite, non-zero vector per text, all of one length.
    """
    result = unwrap(data)
    rows = vector_rows(result, model)
    if rows is None:
        queued = isinstance(result, dict) and "request_id" in result
        problem = "the request was queued instead of answered" if queued else "the reply has no vectors"
        raise _invalid(problem, model, data)
    if len(rows) != count:
        raise _invalid(f"the reply has {len(rows)} vectors for {count} texts", model, None)
    vectors = _check(rows, model)
    if normalize:
        vectors = [_unit(vector) for vector in vectors]
    fields = result if isinstance(result, dict) else {}
    pooling = fields.get("pooling")
    return EmbedReply(
        vectors, model, read_usage(fields.get("usage"), neurons), pooling if isinstance(pooling, str) else None
    )


def vector_rows(result: JSON, model: str) -> list[JSON] | None:
    """Return the unchecked vectors of a result in the order of the texts; None if the result has no list of vectors.

    Raises:
        APIResponseValidationError: The indexes do not match the texts, or a text is not base64 of float32.
    """
    rows = (result.get("data") or result.get("response")) if isinstance(result, dict) else result
    if not isinstance(rows, list):
        return None
    if rows and isinstance(rows[0], dict):
        rows = _in_order(rows, model)
    if rows and isinstance(rows[0], str):
        return [_from_base64(row, model) for row in rows]
    if rows and isinstance(rows[0], (int, float)):
        return [rows]  # a single vector, not in a list
    return rows


def _invalid(message: str, model: str, data: JSON) -> APIResponseValidationError:
    return APIResponseValidationError(
        message, model=model, body=shortened(data) if data is not None else None, status_code=200
    )


def _in_order(items: Sequence[JSON], model: str) -> list[JSON]:
    """Return the embeddings of OpenAI items, sorted by index; in their order if no item has an index."""
    rows = [item for item in items if isinstance(item, dict)]
    if len(rows) != len(items):
        raise _invalid("the reply mixes vectors of several forms", model, None)
    if all("index" not in row and "id" not in row for row in rows):
        return [row.get("embedding") for row in rows]
    by_index = {whole_number(row.get("index", row.get("id"))): row.get("embedding") for row in rows}
    if by_index.keys() != set(range(len(rows))):
        raise _invalid("the indexes of the vectors do not match the texts", model, None)
    return [by_index[index] for index in range(len(rows))]


def _from_base64(text: JSON, model: str) -> list[float]:
    floats = array.array("f")
    try:
        if not isinstance(text, str):
            raise TypeError
        floats.frombytes(base64.b64decode(text, validate=True))
    except (TypeError, ValueError):
        raise _invalid("a vector is not base64 of float32 numbers", model, None) from None
    return floats.tolist()


def require_one_length(vectors: Sequence[Sequence[float]], model: str) -> None:
    """Check that the vectors of several replies have one length.

    Raises:
        APIResponseValidationError: The lengths differ.
    """
    if len(lengths := sorted({len(vector) for vector in vectors})) > 1:
        raise _invalid(f"vectors of one call differ in length: {lengths}", model, None)


def _check(rows: Sequence[JSON], model: str) -> list[list[float]]:
    """Return the vectors if all are valid."""
    length = len(rows[0]) if isinstance(rows[0], list) else 0
    if not length:
        raise _invalid("vector 0 is not a list of numbers", model, None)
    vectors: list[list[float]] = []
    for index, row in enumerate(rows):
        if not isinstance(row, list) or len(row) != length:
            raise _invalid(f"vector {index} is not a list of {length} numbers like vector 0", model, None)
        try:
            numbers = cast("list[float]", row)
            total = sum(numbers)
            if type(total) is int and bool in map(type, numbers):
                raise TypeError
        except (TypeError, OverflowError):
            raise _invalid(f"vector {index} contains a value that is not a number", model, None) from None
        if finite(total) is None:
            raise _invalid(f"vector {index} contains NaN or infinity", model, None)
        if not any(row):
            raise _invalid(f"vector {index} is all zeros", model, None)
        vectors.append(numbers)
    return vectors


def _unit(row: list[float]) -> list[float]:
    length = math.hypot(*row)
    return [value / length for value in row]


def rerank_request(
    model: str, query: str, texts: Sequence[str], top_k: int, *, reject_if_busy: bool = False
) -> Request:
    """Return the rerank request for the best ``top_k`` of ``texts``.

    Raises:
        BadRequestError: The query is empty or not a string.
    """
    if not isinstance(query, str) or not query:
        raise BadRequestError(f"the query must be a non-empty string, not {query!r:.200}", model=model)
    body: dict[str, JSON] = {"query": query, "contexts": [{"text": text} for text in texts], "top_k": top_k}
    if reject_if_busy:
        body["options"] = {"rejectIfBusy": True}
    return run_request(model, body, task="rerank")


def read_scores(data: JSON, model: str, count: int, top_k: int) -> list[RerankScore]:
    """Read the scores of ``count`` texts, matched by ``id``, best first.

    Raises:
        APIResponseValidationError: Fewer than ``top_k`` texts have a finite score.
    """
    result = unwrap(data)
    rows: JSON = result
    if isinstance(result, dict):
        rows = next((rows for key in ("response", "data", "results") if (rows := result.get(key))), None)
    scores: dict[int, float] = {}
    for row in rows if isinstance(rows, list) else ():
        index, score = _read_score(row)
        if index is not None and index < count and score is not None:
            scores[index] = score
    if len(scores) < top_k:
        raise _invalid(f"the reply has scores for {len(scores)} texts, but {top_k} were requested", model, data)
    return sorted((RerankScore(index, score) for index, score in scores.items()), key=lambda item: -item.score)[:top_k]


def _read_score(row: JSON) -> tuple[int | None, float | None]:
    """Return the index and the score of a row; None for each that is missing."""
    if not isinstance(row, dict):
        return None, None
    index, score = whole_number(row.get("id")), finite(row.get("score"))
    index = whole_number(row.get("index")) if index is None else index
    return index, finite(row.get("relevance_score")) if score is None else score
