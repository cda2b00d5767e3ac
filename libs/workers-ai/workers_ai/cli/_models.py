"""``workers-ai models``: list the catalogue, and compare it with an account."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Final, NamedTuple
from urllib.parse import urlencode

from workers_ai._flow.drivers import drive
from workers_ai._wire.request import Request
from workers_ai.catalogue import ModelCard, known_models, lookup
from workers_ai.errors import ConfigurationError, NotFoundError
from workers_ai.types import JSON

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from workers_ai.client import Client

__all__ = ["Difference", "select_cards", "check", "compare", "listing"]

_PRICES: Final = {
    "per M input tokens": "usd_per_m_in",
    "per M output tokens": "usd_per_m_out",
    "per M cached input tokens": "usd_per_m_cached",
    "per audio minute": "usd_per_audio_minute",
    "per 1k characters": "usd_per_k_characters",
}
_FLAGS: Final = {
    "function_calling": "tools",
    "reasoning": "reasoning",
    "vision": "vision",
    "async_queue": "batch",
    "lora": "lora",
    "require_workers_paid": "paid_only",
}
_NUMBERS: Final = {
    "context_window": "context_window",
    "max_input_tokens": "max_input_tokens",
    "output_dimensions": "dimensions",
}
_SHOWN: Final = {
    "tools": "tools", "vision": "images", "reasoning": "reasoning", "batch": "queue", "lora": "LoRA",
    "paid_only": "paid plan",
}  # fmt: skip


class Difference(NamedTuple):
    """One fact on which the catalogue and the service differ.

    Attributes:
        model: Model id.
        fact: Field of :class:`~workers_ai.catalogue.ModelCard`, or ``"model"`` if one side lacks the whole model.
        here: Value in the catalogue; None if missing.
        service: Value of the service; None if missing.
    """

    model: str
    fact: str
    here: object
    service: object

    def __str__(self) -> str:
        return f"{self.model}: {self.fact}: here {_shown(self.here)}, service {_shown(self.service)}"


def select_cards(task: str | None) -> list[ModelCard]:
    """Return the cards of a task; ignore case and punctuation of its name. Return all cards for None.

    Raises:
        ConfigurationError: The task is unknown; the message lists the tasks.
    """
    if task is None:
        return known_models()
    found = [card for card in known_models() if card.task and _plain(card.task) == _plain(task)]
    if not found:
        tasks = sorted({card.task for card in known_models() if card.task})
        raise ConfigurationError(f"unknown task {task!r}: use one of {', '.join(tasks)}")
    return found


def listing(cards: Sequence[ModelCard], *, as_json: bool) -> str:
    """Return cards as a table, or all their facts as JSON."""
    if as_json:
        facts = [{name: value for name, value in asdict(card).items() if value is not None} for card in cards]
        return json.dumps(facts, indent=2)
    width = max(len(card.id) for card in cards)
    lines = [f"{'model':<{width}}  {'context':>9}  {'USD/M in':>9}  {'USD/M out':>9}  features"]
    lines += [
        f"{card.id:<{width}}  {_shown(card.context_window):>9}  {_shown(card.usd_per_m_in):>9}  "
        f"{_shown(card.usd_per_m_out):>9}  {_features(card)}".rstrip()
        for card in cards
    ]
    return "\n".join(lines)


def check(client: Client, task: str | None = None) -> list[Difference]:
    """Compare the catalogue with ``models/search`` and ``models/schema`` of an account.

    Args:
        client: Client of the account; its token must have the permission to list models.
        task: Compare the models of this task only.

    Raises:
        WorkersAIError: The account's lists cannot be read.
    """
    rows = client.models()
    listed = {row["name"] for row in rows if isinstance(row, dict) and isinstance(row.get("name"), str)}
    cards = select_cards(task)
    schemas = {card.id: _schema(client, card.id) for card in cards if card.id in listed}
    return list(compare(cards, rows, schemas, whole=task is None))


def compare(
    cards: Sequence[ModelCard], rows: Iterable[JSON], schemas: Mapping[str, JSON], *, whole: bool = True
) -> Iterator[Difference]:
    """Yield the differences between cards and the rows of ``models/search`` and schemas of ``models/schema``.

    A fact that the service does not report is ignored. A flag that it does not report means False.

    Args:
        cards: Cards of the catalogue.
        rows: Rows of ``models/search``; a row of another shape is skipped.
        schemas: Input schemas by model id.
        whole: Whether to report models that the catalogue does not contain.
    """
    listed: dict[str, Mapping[str, JSON]] = {
        row["name"]: row for row in rows if isinstance(row, dict) and isinstance(row.get("name"), str)
    }
    for card in cards:
        row = listed.pop(card.id, None)
        if row is None:
            if card.retired_on is None:
                yield Difference(card.id, "model", "listed", None)
            continue
        stated = _stated(row)
        stated |= _stated_by_schema(schemas.get(card.id))
        for fact, value in stated.items():
            here = getattr(card, fact)
            if here != value and not (here is None and value is False):
                yield Difference(card.id, fact, here, value)
    if whole:
        for name in listed:
            if lookup(name).task is None:
                yield Difference(name, "model", None, "listed")


def _stated(row: Mapping[str, JSON]) -> dict[str, object]:
    """Return the facts in a row of ``models/search``, under the names of the catalogue."""
    properties = {
        entry.get("property_id"): entry.get("value")
        for entry in _list(row.get("properties"))
        if isinstance(entry, dict) and isinstance(entry.get("property_id"), str)
    }
    stated: dict[str, object] = {fact: _is_true(properties.get(name)) for name, fact in _FLAGS.items()}
    for name, fact in _NUMBERS.items():
        if (number := _number(properties.get(name))) is not None:
            stated[fact] = int(number)
    for price in _list(properties.get("price")):
        if not isinstance(price, dict):
            continue
        priced = _PRICES.get(str(price.get("unit")))
        if priced and (number := _number(price.get("price"))) is not None:
            stated[priced] = number
    effort = properties.get("reasoning_effort")
    if isinstance(effort, dict) and isinstance(efforts := effort.get("supported_efforts"), list):
        stated["reasoning_efforts"] = tuple(map(str, efforts))
        stated["default_reasoning_effort"] = effort.get("default_effort")
    task = row.get("task")
    if isinstance(task, dict) and isinstance(task.get("name"), str):
        stated["task"] = task["name"]
    if isinstance(date := properties.get("planned_deprecation_date"), str):
        stated["retired_on"] = date[:10]
    return stated


def _stated_by_schema(schema: JSON) -> dict[str, object]:
    """Return the facts in an input schema: default of ``max_tokens``, texts per request, ``guided_json``."""
    stated: dict[str, object] = {}
    for name, field in _fields(schema):
        if name == "max_tokens" and isinstance(default := field.get("default"), int):
            stated["default_max_tokens"] = default
        elif name in ("text", "documents"):
            forms = [field, *_list(field.get("oneOf")), *_list(field.get("anyOf"))]
            for form in forms:
                if isinstance(form, dict) and isinstance(most := form.get("maxItems"), int):
                    stated["max_items"] = most
        elif name == "guided_json":
            stated["guided_json"] = True
    return stated


def _fields(schema: JSON, depth: int = 12) -> Iterator[tuple[str, dict[str, JSON]]]:
    """Yield the name and schema of each property, at any depth up to 12."""
    if isinstance(schema, list):
        schema = {str(number): inner for number, inner in enumerate(schema)}
    if not isinstance(schema, dict) or not depth:
        return
    properties = schema.get("properties")
    if isinstance(properties, dict):
        yield from ((name, field) for name, field in properties.items() if isinstance(field, dict))
    for value in schema.values():
        yield from _fields(value, depth - 1)


def _schema(client: Client, model: str) -> JSON:
    """Return the input schema of a model; None if the service has none."""
    request = Request("models/schema", None, model, "catalogue", "GET", urlencode({"model": model}))
    try:
        reply = drive(client._connection.calls.exchange(request), client._connection.transport)
    except NotFoundError:
        return None
    result = reply.data.get("result") if isinstance(reply.data, dict) else None
    return result.get("input") if isinstance(result, dict) else None


def _is_true(value: object) -> bool:
    return value is True or str(value).lower() == "true"


def _number(value: object) -> float | None:
    if not isinstance(value, str | int | float):
        return None
    try:
        number = float(value)
    except (ValueError, OverflowError):
        return None
    return number if math.isfinite(number) else None


def _list(value: JSON) -> list[JSON]:
    return value if isinstance(value, list) else []


def _plain(task: str) -> str:
    return "".join(letter for letter in task.lower() if letter.isalnum())


def _shown(value: object) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:,}" if isinstance(value, int) else f"{value:g}" if isinstance(value, float) else str(value)


def _features(card: ModelCard) -> str:
    features = [shown for name, shown in _SHOWN.items() if getattr(card, name)]
    if card.retired_on:
        features.append(f"retired {card.retired_on}")
    return ", ".join(features)
