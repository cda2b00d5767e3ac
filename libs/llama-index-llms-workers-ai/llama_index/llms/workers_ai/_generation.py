"""Arguments of :func:`workers_ai.generation.generate` for the options of an LLM."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, cast

from llama_index.core.prompts import BasePromptTemplate
from llama_index.llms.workers_ai._to_wire import to_wire_messages

from workers_ai.errors import BatchItemError, ConfigurationError
from workers_ai.integration import CHAT_PARAMS, PER_CALL, accepts_null_effort

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from llama_index.core.llms.llm import LLM
    from llama_index.core.prompts import PromptTemplate
    from llama_index.core.types import Model

    from workers_ai import ChatKeywords
    from workers_ai.generation import Answer, ChatInput, SamplingOptions

__all__ = ["generation_options", "parsed", "rendered_rows"]

_NAMED: Final = ("max_tokens", "temperature", "seed", "stop", "reasoning_effort")
"""Parameters that ``generate`` has keywords for."""
_NOT_SENT: Final = frozenset({"tools", "tool_choice", "parallel_tool_calls", "stream_options"})
"""Parameters without effect: a generation runs no tools, and its answers are not streamed."""


def generation_options(model: str, options: ChatKeywords) -> SamplingOptions:
    """Return the keywords of ``generate`` for the model and the options of a chat call.

    Raises:
        ConfigurationError: Tools or a setting of a single request were passed.
    """
    if unusable := sorted(PER_CALL - {"extra_body"} & options.keys()):
        raise ConfigurationError(f"{', '.join(unusable)} cannot be set for a generation: set it on the LLM")
    if options.get("tools"):
        raise ConfigurationError("tools cannot be set for a generation, which does not run tools: leave them out")
    body = dict(options.get("extra_body") or {})
    named: dict[str, object] = {}
    for name, value in options.items():
        if name not in CHAT_PARAMS - _NOT_SENT:
            continue
        if name in _NAMED and value is not None:
            named[name] = value
        elif value is not None or (name == "reasoning_effort" and accepts_null_effort(model)):
            body[name] = value
    return cast("SamplingOptions", {**named, "extra_body": body or None})


def rendered_rows(
    llm: LLM, prompt: PromptTemplate, rows: Sequence[Mapping[str, object]]
) -> list[tuple[int, ChatInput]]:
    """Return the inputs of ``generate`` for a prompt and its rows.

    Raises:
        ConfigurationError: The prompt is not a template, or a row has no value for a variable of it.
    """
    from workers_ai.generation import ChatInput

    if not isinstance(prompt, BasePromptTemplate):
        raise ConfigurationError(f"prompt must be a PromptTemplate, not a {type(prompt).__name__}")
    mapped = prompt.template_var_mappings or {}
    inputs = []
    for index, row in enumerate(rows):
        names = {mapped.get(name, name) for name in (*row, *prompt.kwargs, *(prompt.function_mappings or {}))}
        if missing := [name for name in prompt.template_vars if name not in names]:
            raise ConfigurationError(f"row {index} has no value for {', '.join(missing)}: add it, the prompt uses it")
        messages = llm._extend_messages(prompt.format_messages(llm=llm, **row))
        inputs.append((index, ChatInput(to_wire_messages(messages))))
    return inputs


def parsed(answers: Iterable[Answer], output_cls: type[Model], model: str) -> list[Model | Exception]:
    """Return an object for each answer. A failed input has an error instead, with its position as ``index``."""
    found: list[Model | Exception] = []
    for index, answer in enumerate(answers):
        if isinstance(answer.data, output_cls):
            found.append(answer.data)
        else:
            why, code = (answer.error.message, answer.error.code) if answer.error else ("the answer is empty", None)
            found.append(BatchItemError(f"row {index} failed: {why}", index=index, code=code, model=model))
    return found
