"""LangChain's model profile, from the catalogue."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

if TYPE_CHECKING:
    from langchain_core.language_models import ModelProfile

    from langchain_workers_ai._types import Fields


__all__ = ["ResolvedProfile", "profile_of"]


class ResolvedProfile(dict[str, object]):
    """A profile from the catalogue. It is replaced when the model changes."""


def profile_of(model: str, api: str | None = None) -> ModelProfile | None:
    """Return the profile of a model; None if the catalogue does not contain it.

    ``create_agent`` reads ``structured_output`` to choose between a JSON schema and a tool. The summarization
    middleware reads ``max_input_tokens``.
    """
    from workers_ai.catalogue import lookup

    card = lookup(model)
    if card.task is None:
        return None
    by_schema = card.json_schema or (card.guided_json and api in (None, "run"))
    facts: Fields = {
        "max_input_tokens": card.context_window,
        "max_output_tokens": card.max_output_tokens,
        "text_inputs": True,
        "text_outputs": True,
        "image_inputs": card.vision,
        # The service does not fetch links, and its chat models accept neither documents nor audio.
        "image_url_inputs": False,
        "pdf_inputs": False,
        "audio_inputs": False,
        "video_inputs": False,
        "tool_calling": card.tools,
        "tool_choice": card.tools,
        "structured_output": True if by_schema else card.json_schema,
        "reasoning_output": card.reasoning,
        "reasoning_effort_levels": list(card.reasoning_efforts) if card.reasoning_efforts else None,
        "reasoning_effort_default": card.default_reasoning_effort,
        "status": "deprecated" if card.retired_on else None,
    }
    known = ResolvedProfile({key: value for key, value in facts.items() if value is not None})
    return cast("ModelProfile", known)
