"""The catalogue routes, and the check of a token."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING

from workers_ai_emulator.catalogue import Model, models
from workers_ai_emulator.shapes import schemas
from workers_ai_emulator.shapes.envelopes import success
from workers_ai_emulator.wire import Reply, ServiceError, json_reply

if TYPE_CHECKING:
    from workers_ai_emulator.state.service import Service
    from workers_ai_emulator.wire import Call, Json

_PER_PAGE = 100
_TOTAL = 310


def search(service: Service, call: Call) -> Reply:
    """Answer ``GET /ai/models/search``. As publicly reported, ``total_count`` exceeds the length of the list."""
    if call.token in service.settings.list_refused_tokens:
        raise ServiceError(401, 10000, "Authentication error", layer="api")
    search_text = call.query.get("search", "").lower()
    task = call.query.get("task", "")
    author = call.query.get("author", "")
    deprecated = call.query.get("include_deprecated", "").lower() == "true"
    rows = [
        _row(model)
        for model in models().values()
        if search_text in model.id.lower()
        and task in {"", model.task}
        and author in {"", model.id.split("/")[1]}
        and (deprecated or not model.retired_on)
    ]
    page, per_page = int(call.query.get("page", 1)), int(call.query.get("per_page", _PER_PAGE))
    part = rows[(page - 1) * per_page : page * per_page]
    info = {"count": len(part), "page": page, "per_page": per_page, "total_count": _TOTAL}
    return json_reply(success(part) | {"result_info": info})


def schema(service: Service, call: Call) -> Reply:
    """Answer ``GET /ai/models/schema?model=`` with outlines of the input and output schemas.

    Raises:
        ServiceError: 6002 for an unknown or retired model.
    """
    model = models().get(call.query.get("model", ""))
    if model is None or model.retired_on:
        raise ServiceError(404, 6002, "Model schema not found", layer="api")
    return json_reply(success({"input": schemas.input_schema(model), "output": schemas.output_schema(model)}))


def verify(service: Service, call: Call) -> Reply:
    """Answer ``GET /user/tokens/verify``, or the same for a token that the account owns.

    Raises:
        ServiceError: 1000 for a token of the other kind.
    """
    is_owned = call.token in service.settings.account_tokens
    if is_owned == (call.segments[2] == "user"):
        raise ServiceError(401, 1000, "Invalid API Token", layer="api")
    body = success({"id": "0" * 32, "status": "active"})
    body["messages"] = [{"code": 10000, "message": "This API Token is valid and active", "type": None}]
    return json_reply(body)


def get_not_supported(service: Service, call: Call) -> Reply:
    """Reject ``GET /ai/v1/models`` (https://github.com/jekalmin/extended_openai_conversation/issues/228)."""
    raise ServiceError(405, 7001, "GET not supported for requested URI.", layer="api")


def _row(model: Model) -> Json:
    return {
        "id": str(uuid.uuid5(uuid.NAMESPACE_URL, model.id)),
        "source": 1,
        "name": model.id,
        "description": f"{model.task} model",
        "task": {
            "id": str(uuid.uuid5(uuid.NAMESPACE_URL, model.task)),
            "name": model.task,
            "description": f"{model.task} models",
        },
        "tags": [],
        "created_at": "2026-01-01 00:00:00.000",
        "properties": _properties(model),
    }


def _efforts(model: Model) -> Json | None:
    """Return the property ``reasoning_effort``. Its value is an object, unlike those of all other properties."""
    effort = model.reasoning_effort
    if effort is None:
        return None
    names = {"supported": "supported_efforts", "default": "default_effort"}
    return {names.get(key, key): value for key, value in effort.items()} | {"supports_max_tokens": True}


def _properties(model: Model) -> list[Json]:
    """Return the properties in the form of the catalogue: numbers and booleans are strings."""
    prices = [
        {"unit": unit, "price": price, "currency": "USD"}
        for unit, price in (
            ("per M input tokens", model.usd_in_per_m),
            ("per M output tokens", model.usd_out_per_m),
            ("per M cached input tokens", model.usd_cached_in_per_m),
        )
        if price
    ]
    values: Json = {
        "context_window": str(model.context_window) if model.context_window else None,
        "price": prices or None,
        "function_calling": "true" if model.function_calling else None,
        "reasoning": "true" if model.reasoning else None,
        "reasoning_effort": _efforts(model),
        "vision": "true" if model.vision else None,
        "async_queue": "true" if model.batch else None,
        "require_workers_paid": "true" if model.paid_only else None,
        "lora": "true" if model.lora else None,
        "planned_deprecation_date": model.retired_on,
        "max_input_tokens": str(model.max_input_tokens) if model.max_input_tokens else None,
        "output_dimensions": str(model.dimensions) if model.dimensions else None,
    }
    return [{"property_id": key, "value": value} for key, value in values.items() if value is not None]
