"""List the parameters of a chat call. A module of its own, so that importing the names is cheap."""

from __future__ import annotations

from typing import Final

__all__ = ["CHAT_PARAMS", "RUN_ONLY_PARAMS"]

CHAT_PARAMS: Final = frozenset(
    {
        "temperature", "top_p", "top_k", "max_tokens", "stop", "seed", "frequency_penalty", "presence_penalty",
        "repetition_penalty", "logprobs", "top_logprobs", "tools", "tool_choice", "parallel_tool_calls",
        "response_format", "reasoning_effort", "chat_template_kwargs", "lora", "raw", "guided_json", "stream_options",
    }
)  # fmt: skip
"""Parameters of a chat call. Fields in ``extra_body`` are sent unchanged."""

RUN_ONLY_PARAMS: Final = frozenset({"lora", "raw", "top_k", "repetition_penalty", "guided_json"})
"""Parameters that exist only on the native route. If one is set, that route is the default."""
