"""The LLM class. It maps LlamaIndex's methods to calls of the core client."""

from __future__ import annotations

import asyncio
from contextlib import aclosing, closing
from typing import TYPE_CHECKING, Any, ClassVar, Final, Unpack, cast, overload

from llama_index.core.base.llms.generic_utils import (
    achat_to_completion_decorator,
    astream_chat_to_completion_decorator,
    chat_to_completion_decorator,
    stream_chat_to_completion_decorator,
)
from llama_index.core.base.llms.types import (
    ChatMessage,
    ChatResponse,
    ChatResponseAsyncGen,
    ChatResponseGen,
    CompletionResponse,
    CompletionResponseAsyncGen,
    CompletionResponseGen,
    LLMMetadata,
    MessageRole,
    ToolCallBlock,
)
from llama_index.core.constants import DEFAULT_NUM_OUTPUTS
from llama_index.core.llms.callbacks import llm_chat_callback, llm_completion_callback
from llama_index.core.types import PydanticProgramMode
from llama_index.llms.workers_ai._from_wire import StreamedResponse, to_chat_response, to_tool_selections
from llama_index.llms.workers_ai._generation import generation_options, parsed, rendered_rows
from llama_index.llms.workers_ai._pacing import limited, paced
from llama_index.llms.workers_ai._structured import Mode, StructuredPrediction, check_output_cls, schema_format
from llama_index.llms.workers_ai._to_wire import (
    named_tool,
    sendable,
    to_wire_messages,
    to_wire_tool_choice,
    to_wire_tools,
)
from pydantic import BaseModel, Field, PrivateAttr, field_validator

from workers_ai.catalogue import lookup
from workers_ai.errors import ConfigurationError
from workers_ai.integration import (
    CHAT_PARAMS,
    FOREIGN_KEYWORDS,
    PER_CALL,
    TRANSLATED_KEYWORDS,
    ChatFields,
    early_end,
    masks_arguments,
    translated_keywords,
    unknown_keyword,
    warn_ignored,
)

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping, Sequence
    from typing import Self

    from llama_index.core.chat_engine.types import AgentChatResponse
    from llama_index.core.llms.llm import ToolSelection
    from llama_index.core.prompts import PromptTemplate
    from llama_index.core.tools.types import BaseTool
    from llama_index.core.types import Model

    from workers_ai import ChatKeywords
    from workers_ai.client import AsyncClient, Client
    from workers_ai.generation import ChatInput, GenerateOptions, QueuedClient, RunOptions
    from workers_ai.integration import ChatConstructor

__all__ = ["DEFAULT_MODEL", "WorkersAI"]

DEFAULT_MODEL: Final = "@cf/meta/llama-3.3-70b-instruct-fp8-fast"
"""A current model with tools and JSON schemas."""

DEFAULT_CONTEXT_WINDOW: Final = 8_192
"""Tokens assumed for a model that is not in the catalogue. No current chat model has a smaller window."""

_PROGRAM_MODES: Final[dict[PydanticProgramMode, Mode]] = {
    PydanticProgramMode.FUNCTION: "tool",
    PydanticProgramMode.LLM: "text",
}
_PER_CALL: Final = CHAT_PARAMS | PER_CALL | {"api", "model", "additional_kwargs", "tool_names"}
_IGNORED: Final = FOREIGN_KEYWORDS | {"allow_parallel_tool_calls", "formatted", "stream", "tool_required", "verbose"}
"""Keywords without effect here. LlamaIndex's components pass them, or other providers accept them."""


@masks_arguments(
    *(
        f"{prefix}{name}"
        for prefix in ("", "a")
        for name in (
            "chat", "stream_chat", "complete", "stream_complete", "predict", "stream", "chat_with_tools",
            "stream_chat_with_tools", "predict_and_call", "structured_predict", "stream_structured_predict",
            "structured_predict_many",
        )
    )
)  # fmt: skip
class WorkersAI(ChatFields, StructuredPrediction):
    """A chat model of Cloudflare Workers AI.

    Each option can be set per call as well: ``llm.chat(messages, temperature=0)``. Only options that were set are sent.
    Pass further fields of the request body in ``additional_kwargs``. An unknown keyword raises an error that suggests
    the nearest known one.

    Raises:
        ConfigurationError: A setting is missing or malformed.
    """

    if TYPE_CHECKING:  # the second overload accepts the framework's own fields

        @overload
        def __init__(self, model: str = ..., **keywords: Unpack[ChatConstructor]) -> None: ...
        @overload
        def __init__(self, model: str = ..., **keywords: object) -> None: ...
        def __init__(self, *args: object, **keywords: object) -> None: ...

    _extra_keyword: ClassVar[str] = "additional_kwargs"
    _keyword_aliases: ClassVar[dict[str, str]] = {
        **ChatFields._keyword_aliases,
        "model_name": "model",
        "stop_sequences": "stop",
        "max_completion_tokens": "max_tokens",
        "extra_body": "additional_kwargs",
    }
    _call_aliases: ClassVar[dict[str, str]] = {
        "model_name": "model",
        "stop_sequences": "stop",
        "max_completion_tokens": "max_tokens",
        "request_timeout": "timeout",
    }
    _ignored_keywords: ClassVar[frozenset[str]] = frozenset({"class_name", "reuse_client"})
    _process_local: ClassVar[frozenset[str]] = ChatFields._process_local | {"callback_manager", "rate_limiter"}

    model: str = DEFAULT_MODEL
    """Model id (alias ``model_name``)."""
    additional_kwargs: dict[str, Any] = Field(default_factory=dict)
    """Further fields of the request body, sent unchanged."""
    context_window: int | None = Field(default=None, gt=0)
    """Tokens of input and output together. Default: from the catalogue."""
    num_output: int | None = Field(default=None, gt=0)
    """Tokens that LlamaIndex reserves for the answer. Default: ``max_tokens``, else from the catalogue."""
    is_function_calling_model: bool | None = None
    """Whether the model calls tools. Default: from the catalogue; true for an unknown model."""
    should_use_structured_outputs: bool | None = None
    """Request structured answers by a JSON schema (True) or a forced tool (False). Default: a schema if the model
    accepts one and cannot be forced to call a tool."""

    _queued: QueuedClient | None = PrivateAttr(default=None)

    @field_validator("response_format", mode="before")
    @classmethod
    def _read_response_format(cls, given: object) -> object:
        return _response_format(given)

    @classmethod
    def class_name(cls) -> str:
        """Return the name of the class in dumps and events."""
        return "WorkersAI"

    @property
    def metadata(self) -> LLMMetadata:
        """Return context window, output size and capabilities of the model: the fields if set, else the catalogue."""
        card = lookup(self.model)
        return LLMMetadata(
            context_window=self.context_window or card.context_window or DEFAULT_CONTEXT_WINDOW,
            num_output=self.num_output or self.max_tokens or card.default_max_tokens or DEFAULT_NUM_OUTPUTS,
            is_chat_model=True,
            is_function_calling_model=self._calls_tools(),
            model_name=self.model,
        )

    def _calls_tools(self) -> bool:
        if self.is_function_calling_model is not None:
            return self.is_function_calling_model
        return lookup(self.model).tools is not False

    def _structured_mode(self) -> Mode | None:
        mode = self.pydantic_program_mode
        if mode == PydanticProgramMode.DEFAULT:
            if self._uses_json_schema():
                return "schema"
            return "tool" if self._calls_tools() else "text"
        return _PROGRAM_MODES.get(mode)

    def _uses_json_schema(self) -> bool:
        if self.should_use_structured_outputs is not None:
            return self.should_use_structured_outputs
        card = lookup(self.model)
        by_tool = self._calls_tools() and not card.prefers_schema
        return not by_tool and bool(card.json_schema or card.guided_json)

    def to_dict(self, **kwargs: object) -> dict[str, Any]:
        """Return the arguments of an equal model, for :meth:`from_dict`, without secrets and connection settings."""
        dumped: dict[str, Any] = super().to_dict(
            **{"mode": "json", "exclude": self._not_dumped, "exclude_none": True, **kwargs}
        )
        if self.reasoning_effort is None:  # None is sent as null, so it differs from the default
            dumped["reasoning_effort"] = None
        return dumped

    def _options(self, kwargs: Mapping[str, object]) -> tuple[str, ChatKeywords, dict[str, str]]:
        """Return the model, the options of the core's chat call, and the original names of renamed tools."""
        given = self._known_keywords(kwargs)
        options = self._set_params() | {"api": self.api}
        model = given.pop("model", None) or self.model
        names = given.pop("tool_names", None) or {}
        extra = [self.additional_kwargs, given.pop("additional_kwargs", None), given.pop("extra_body", None)]
        options["extra_body"] = {name: value for fields in extra for name, value in (fields or {}).items()}
        options |= given
        options["response_format"] = _response_format(options.get("response_format"))
        return model, cast("ChatKeywords", options), names

    def _known_keywords(self, kwargs: Mapping[str, object]) -> dict[str, Any]:
        """Return the keywords of one call with aliases resolved and ignored ones left out.

        Raises:
            ConfigurationError: A keyword is unknown, or an option was set twice.
        """
        given: dict[str, Any] = {}
        ignored: list[str] = []
        for name, value in kwargs.items():
            option = self._call_aliases.get(name, name)
            if name in _IGNORED:
                ignored += [f"{name}="] if value is not None and name != "formatted" else []
            elif name in TRANSLATED_KEYWORDS:
                continue
            elif option not in _PER_CALL:
                raise unknown_keyword(type(self).__name__, name, _PER_CALL, "additional_kwargs")
            elif given.get(option) is not None and value is not None:
                raise ConfigurationError(f"{option} was set twice in one call, once as {name}: set it once")
            elif option not in given or value is not None:
                given[option] = value
        warn_ignored(type(self).__name__, ignored, "additional_kwargs")
        return given | translated_keywords(type(self).__name__, kwargs, given)

    def _sync(self) -> Client:
        """Return the client for one call."""
        return self.client if self.rate_limiter is None else paced(self.client, self.rate_limiter)

    def _async(self) -> AsyncClient:
        """Return the async client for one call."""
        if self._queued is not None:
            return self._queued
        return self.async_client if self.rate_limiter is None else paced(self.async_client, self.rate_limiter)

    def _chat(self, messages: Sequence[ChatMessage], **kwargs: object) -> ChatResponse:
        model, options, names = self._options(kwargs)
        return to_chat_response(self._sync().chat(model, to_wire_messages(messages), **options), names, model)

    async def _achat(self, messages: Sequence[ChatMessage], **kwargs: object) -> ChatResponse:
        model, options, names = self._options(kwargs)
        reply = await self._async().chat(model, to_wire_messages(messages), **options)
        return to_chat_response(reply, names, model)

    def _stream_chat(self, messages: Sequence[ChatMessage], **kwargs: object) -> ChatResponseGen:
        model, options, names = self._options(kwargs)
        streamed = StreamedResponse(names, model)
        with closing(self._sync().stream_chat(model, to_wire_messages(messages), **options)) as deltas:
            for delta in deltas:
                yield streamed.add(delta)

    async def _astream_chat(self, messages: Sequence[ChatMessage], **kwargs: object) -> ChatResponseAsyncGen:
        return self._astream(messages, **kwargs)

    async def _astream(self, messages: Sequence[ChatMessage], **kwargs: object) -> ChatResponseAsyncGen:
        model, options, names = self._options(kwargs)
        streamed = StreamedResponse(names, model)
        async with aclosing(self._async().stream_chat(model, to_wire_messages(messages), **options)) as deltas:
            async for delta in deltas:
                yield streamed.add(delta)

    @llm_chat_callback()
    def chat(self, messages: Sequence[ChatMessage], **kwargs: object) -> ChatResponse:
        """Return the answer to a conversation.

        Raises:
            WorkersAIError: See :mod:`workers_ai.errors`.
        """
        return self._chat(messages, **kwargs)

    @llm_chat_callback()
    async def achat(self, messages: Sequence[ChatMessage], **kwargs: object) -> ChatResponse:
        """Return the answer to a conversation. See :meth:`chat`."""
        return await self._achat(messages, **kwargs)

    @llm_chat_callback()
    def stream_chat(self, messages: Sequence[ChatMessage], **kwargs: object) -> ChatResponseGen:
        """Stream the answer. Each response contains the answer so far, and the new text in ``delta``.

        The last response has the usage.

        Raises:
            WorkersAIError: See :mod:`workers_ai.errors`. ``partial`` is the text received before an interruption.
        """
        return self._stream_chat(messages, **kwargs)

    @llm_chat_callback()
    async def astream_chat(self, messages: Sequence[ChatMessage], **kwargs: object) -> ChatResponseAsyncGen:
        """Stream the answer. See :meth:`stream_chat`."""
        return await self._astream_chat(messages, **kwargs)

    @llm_completion_callback()
    def complete(self, prompt: str, formatted: bool = False, **kwargs: object) -> CompletionResponse:
        """Return the answer to one prompt, sent as a user message."""
        return chat_to_completion_decorator(self._chat)(prompt, **kwargs)

    @llm_completion_callback()
    async def acomplete(self, prompt: str, formatted: bool = False, **kwargs: object) -> CompletionResponse:
        """Return the answer to one prompt. See :meth:`complete`."""
        return await achat_to_completion_decorator(self._achat)(prompt, **kwargs)

    @llm_completion_callback()
    def stream_complete(self, prompt: str, formatted: bool = False, **kwargs: object) -> CompletionResponseGen:
        """Stream the answer to one prompt. See :meth:`stream_chat`."""
        return stream_chat_to_completion_decorator(self._stream_chat)(prompt, **kwargs)

    @llm_completion_callback()
    async def astream_complete(
        self, prompt: str, formatted: bool = False, **kwargs: object
    ) -> CompletionResponseAsyncGen:
        """Stream the answer to one prompt. See :meth:`stream_chat`."""
        return await astream_chat_to_completion_decorator(self._astream_chat)(prompt, **kwargs)

    def queued(
        self,
        *,
        ledger: str | os.PathLike[str],
        window_s: float = 2.0,
        max_items: int = 200,
        deadline_s: float | None = None,
    ) -> Self:
        """Return a copy whose async calls share submissions of the asynchronous queue.

        Use it with components that send one async call per item, such as LlamaIndex's ``SummaryExtractor``. Only calls
        that wait at the same time share a submission, so set ``num_workers`` of the extractor to 200. Answers are
        stored in the ledger, and an equal call returns the stored answer. Sync calls and streams are sent directly.

        Args:
            ledger: Path of the ledger, on a local disk. It is created if missing.
            window_s: Maximum seconds from the first waiting call to the submission.
            max_items: Maximum calls per submission. More waiting calls are sent in several submissions.
            deadline_s: Maximum seconds from the submission of waiting calls to their answers; None for no limit.

        Raises:
            ConfigurationError: An argument is invalid, or the model has no queue.
        """
        limiter = self.rate_limiter
        client = self.async_client if limiter is None else limited(self.async_client, limiter)
        copied: Self = self.model_copy(update={"rate_limiter": None})  # the limiter counts submissions, not calls
        copied._queued = client.queued(
            self.model, ledger=ledger, window_s=window_s, max_items=max_items, deadline_s=deadline_s
        )
        return copied

    def structured_predict_many(
        self,
        output_cls: type[Model],
        prompt: PromptTemplate,
        rows: Sequence[Mapping[str, object]],
        *,
        ledger: str | os.PathLike[str],
        llm_kwargs: Mapping[str, object] | None = None,
        **options: Unpack[RunOptions],
    ) -> list[Model | Exception]:
        """Return an object of ``output_cls`` for each row, through the asynchronous queue.

        Each answer is stored in the ledger when it arrives. After an interrupted call, the same call sends only the
        rows without an answer.

        Args:
            output_cls: A pydantic class.
            prompt: Template of the prompt.
            rows: Values for the template, one mapping per object.
            ledger: Path of the ledger, on a local disk. It is created if missing.
            llm_kwargs: Parameters of the chat calls.
            **options: Options of :func:`workers_ai.generation.generate`, such as ``mode``, ``limit_cost_usd``,
                ``deadline_s``, ``repair`` and ``progress``.

        Returns:
            The objects in the order of the rows. A failed row has a :class:`~workers_ai.errors.BatchItemError` in its
            place. The next call sends the row again.

        Raises:
            ConfigurationError: A row has no value for a variable of the prompt, an option is invalid, the model has no
                queue, or the ledger belongs to another model, class or parameter.
            WorkersAIError: An error that stops the run, such as :class:`~workers_ai.errors.QuotaExhaustedError`.
        """
        from workers_ai.generation import generate

        inputs, model, arguments = self._generation(output_cls, prompt, rows, llm_kwargs, options)
        client = self.client if self.rate_limiter is None else limited(self.client, self.rate_limiter)
        report = generate(inputs, ledger=ledger, model=model, client=client, **arguments)
        return parsed(report.answers(), output_cls, report.model)

    async def astructured_predict_many(
        self,
        output_cls: type[Model],
        prompt: PromptTemplate,
        rows: Sequence[Mapping[str, object]],
        *,
        ledger: str | os.PathLike[str],
        llm_kwargs: Mapping[str, object] | None = None,
        **options: Unpack[RunOptions],
    ) -> list[Model | Exception]:
        """Return an object of ``output_cls`` for each row. See :meth:`structured_predict_many`."""
        from workers_ai.generation import agenerate

        inputs, model, arguments = self._generation(output_cls, prompt, rows, llm_kwargs, options)
        client = self.async_client if self.rate_limiter is None else limited(self.async_client, self.rate_limiter)
        report = await agenerate(inputs, ledger=ledger, model=model, client=client, **arguments)
        return await asyncio.to_thread(parsed, report.answers(), output_cls, report.model)

    def _generation(
        self,
        output_cls: type[Model],
        prompt: PromptTemplate,
        rows: Sequence[Mapping[str, object]],
        llm_kwargs: Mapping[str, object] | None,
        options: RunOptions,
    ) -> tuple[list[tuple[int, ChatInput]], str, GenerateOptions]:
        """Return the inputs, the model and the options of a generation.

        Raises:
            ConfigurationError: ``output_cls`` is not a pydantic class, an option is unknown, or a row does not fit.
        """
        from workers_ai.generation import RunOptions

        check_output_cls(output_cls)
        known = RunOptions.__annotations__.keys()
        if unknown := sorted(options.keys() - known):
            raise unknown_keyword("structured_predict_many", unknown[0], known, "llm_kwargs")
        model, params, _ = self._options(llm_kwargs or {})
        arguments = cast("GenerateOptions", {"schema": output_cls, **generation_options(model, params), **options})
        return rendered_rows(self, prompt, rows), model, arguments

    def _prepare_chat_with_tools(
        self,
        tools: Sequence[BaseTool],
        user_msg: str | ChatMessage | None = None,
        chat_history: list[ChatMessage] | None = None,
        verbose: bool = False,
        allow_parallel_tool_calls: bool = False,
        tool_required: bool = False,
        **kwargs: object,
    ) -> dict[str, Any]:
        """Return the arguments of a chat call with tools.

        ``allow_parallel_tool_calls`` is not sent, because LlamaIndex always sets it. Pass ``parallel_tool_calls`` to
        send a value.
        """
        messages = list(chat_history or ())
        if user_msg is not None:
            messages.append(
                ChatMessage(role=MessageRole.USER, content=user_msg) if isinstance(user_msg, str) else user_msg
            )
        prepared: dict[str, Any] = {"messages": messages, **kwargs}
        specs, names = to_wire_tools(tools)
        choice = prepared.pop("tool_choice", None)
        if choice is None and named_tool(self.tool_choice) in (
            None,
            *(sendable(tool.metadata.get_name()) for tool in tools),
        ):
            choice = self.tool_choice
        if specs:
            prepared["tools"] = specs
            prepared["tool_choice"] = to_wire_tool_choice(choice, required=tool_required)
        if names:
            prepared["tool_names"] = names
        return prepared

    def predict_and_call(self, tools: Sequence[BaseTool], *args: Any, **kwargs: Any) -> AgentChatResponse:
        """Let the model select a tool, and run the tool.

        Raises:
            ConfigurationError: The model does not call tools, and ``react_chat_formatter`` or ``output_parser`` is
                missing.
            ValueError: The model selected no tool, and ``error_on_no_tool_call`` is true.
        """
        self._require_tools(kwargs)
        return super().predict_and_call(tools, *args, **kwargs)

    async def apredict_and_call(self, tools: Sequence[BaseTool], *args: Any, **kwargs: Any) -> AgentChatResponse:
        """Let the model select a tool, and run the tool. See :meth:`predict_and_call`."""
        self._require_tools(kwargs)
        return await super().apredict_and_call(tools, *args, **kwargs)

    def _require_tools(self, given: Mapping[str, object]) -> None:
        # For a model without tools LlamaIndex runs a ReActAgent, which fails without a formatter and a parser.
        if not self._calls_tools() and not {"react_chat_formatter", "output_parser"} <= given.keys():
            raise ConfigurationError(
                f"{self.model} does not call tools: use a model that does, pass "
                "react_chat_formatter=ReActChatFormatter() and output_parser=ReActOutputParser(), or set "
                "is_function_calling_model=True if the catalogue is wrong"
            )

    def _validate_chat_with_tools_response(
        self,
        response: ChatResponse,
        tools: Sequence[BaseTool],
        allow_parallel_tool_calls: bool = False,
        **kwargs: object,
    ) -> ChatResponse:
        """Keep only the first call unless parallel calls are allowed."""
        message = response.message
        calls = [block for block in message.blocks if isinstance(block, ToolCallBlock)]
        if not allow_parallel_tool_calls and len(calls) > 1:
            rest = [block for block in message.blocks if not isinstance(block, ToolCallBlock)]
            message.blocks = [*rest, calls[0]]
            message.additional_kwargs["tool_calls"] = message.additional_kwargs["tool_calls"][:1]
        return response

    def get_tool_calls_from_response(
        self, response: ChatResponse, error_on_no_tool_call: bool = True, **kwargs: object
    ) -> list[ToolSelection]:
        """Return the tool calls of a response. Calls of a streamed response have the arguments received so far.

        Raises:
            ValueError: There is no call, and ``error_on_no_tool_call`` is true.
            APIResponseValidationError: The response is complete, and the arguments of a call are not a JSON object.
        """
        selections = list(to_tool_selections(response))
        if error_on_no_tool_call and not selections:
            why = early_end(response.additional_kwargs.get("finish_reason"))
            raise ValueError(
                f"Expected at least one tool call, but got none: {response.message.content!r}: "
                + (why or "set tool_required=True, or error_on_no_tool_call=False")
            )
        return selections


def _response_format(response_format: object) -> object:
    """Return the ``response_format`` for a pydantic class; any other value unchanged."""
    if isinstance(response_format, type) and issubclass(response_format, BaseModel):
        return schema_format(response_format)
    return response_format
