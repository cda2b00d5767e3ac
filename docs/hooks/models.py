"""Write the catalogue of models as tables."""

from __future__ import annotations

from collections.abc import Callable

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import Files
from mkdocs.structure.pages import Page

from workers_ai.catalogue import ModelCard, known_models

MARK = "<!-- models -->"
Column = tuple[str, Callable[[ModelCard], str]]


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:,}"


def _price(card: ModelCard) -> str:
    if card.usd_per_m_in is None:
        return ""
    output = "" if card.usd_per_m_out is None else f" / {card.usd_per_m_out:g}"
    return f"{card.usd_per_m_in:g}{output}"


def _features(card: ModelCard) -> str:
    facts = {
        "tools": card.tools,
        "JSON schema": card.json_schema,
        "reasoning": card.reasoning,
        "images": card.vision,
        "audio": card.audio,
        "LoRA": card.lora,
        "paid plan only": card.paid_only,
    }
    return ", ".join(name for name, value in facts.items() if value)


MODEL: Column = ("model", lambda card: f"`{card.id}`")
QUEUE: Column = ("queue", lambda card: "yes" if card.batch else "")
PRICE: Column = ("USD per million tokens, in / out", _price)
NOTES: Column = ("features", _features)
COLUMNS: dict[str, list[Column]] = {
    "Text Generation": [MODEL, ("context window", lambda card: _number(card.context_window)), NOTES, QUEUE, PRICE],
    "Text Embeddings": [
        MODEL,
        ("dimensions", lambda card: _number(card.dimensions)),
        ("tokens of a text", lambda card: _number(card.max_input_tokens)),
        ("texts per request", lambda card: str(card.texts_per_request)),
        QUEUE,
        PRICE,
    ],
}
OTHER: list[Column] = [MODEL, NOTES, QUEUE, PRICE]


def _task(card: ModelCard) -> str:
    return "Decisions" if card.family == "decision" else card.task or "Other"


def _table(columns: list[Column], cards: list[ModelCard]) -> list[str]:
    head = ["| " + " | ".join(name for name, _ in columns) + " |", "|" + "---|" * len(columns)]
    return head + ["| " + " | ".join(cell(card) for _, cell in columns) + " |" for card in cards]


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Replace the mark on the page by one table for each task, and one of retired models."""
    if MARK not in markdown:
        return markdown
    current = [card for card in known_models() if not card.retired_on]
    lines: list[str] = []
    for task in dict.fromkeys(map(_task, current)):
        cards = [card for card in current if _task(card) == task]
        lines += [f"## {task}", "", *_table(COLUMNS.get(task, OTHER), cards), ""]
    retired = [card for card in known_models() if card.retired_on]
    columns: list[Column] = [
        MODEL,
        ("retired on", lambda card: card.retired_on or ""),
        ("use instead", lambda card: f"`{card.successor}`" if card.successor else ""),
    ]
    lines += ["## Retired models", "", *_table(columns, retired)]
    return markdown.replace(MARK, "\n".join(lines))
