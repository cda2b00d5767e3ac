"""The chat model."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import aclosing, closing
from dataclasses import fields
from functools import reduce
from typing import TYPE_CHECKING, Any, ClassVar

from langchain_core.language_models import BaseChatModel, LanguageModelInput
from langchain_core.messages import AIMessage
from langchain_core.messages.utils import count_tokens_approximately
from langchain_core.runnables import Runnable
from pydantic import Field, field_validator, model_validator

from langchain_workers_ai._answers import finished, piece_translator
from langchain_workers_ai._call_options import (
    Method,
    Schema,
    Tool,
    constructor_keywords,
    extra_body,
    masked_keywords,
    read_keywords,
    stop_of,
    thread_id,
    traced_keywords,
)
from langchain_workers_ai._connection import Connection
from langchain_workers_ai._from_wire import PROVIDER, add_outputs, to_result, with_output
from langchain_workers_ai._profiles import ResolvedProfile, profile_of
from langchain_workers_ai._to_wire import to_wire
from langchain_workers_ai._version import __version__
from langchain_workers_ai.errors import framework_errors, is_retryable
from workers_ai import BatchWorker, GatewayOptions
from workers_ai.integration import ChatFields, check_model

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator, Mapping
    from typing import Self

    from langchain_core.callbacks import AsyncCallbackManagerForLLMRun, CallbackManagerForLLMRun
    from langchain_core.language_models import LangSmithParams, ModelProfile
    from langchain_core.messages import BaseMessage
    from langchain_core.outputs import ChatGenerationChunk, ChatResult

__all__ = ["ChatWorkersAI"]


class ChatWorkersAI(Connection, ChatFields, BaseChatModel):
    """Chat models of Cloudflare Workers AI.

    ``model`` is the id of the catalogue; account and token come from arguments or from the environment::

        llm = ChatWorkersAI(model="@cf/meta/llama-3.3-70b-instruct-fp8-fast")
        llm.invoke("Why is the sky blue?")

    Every parameter can also be given per call (``llm.invoke(..., temperature=0)``), as can ``model``, ``api``,
    ``on_busy``, ``reject_if_busy``, ``session_id`` and ``model_kwargs``. Only what was set is sent. An unknown keyword
    raises, here and per call. The settings of the connection are those of
    :class:`~workers_ai.integration.ConnectionFields`, the parameters those of
    :class:`~workers_ai.integration.ChatFields`.

    Raises:
        ConfigurationError: A setting is missing or malformed, or a keyword is not known.
    """

    extra_keyword: ClassVar[str] = "model_kwargs"
    keyword_aliases: ClassVar[dict[str, str]] = {
        **Connection.keyword_aliases,
        "model_name": "model",
        "stop_sequences": "stop",
        "max_completion_tokens": "max_tokens",
        "extra_body": "model_kwargs",
        "extra_headers": "default_headers",
    }
    process_local: ClassVar[frozenset[str]] = Connection.process_local | {"rate_limiter", "callbacks", "cache"}

    model: str
    """Model id, such as ``"@cf/meta/llama-3.3-70b-instruct-fp8-fast"`` (alias ``model_name``). Any
    well-formed id is sent."""
    model_kwargs: dict[str, Any] = Field(default_factory=dict)
    """More fields of the request body, sent as they are."""
    stream_usage: bool = True
    """Whether a streamed answer reports its usage."""
    streaming: bool | None = None
    """Whether ``invoke`` streams inside; callbacks then see tokens as they come. None streams where a callback asks for
    it, False never."""

    @field_validator("model")
    @classmethod
    def _check_model(cls, model: str) -> str:
        return check_model(model)

    @field_validator("response_format", mode="before")
    @classmethod
    def _read_response_format(cls, given: Any) -> Any:
        return given if given is None else _form(given)

    @model_validator(mode="after")
    def _set_workers_ai_version(self) -> Self:
        self._add_version("langchain-workers-ai", __version__)
        return self

    @classmethod
    def _known(cls, data: dict[str, Any]) -> dict[str, Any]:
        """Arguments under their field names; those of the OpenAI SDK are translated, or ignored with a warning."""
        return super()._known(constructor_keywords(cls.__name__, data, frozenset(cls.model_fields)))

    # --- one call ---

    def _call(
        self, messages: Sequence[BaseMessage], stop: list[str] | None, given: dict[str, Any], run_manager: Any
    ) -> tuple[str, list[dict[str, Any]], dict[str, Any]]:
        """Arguments for the core client: model, messages, options."""
        options = self._set_params()
        options.update(read_keywords(type(self).__name__, given))
        options.pop("stream", None)
        model = check_model(options.pop("model", None) or self.model)
        if (ends := stop_of(stop, options.get("stop"))) is not None:
            options["stop"] = ends
        options["api"] = options.get("api") or self.api
        options["extra_body"] = extra_body(
            self.model_kwargs, options.pop("model_kwargs", None), options.get("extra_body")
        )
        tools = options.get("tools")
        if tools and not (isinstance(tools, list) and all(isinstance(tool, dict) for tool in tools)):
            options["tools"] = _bound(tools).get("tools")
        if (response_format := options.get("response_format")) is not None:
            options["response_format"] = _form(response_format)
        if not options.pop("stream_usage", self.stream_usage):
            options.setdefault("stream_options", {"include_usage": False})
        if options.get("session_id") is None and self.session_id is None:
            options["session_id"] = thread_id(run_manager)
        return model, to_wire(messages), options

    def _generate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> ChatResult:
        with framework_errors:
            model, wire, options = self._call(messages, stop, kwargs, run_manager)
            return finished(to_result(self.client.chat(model, wire, **options), model), kwargs)

    async def _agenerate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: AsyncCallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> ChatResult:
        with framework_errors:
            model, wire, options = self._call(messages, stop, kwargs, run_manager)
            return finished(to_result(await self.async_client.chat(model, wire, **options), model), kwargs)

    def _stream(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> Iterator[ChatGenerationChunk]:
        with framework_errors:
            model, wire, options = self._call(messages, stop, kwargs, run_manager)
            chunk_of = piece_translator(model, options, kwargs, blocks=self.output_version == "v1")
            with closing(self.client.stream_chat(model, wire, **options)) as deltas:
                for delta in deltas:
                    yield chunk_of(delta)

    async def _astream(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: AsyncCallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> AsyncIterator[ChatGenerationChunk]:
        with framework_errors:
            model, wire, options = self._call(messages, stop, kwargs, run_manager)
            chunk_of = piece_translator(model, options, kwargs, blocks=self.output_version == "v1")
            async with aclosing(self.async_client.stream_chat(model, wire, **options)) as deltas:
                async for delta in deltas:
                    yield chunk_of(delta)

    def _generate_with_cache(self, *args: Any, **kwargs: Any) -> ChatResult:
        return with_output(super()._generate_with_cache(*args, **kwargs))

    async def _agenerate_with_cache(self, *args: Any, **kwargs: Any) -> ChatResult:
        return with_output(await super()._agenerate_with_cache(*args, **kwargs))

    def _combine_llm_outputs(self, llm_outputs: list[dict[str, Any] | None]) -> dict[str, Any]:
        return reduce(add_outputs, (output for output in llm_outputs if output), {})

    if not TYPE_CHECKING:  # the declared type stays LangChain's own, which differs between its versions

        def bind(self, **kwargs: Any) -> Any:
            """Bind keywords of a call, as :meth:`langchain_core.runnables.Runnable.bind` does; secrets are masked."""
            with framework_errors:
                return super().bind(**masked_keywords(kwargs))

    # --- tools and structured output: LangChain's fallbacks resolve these annotations when they run ---

    def bind_tools(
        self,
        tools: Sequence[Tool],
        *,
        tool_choice: str | bool | dict[str, Any] | None = None,
        strict: bool | None = None,
        **kwargs: Any,
    ) -> Runnable[LanguageModelInput, AIMessage]:
        """Let the model call tools.

        Args:
            tools: Tools, functions, Pydantic classes, TypedDicts or OpenAI tool dicts. None at all is fine.
            tool_choice: ``"auto"``, ``"none"``, ``"any"`` (``"required"``, True), a tool's name, or an OpenAI dict.
            strict: Ask for arguments that follow the schema exactly; sent only when set.
            **kwargs: Any parameter of a call, such as ``parallel_tool_calls`` or ``response_format``.

        Raises:
            ConfigurationError: A tool is not a function, or ``tool_choice`` names none of them.
        """
        with framework_errors:
            return self.bind(**_bound(tools, tool_choice, strict), **kwargs)

    def with_structured_output(
        self,
        schema: Schema,
        *,
        method: Method | None = None,
        include_raw: bool = False,
        strict: bool | None = None,
        **kwargs: Any,
    ) -> Runnable[LanguageModelInput, Any]:
        """Answer in the form of a schema.

        Args:
            schema: A Pydantic class (v2 or v1), a TypedDict, a JSON schema, or an OpenAI function dict.
            method: ``"function_calling"``, ``"json_schema"`` or ``"json_mode"``; None takes what the model
                is known to do best: a forced tool call, or the schema where tools or ``tool_choice`` are refused.
            include_raw: Return ``{"raw", "parsed", "parsing_error"}`` and do not raise.
            strict: Sent with the schema when set; not with ``"json_mode"``.
            **kwargs: Any parameter of a call, such as ``max_tokens``.

        Raises:
            ConfigurationError: The schema or the method is not one of these.
            OutputParserException: When called: the answer does not fit; the text of the answer is in it.
            ModelRefusalError: When called: the model refused.
        """
        from langchain_workers_ai._structured import structured

        with framework_errors:
            return structured(self, schema, method, include_raw=include_raw, strict=strict, **kwargs)

    def with_retry(
        self,
        *,
        retry_if_exception_type: tuple[type[BaseException], ...] | Callable[[BaseException], bool] = is_retryable,
        **kwargs: Any,
    ) -> Runnable[LanguageModelInput, AIMessage]:
        """Repeat failed calls as :meth:`langchain_core.runnables.Runnable.with_retry` does.

        Args:
            retry_if_exception_type: What to repeat; by default :func:`~langchain_workers_ai.is_retryable` says, not
                every exception is repeated.
            **kwargs: ``wait_exponential_jitter``, ``exponential_jitter_params``, ``stop_after_attempt`` (3).
        """
        return super().with_retry(retry_if_exception_type=retry_if_exception_type, **kwargs)

    # --- what LangChain asks about the model ---

    @property
    def model_name(self) -> str:
        """The model id, by its other name."""
        return self.model

    @property
    def _llm_type(self) -> str:
        return "workers-ai-chat"

    @property
    def _identifying_params(self) -> Mapping[str, Any]:
        params = {"model": self.model, **self._set_params()}
        if self.api:
            params["api"] = self.api
        if self.model_kwargs:
            params["model_kwargs"] = self.model_kwargs
        return params

    def _get_invocation_params(self, stop: list[str] | None = None, **kwargs: Any) -> dict[str, Any]:
        return {**self.asdict(), "stop": stop_of(stop, self.stop), **traced_keywords(kwargs)}

    def _get_llm_string(self, stop: list[str] | None = None, **kwargs: Any) -> str:
        return super()._get_llm_string(stop=stop, **traced_keywords(kwargs))

    def _get_ls_params(self, stop: list[str] | None = None, **kwargs: Any) -> LangSmithParams:
        params = super()._get_ls_params(stop=stop, **kwargs)
        params["ls_provider"] = PROVIDER
        if ends := stop_of(stop, self.stop):
            params["ls_stop"] = ends
        return params

    def _resolve_model_profile(self) -> ModelProfile | None:
        return profile_of(self.model, self.api)

    @classmethod
    def is_lc_serializable(cls) -> bool:
        """Whether ``dumps`` and ``loads`` of LangChain work: yes."""
        return True

    @property
    def lc_secrets(self) -> dict[str, str]:
        """The one secret a dump replaces by the name of its variable."""
        return {"api_token": "CLOUDFLARE_API_TOKEN"}

    @property
    def lc_attributes(self) -> dict[str, Any]:
        """Settings whose own form a dump cannot carry: as plain data, secrets left out."""
        attributes: dict[str, Any] = {}
        if isinstance(self.gateway, GatewayOptions):
            options = {item.name: getattr(self.gateway, item.name) for item in fields(GatewayOptions)}
            attributes["gateway"] = {k: v for k, v in options.items() if k != "token" and v is not None}
        if isinstance(self.batch_worker, BatchWorker):
            attributes["batch_worker"] = self.batch_worker.url
        if self.default_headers:
            attributes["default_headers"] = None
        if hasattr(self.timeout, "as_dict"):
            attributes["timeout"] = self.timeout.as_dict()
        return attributes

    def get_num_tokens(self, text: str) -> int:
        """Estimate the tokens of a text, offline: one for each four bytes of UTF-8. The service counts for itself."""
        return len(self.get_token_ids(text))

    def get_token_ids(self, text: str) -> list[int]:
        """Stand-ins for token ids, as many as :meth:`get_num_tokens` estimates: no tokenizer is loaded."""
        if self.custom_get_token_ids is not None:
            return self.custom_get_token_ids(text)
        return list(range(math.ceil(len(text.encode(errors="replace")) / 4)))

    def get_num_tokens_from_messages(self, messages: Sequence[BaseMessage], tools: Sequence[Any] | None = None) -> int:
        """Estimate the tokens of a conversation, tools included, offline."""
        with framework_errors:
            return count_tokens_approximately(messages, tools=_bound(tools)["tools"] if tools else None)

    # --- copies and changes ---

    def __setattr__(self, name: str, value: Any) -> None:
        super().__setattr__(name, value)
        self._forget()
        if name in ("model", "api") and isinstance(self.profile, ResolvedProfile):
            vars(self)["profile"] = self._resolve_model_profile()

    def model_copy(self, *, update: Any = None, deep: bool = False) -> Self:
        """Copy, as pydantic does; profile and cache key follow a changed model."""
        copied: Self = super().model_copy(update=update, deep=deep)
        copied._forget()
        if "profile" not in (update or {}) and isinstance(copied.profile, ResolvedProfile):
            vars(copied)["profile"] = copied._resolve_model_profile()
        return copied

    def _forget(self) -> None:
        """Drop LangChain's cached dump, which is part of the cache key."""
        vars(self).pop("_serialized", None)


def _bound(tools: Sequence[Tool], tool_choice: Any = None, strict: bool | None = None) -> dict[str, Any]:
    from langchain_workers_ai._tools import bound_tools

    return bound_tools(tools, tool_choice, strict)


def _form(given: Any) -> dict[str, Any]:
    from langchain_workers_ai._structured import response_format_of

    return given if isinstance(given, dict) else response_format_of(given)
