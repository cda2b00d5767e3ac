"""Keywords of chat and embedding calls. Importing this module does not import the code that sends them.

``ChatParams`` is the only list of parameters of a chat call. The clients accept and send every parameter in it.
``tests/core/test_keywords.py`` compares it with the fields of the framework classes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final, Literal, TypedDict

from workers_ai._settings.keywords import PER_CALL, CallKeywords

if TYPE_CHECKING:
    from workers_ai._wire.json_types import JSON
    from workers_ai.types import Api

__all__ = [
    "CHAT_PARAMS",
    "EMBED_KEYWORDS",
    "RUN_ONLY_PARAMS",
    "ChatKeywords",
    "ChatParams",
    "EmbedKeywords",
    "EmbedShape",
    "ModelFilters",
]


class ChatParams(TypedDict, total=False):
    """Parameters of a chat call. None is not sent, except for ``reasoning_effort``."""

    temperature: float | None
    """Randomness of the answer: 0 to 2 on most models, 0 to 5 on older ones."""
    top_p: float | None
    """Nucleus sampling, 0 to 1."""
    top_k: int | None
    """Sample from the k most likely tokens; ``run`` only."""
    max_tokens: int | None
    """Maximum number of tokens in the answer, reasoning included."""
    stop: Sequence[str] | str | None
    """Texts that end the answer."""
    seed: int | None
    """Seed for repeatable answers, where the model supports it."""
    frequency_penalty: float | None
    """Penalty for frequent tokens, -2 to 2."""
    presence_penalty: float | None
    """Penalty for tokens that occurred, -2 to 2."""
    repetition_penalty: float | None
    """Multiplicative penalty for repetition; ``run`` only."""
    logprobs: bool | None
    """Whether to return log probabilities."""
    top_logprobs: int | None
    """Number of alternatives per token in ``logprobs``."""
    tools: Sequence[Mapping[str, JSON]] | None
    """Tools in OpenAI's form."""
    tool_choice: str | bool | Mapping[str, JSON] | None
    """Tool to call: ``"auto"``, ``"none"``, ``"required"`` (``"any"``, True), a tool's name, or OpenAI's dict."""
    parallel_tool_calls: bool | None
    """Whether one answer may hold several calls; some models reject the parameter."""
    response_format: Mapping[str, JSON] | None
    """JSON mode, ``{"type": "json_object"}``, or a schema, ``{"type": "json_schema", "json_schema": ...}``."""
    reasoning_effort: str | None
    """Effort of a reasoning model; values differ by model. None is sent as null, if the model accepts null."""
    chat_template_kwargs: Mapping[str, JSON] | None
    """Options of the chat template, such as ``{"enable_thinking": False}``."""
    lora: str | None
    """Name or id of a LoRA adapter; ``run`` only."""
    raw: bool | None
    """Send the prompt without the chat template; ``run`` only."""
    guided_json: Mapping[str, JSON] | None
    """JSON schema for models that accept it by this name; ``run`` only."""
    stream_options: Mapping[str, JSON] | None
    """Options of a stream on chat completions. Default ``{"include_usage": True}``."""


class ChatKeywords(ChatParams, CallKeywords, total=False):
    """Keywords of a chat call: parameters, the route, and settings of the call."""

    api: Api | None
    """The route; None chooses ``"run"`` for parameters that exist only there, else ``"chat_completions"``."""


class EmbedShape(TypedDict, total=False):
    """Options of an embedding model."""

    batch_size: int | None
    """Maximum number of texts per request. Default: the maximum of the model."""
    empty_text: Literal["raise", "space"]
    """What to do with an empty text: raise an error with its index (the default), or embed one space."""
    pooling: Literal["mean", "cls"] | None
    """Pooling of the bge family; the service's default is ``"mean"``. Vectors of the two do not mix."""
    truncate_inputs: bool | None
    """Let the service truncate texts that are too long, where the model supports it."""
    query_instruction: str | None
    """Instruction for queries."""
    normalize: bool
    """Scale each vector to length 1. Default False."""
    api: Literal["run", "embeddings"] | None
    """The route: ``"run"``, or ``"embeddings"`` for ``/ai/v1/embeddings``; None chooses it by the model."""
    dimensions: int | None
    """Length of the vectors, for models that can shorten them; ``api="embeddings"`` only."""
    queue: Literal["never", "overflow", "always"]
    """When to send documents through the asynchronous queue: never (the default), after a rejection at capacity, or
    always. Queries are always sent directly."""
    deadline_s: float | None
    """Seconds to wait for the queue. Default 3600; None for no bound."""


class EmbedKeywords(EmbedShape, CallKeywords, total=False):
    """Keywords of an embedding call: options of the model, and settings of the call."""

    kind: Literal["document", "query"]
    """Whether the texts are documents (the default) or queries."""


class ModelFilters(TypedDict, total=False):
    """Filters of a list of models. None selects all."""

    task: str | None
    """Name of a task, such as ``"Text Generation"``."""
    search: str | None
    """Part of a name."""
    author: str | None
    """Name of an author."""
    source: int | None
    """Number of a source."""
    hide_experimental: bool | None
    """Whether to leave experimental models out."""


CHAT_PARAMS: Final = frozenset(ChatParams.__annotations__)
"""Parameters of a chat call; other body fields go in ``extra_body``."""

EMBED_KEYWORDS: Final = frozenset(EmbedKeywords.__annotations__) - PER_CALL
"""Options of an embedding call, without the settings of the call."""

RUN_ONLY_PARAMS: Final = frozenset({"lora", "raw", "top_k", "repetition_penalty", "guided_json"})
"""Parameters that exist only on the native route; with one of them set, that route is the default."""
