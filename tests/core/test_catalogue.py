"""The catalogue: a table lists each fact with its source; a comparison with the lists of an account runs on demand."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support import every_row
from typer.testing import CliRunner

from workers_ai import Client
from workers_ai.catalogue import USD_PER_NEURON, known_models, lookup
from workers_ai.cli._app import app
from workers_ai.cli._models import Difference, check, compare, select_cards
from workers_ai.errors import ConfigurationError
from workers_ai_emulator import Clock, Emulator

SOURCES = {
    "price-page": "https://developers.cloudflare.com/workers-ai/platform/pricing/ (pricing.mdx@970ac729, 2026-10-09)",
    "model-page": "https://developers.cloudflare.com/workers-ai/models/ (October 2026)",
    "ai-search-page": "https://developers.cloudflare.com/ai-search/ (October 2026)",
    "live-suite": "https://github.com/cloudflare/langchain-cloudflare (pictures in its live tests, 2026-10)",
    "recorded": "models/search and the queue as recorded by others (2026-07 to 2026-10)",
    "changelog-2026-05-08": "https://developers.cloudflare.com/changelog/ (planned model deprecations, 2026-05-08)",
    "changelog-2026-10-09": "https://developers.cloudflare.com/changelog/ (clef-omni, 2026-10-09)",
}
ROWS = [line.split() for line in Path(__file__).with_name("catalogue_facts.txt").read_text().splitlines()[1:]]


def shown(value: Any) -> str:
    """Return a row of the table."""
    return "-" if value is None else {True: "yes", False: "no"}[value] if isinstance(value, bool) else str(value)


def test_every_fact_equals_its_source() -> None:
    assert sorted(row[0] for row in ROWS) == sorted(card.id for card in known_models())
    for row in ROWS:
        card = lookup(row[0])
        audio = card.usd_per_audio_minute if card.usd_per_k_characters is None else card.usd_per_k_characters
        facts = [
            card.usd_per_m_in, card.usd_per_m_out, card.usd_per_m_cached, audio, card.context_window,
            card.requests_per_minute, card.paid_only, card.batch, card.vision, card.retired_on,
        ]  # fmt: skip
        assert list(map(shown, facts)) == row[1:-1], row[0]
        assert row[-1] in SOURCES


OTHER_FACTS = [
    # https://developers.cloudflare.com/workers-ai/models/: schemas and model pages
    ("@cf/baai/bge-m3", {"max_items": 100, "max_input_tokens": 8192, "dimensions": 1024}),
    ("@cf/baai/bge-small-en-v1.5", {"max_items": 100, "max_input_tokens": 512, "dimensions": 384}),
    ("@cf/baai/bge-base-en-v1.5", {"max_items": 100, "max_input_tokens": 512, "dimensions": 768}),
    ("@cf/baai/bge-large-en-v1.5", {"max_items": 100, "max_input_tokens": 512, "dimensions": 1024}),
    ("@cf/qwen/qwen3-embedding-0.6b", {"max_items": 32, "dimensions": 1024}),
    ("@cf/google/embeddinggemma-300m", {"dimensions": 768}),
    ("@cf/meta/llama-3.3-70b-instruct-fp8-fast", {"family": "hybrid", "default_max_tokens": 256}),
    ("@cf/qwen/qwen3-30b-a3b-fp8", {"default_max_tokens": 2000}),
    ("@cf/cloudflare/clef-omni", {"audio": True, "video": True}),
    # models/search as recorded (2026-09-23), and the model pages
    ("@cf/qwen/qwen3.8-27b", {"reasoning_efforts": ("xhigh", "medium", "low"), "default_reasoning_effort": "xhigh"}),
    ("@cf/deepseek-ai/deepseek-v4-flash-0731", {"reasoning_efforts": ("max", "high", "low", "none")}),
    ("@cf/openai/gpt-oss-120b", {"reasoning_efforts": ("low", "medium", "high"), "default_reasoning_effort": "medium"}),
    # a live probe of 2026-09
    ("@cf/zai-org/glm-4.7-flash", {"tool_choice_refused": ("required",)}),
    ("@cf/mistralai/mistral-small-3.1-24b-instruct", {"tool_choice_refused": None, "guided_json": True}),
    # https://developers.cloudflare.com/changelog/: kimi-k2.6 answers for kimi-k2.5, at its own price
    ("@cf/moonshotai/kimi-k2.5", {"alias_of": "@cf/moonshotai/kimi-k2.6", "successor": "@cf/moonshotai/kimi-k2.6"}),
]


@every_row(("model", "facts"), OTHER_FACTS)
def test_further_facts_of_a_model(model: str, facts: dict[str, Any]) -> None:
    assert {name: getattr(lookup(model), name) for name in facts} == facts


def test_costs() -> None:
    assert lookup("@cf/moonshotai/kimi-k2.5").cost_usd(1_000_000, 1_000_000) == pytest.approx(0.95 + 4.0)
    assert lookup("@cf/openai/whisper").cost_usd(audio_minutes=10) == pytest.approx(0.005)
    assert lookup("@cf/deepgram/aura-1").cost_usd(characters=2_000) == pytest.approx(0.03)
    assert lookup("@cf/nobody/new").cost_usd(1) is lookup("@cf/openai/whisper").cost_usd(1) is None
    # 151 tokens in and 41 out of gpt-oss-120b were charged 7.59997 neurons
    cost = lookup("@cf/openai/gpt-oss-120b").cost_usd(151, 41)
    assert cost is not None
    assert cost / USD_PER_NEURON == pytest.approx(7.59997, rel=1e-4)


def row(model: str, **properties: Any) -> dict[str, Any]:
    """Return a row of ``models/search``."""
    named = [{"property_id": name, "value": value} for name, value in properties.items()]
    return {"name": model, "task": {"name": "Text Generation"}, "properties": named}


def test_a_comparison_lists_each_difference() -> None:
    model = "@cf/meta/llama-3.3-70b-instruct-fp8-fast"
    same = {"context_window": "24000", "function_calling": "true", "async_queue": "true", "lora": "true",
            "price": [{"unit": "per M input tokens", "price": 0.293, "currency": "USD"},
                      {"unit": "per M output tokens", "price": 2.253, "currency": "USD"}]}  # fmt: skip
    schema = {"oneOf": [{"properties": {"max_tokens": {"type": "integer", "default": 256}}}]}
    cards = [lookup(model)]
    assert list(compare(cards, [row(model, **same)], {model: schema})) == []

    other = {**same, "context_window": "32000", "vision": "true", "require_workers_paid": "true",
             "price": [{"unit": "per M input tokens", "price": 0.3}]}  # fmt: skip
    del other["async_queue"]
    schema["oneOf"][0]["properties"]["max_tokens"]["default"] = 512
    found = list(compare(cards, [row(model, **other), row("@cf/new/model")], {model: schema}))
    assert sorted((one.model, one.fact, one.here, one.service) for one in found[:-1]) == [
        (model, "batch", True, False),
        (model, "context_window", 24000, 32000),
        (model, "default_max_tokens", 256, 512),
        (model, "paid_only", False, True),
        (model, "usd_per_m_in", 0.293, 0.3),
        (model, "vision", False, True),
    ]
    assert found[-1] == Difference("@cf/new/model", "model", None, "listed")
    assert list(compare(cards, [], {})) == [Difference(model, "model", "listed", None)]


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["name", "task", "properties", "property_id", "value", "price", "unit", "text", "maxItems"]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


@given(rows=st.lists(VALUES, max_size=3), value=VALUES, schema=VALUES)
def test_lists_of_another_shape_are_compared_as_far_as_possible(rows: list[Any], value: Any, schema: Any) -> None:
    model = "@cf/baai/bge-m3"
    odd = row(model, context_window=value, price=value, reasoning_effort=value, planned_deprecation_date=value)
    for one in compare([lookup(model)], [*rows, odd, {"name": model, "properties": value}], {model: schema}):
        assert str(one)


def test_lists_and_schemas_are_read_from_the_account(account: dict[str, Any]) -> None:
    emulator = Emulator(clock=Clock("jump"))
    client = Client(**account, http_client=httpx.Client(transport=emulator.transport()))
    found = check(client, "text embeddings")
    asked = [(entry.path.rpartition("/ai/")[2], entry.model) for entry in emulator.log.entries]
    assert asked[0][0].startswith("models/search")
    assert any(path.startswith("models/schema") for path, _ in asked)
    assert all(one.model in {card.id for card in select_cards("Text Embeddings")} for one in found)


def test_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    runner = CliRunner()
    listed = runner.invoke(app, ["models"])
    assert listed.exit_code == 0
    assert all(card.id in listed.output for card in known_models())
    as_json = json.loads(runner.invoke(app, ["models", "--task", "text-embeddings", "--json"]).output)
    assert {one["task"] for one in as_json} == {"Text Embeddings"}
    assert runner.invoke(app, ["models", "--task", "nonsense"]).exit_code == 1
    with pytest.raises(ConfigurationError, match="Text Embeddings"):
        select_cards("nonsense")

    emulator = Emulator(clock=Clock("jump"))
    monkeypatch.setenv("CLOUDFLARE_ACCOUNT_ID", "0" * 32)
    monkeypatch.setenv("CLOUDFLARE_API_TOKEN", "token")
    with emulator.serve() as url:
        checked = runner.invoke(app, ["models", "--check", "--task", "text-embeddings", "--json", "--base-url", url])
    assert checked.exit_code in (0, 3), checked.output
    assert all(one.keys() == {"model", "fact", "here", "service"} for one in json.loads(checked.output))
