"""Embeddings and reranking on the native and on the OpenAI-compatible route."""

from __future__ import annotations

import base64
import json
import math
import struct
from typing import TYPE_CHECKING

from workers_ai_emulator.endpoints.inference import work
from workers_ai_emulator.rules import embedding_checks as checks
from workers_ai_emulator.rules.tokens import count_tokens, neurons
from workers_ai_emulator.rules.vectors import relevance, vector_json
from workers_ai_emulator.wire import JSON_TYPE, Reply, dumps

if TYPE_CHECKING:
    from workers_ai_emulator.catalogue import Model
    from workers_ai_emulator.endpoints.request_faults import RequestFaults
    from workers_ai_emulator.flow import Flow
    from workers_ai_emulator.state.service import Service
    from workers_ai_emulator.wire import Call, Json


_OTHER_LENGTH = 3.0


def embed_native(service: Service, call: Call, model: Model, body: Json, faults: RequestFaults) -> Flow[Reply]:
    """Answer ``POST /ai/run/{model}`` for an embedding model or a reranker."""
    checks.check_native(model, body, service.settings)

    def reply() -> Reply:
        service.log.embed(checks.texts_of(model, body))
        result, tokens = result_json(service, model, body)
        return _reply(service, faults, model, f'{{"result":{result},"success":true,"errors":[],"messages":[]}}', tokens)

    result = yield from work(service, call, model, body, faults.latency_s, reply)
    return result


def embed_compat(service: Service, call: Call, model: Model, body: Json, faults: RequestFaults) -> Flow[Reply]:
    """Answer ``POST /ai/v1/embeddings``."""
    texts = checks.check_compat(model, body, service.settings)
    cut = body.get("dimensions") if service.settings.v1_dimensions == "cut" else None
    as_text = body.get("encoding_format") == "base64" and service.settings.v1_base64

    def reply() -> Reply:
        service.log.embed(texts)
        used, tokens = checks.fit(model, texts, service.settings, truncate=False)
        items = ",".join(
            f'{{"object":"embedding","index":{index},"embedding":{_base64(vector) if as_text else vector}}}'
            for index, vector in enumerate(vectors_json(service, model, used, model.id, cut))
        )
        usage = f'{{"prompt_tokens":{tokens},"total_tokens":{tokens}}}'
        head = f'{{"object":"list","data":[{items}],"model":"{model.id}"'
        return _reply(service, faults, model, f'{head},"usage":{usage}}}', tokens)

    result = yield from work(service, call, model, body, faults.latency_s, reply)
    return result


def result_json(service: Service, model: Model, body: Json) -> tuple[str, int]:
    """Return the ``result`` for checked inputs as JSON text, and the number of input tokens."""
    if "contexts" in body:
        return _contexts_result(service, model, body)
    texts, salt = checks.texts_and_salt(model, body)
    used, tokens = checks.fit(model, texts, service.settings, truncate=body.get("truncate_inputs") is True)
    vectors = vectors_json(service, model, used, salt)
    pooling = (
        f',"pooling":"{body.get("pooling") or checks.default_pooling(model)}"' if checks.default_pooling(model) else ""
    )
    return f'{{"shape":[{len(used)},{model.dimensions}],"data":[{",".join(vectors)}]{pooling}}}', tokens


def vectors_json(
    service: Service, model: Model, texts: list[str], salt: str, dimensions: int | None = None
) -> list[str]:
    """Return the vector of each text as JSON text. The vector is a hash of the words, or comes from the upstream."""
    if service.upstream is not None:
        return [json.dumps(vector) for vector in service.upstream.embed(model.id, texts)]
    length = 1.0 if service.settings.unit_vectors else _OTHER_LENGTH
    return [vector_json(text, dimensions or model.dimensions or 0, salt, length) for text in texts]


def _base64(vector: str) -> str:
    """Return a vector as OpenAI's base64 of 32-bit floats, as JSON text."""
    values = json.loads(vector)
    return json.dumps(base64.b64encode(struct.pack(f"<{len(values)}f", *values)).decode())


def _contexts_result(service: Service, model: Model, body: Json) -> tuple[str, int]:
    contexts = [str(context["text"]) for context in body["contexts"]]
    if "query" not in body:
        used, tokens = checks.fit(model, contexts, service.settings, truncate=body.get("truncate_inputs") is True)
        listed = ",".join(vectors_json(service, model, used, model.id))
        head = f'{{"{service.settings.contexts_key}":[{listed}]'
        return f'{head},"shape":[{len(used)},{model.dimensions}],"pooling":"mean"}}', tokens
    query = str(body["query"])
    scores: list[Json] = [
        {"id": index, "score": _score(service, relevance(query, text))} for index, text in enumerate(contexts)
    ]
    if body.get("top_k"):
        scores = sorted(scores, key=lambda row: -row["score"])[: body["top_k"]]
    tokens = sum(count_tokens(text) for text in contexts) + count_tokens(query) * len(contexts)
    usage = {"prompt_tokens": tokens, "completion_tokens": 0, "total_tokens": tokens}
    return dumps({"response": scores, "usage": usage}).decode(), tokens


def _score(service: Service, share: float) -> float:
    """Return a relevance between 0 and 1 in the form that the reranker reports."""
    if service.settings.rerank_scores == "sigmoid":
        return share
    share = min(max(share, 1e-6), 1 - 1e-6)
    return round(math.log(share / (1 - share)), 6)


def _reply(service: Service, faults: RequestFaults, model: Model, body: str, tokens: int) -> Reply:
    price = neurons(model, tokens, 0)
    service.limits.charge(price)
    headers = {"content-type": JSON_TYPE, "cf-ai-neurons": f"{price:.2f}"}
    if faults.shapes:
        return Reply(200, headers, dumps(faults.whole(json.loads(body))))
    return Reply(200, headers, body.encode())
