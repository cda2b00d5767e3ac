"""The chat model."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Sequence
from contextlib import aclosing, closing
from dataclasses import fields
from functools import reduce
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Unpack, cast, overload

from langchain_core.caches import BaseCache
from langchain_core.globals import get_llm_cache
from langchain_core.language_models import BaseChatModel, LanguageModelInput
from langchain_core.load import dumps
from langchain_core.messages import AIMessage
from langchain_core.messages.utils import count_tokens_approximately
from langchain_core.runnables import Runnable, RunnableConfig
from langchain_core.runnables.config import get_config_list
from pydantic import Field, PrivateAttr, field_validator, model_validator

from langchain_workers_ai._chat.call_options import (
    Method,
    Schema,
    Tool,
    merge_body,
    pick_stop,
    read_keywords,
    thread_id,
    traced_keywords,
)
from langchain_workers_ai._chat.profiles import ResolvedProfile, profile_of
from langchain_workers_ai._chat.queued import (
    QueuedAnswers,
    QueueRun,
    anything_queued,
    limited,
    queue_params,
    queued_answers,
    request_key,
)
from langchain_workers_ai._connection import Connection
from langchain_workers_ai._translation.answers import chunk_translator, finish_result
from langchain_workers_ai._translation.from_wire import PROVIDER, add_outputs, to_result, with_llm_output
from langchain_workers_ai._translation.to_wire import to_wire
from langchain_workers_ai._types import Fields, RetryOptions
from langchain_workers_ai._version import __version__
from langchain_workers_ai.errors import framework_errors, is_retryable
from workers_ai import BatchWorker, GatewayOptions
from workers_ai.errors import WorkersAIError
from workers_ai.integration import ChatFields, check_model, mask_secrets, masks_arguments

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator, Mapping
    from typing import Self

    from langchain_core.callbacks import AsyncCallbackManagerForLLMRun, BaseRunManager, CallbackManagerForLLMRun
    from langchain_core.language_models import LangSmithParams, ModelProfile
    from langchain_core.messages import BaseMessage
    from langchain_core.outputs import ChatGenerationChunk, ChatResult

    from workers_ai import ChatKeywords
    from workers_ai.generation import QueuedClient
    from workers_ai.integration import ChatConstructor

__all__ = ["ChatWorkersAI"]


@masks_arguments(
    "invoke", "ainvoke", "stream", "astream", "batch", "abatch", "batch_as_completed", "abatch_as_completed",
    "generate", "agenerate", "generate_prompt", "agenerate_prompt", "bind_tools", "with_structured_output",
)  # fmt: skip
class ChatWorkersAI(Connection, ChatFields, BaseChatModel):
    """Chat models of Cloudflare Workers AI.

    ``model`` is a model id. Account and token come from arguments or from the environment::

        llm = ChatWorkersAI(model="@cf/meta/llama-3.3-70b-instruct-fp8-fast")
        llm.invoke("Why is the sky blue?")

    Each call also accepts every parameter (``llm.invoke(..., temperature=0)``), and ``model``, ``api``, ``on_busy``,
    ``reject_if_busy``, ``session_id`` and ``model_kwargs``. Parameters that are not set are not sent. An unknown
    keyword raises an error, in the constructor and in calls. :class:`~workers_ai.integration.ConnectionFields` lists
    the settings of the connection, and :class:`~workers_ai.integration.ChatFields` the parameters.

    Raises:
        ConfigurationError: A setting is missing or malformed, or a keyword is unknown.
    """

    if TYPE_CHECKING:  # the second overload accepts the framework's own fields

        @overload
        def __init__(self, model: str = ..., **keywords: Unpack[ChatConstructor]) -> None: ...
        @overload
        def __init__(self, model: str = ..., **keywords: object) -> None: ...
        def __init__(self, *args: object, **keywords: object) -> None: ...

    _extra_keyword: ClassVar[str] = "model_kwargs"
    _keyword_aliases: ClassVar[dict[str, str]] = {
        **Connection._keyword_aliases,
        "model_name": "model",
        "stop_sequences": "stop",
        "max_completion_tokens": "max_tokens",
        "extra_body": "model_kwargs",
    }
    _process_local: ClassVar[frozenset[str]] = Connection._process_local | {"rate_limiter", "callbacks", "cache"}

    model: str
    """Model id, such as ``"@cf/meta/llama-3.3-70b-instruct-fp8-fast"`` (alias ``model_name``). Any
    well-formed id is accepted."""
    model_kwargs: dict[str, Any] = Field(default_factory=dict)
    """Additional fields of the request body, sent unchanged (alias ``extra_body``)."""
    stream_usage: bool = True
    """Whether a streamed answer reports its usage. Default True."""
    streaming: bool | None = None
    """Whether ``invoke`` streams internally, so that callbacks receive each token. None, the default, streams if a
    callback needs it; False never streams."""

    queue: Literal["never", "always"] = "never"
    """``"always"`` sends the inputs of ``batch`` and ``batch_as_completed``, and of their async forms, through the
    asynchronous queue. Other calls are sent directly."""
    ledger: str | None = None
    """Path of the ledger for ``queue="always"``, which stores every answer; None for a temporary ledger per call."""

    _queued: QueuedClient | None = PrivateAttr(default=None)

    @field_validator("model")
    @classmethod
    def _check_model(cls, model: str) -> str:
        return check_model(model)

    @field_validator("response_format", mode="before")
    @classmethod
    def _read_response_format(cls, given: Schema | None) -> Fields | None:
        return given if given is None else _response_format(given)

    @field_validator("ledger", mode="before")
    @classmethod
    def _read_ledger(cls, ledger: str | os.PathLike[str] | None) -> str | None:
        return None if ledger is None else os.fspath(ledger)

    @model_validator(mode="after")
    def _check_queue(self) -> Self:
        if self.queue != "never":
            from workers_ai.integration import require_queue  # its module is large

            require_queue(self.model)
        return self

    @model_validator(mode="after")
    def _set_workers_ai_version(self) -> Self:
        self._add_version("langchain-workers-ai", __version__)
        return self

    @classmethod
    def _known(cls, data: dict[str, Any]) -> dict[str, Any]:
        """Return arguments by field name. A profile copied from another object is left out: its model may differ."""
        if isinstance(data.get("profile"), ResolvedProfile):
            data = {name: value for name, value in data.items() if name != "profile"}
        return super()._known(data)

    def _call(
        self,
        messages: Sequence[BaseMessage],
        stop: object,
        given: Mapping[str, object],
        run_manager: BaseRunManager | None,
    ) -> tuple[str, list[Fields], ChatKeywords]:
        """Return the arguments of a call of the core client: model, messages, options."""
        options = self._set_params()
        options.update(read_keywords(type(self).__name__, given))
        options.pop("stream", None)
        model = options.pop("model", None) or self.model
        if (sequences := pick_stop(stop, options.get("stop"))) is not None:
            options["stop"] = sequences
        options["api"] = options.get("api") or self.api
        options["extra_body"] = merge_body(
            self.model_kwargs, options.pop("model_kwargs", None), options.get("extra_body")
        )
        tools = options.get("tools")
        if tools and not (isinstance(tools, list) and all(isinstance(tool, dict) for tool in tools)):
            options["tools"] = _bound(tools).get("tools")
        if (response_format := options.get("response_format")) is not None:
            options["response_format"] = _response_format(response_format)
        if not options.pop("stream_usage", self.stream_usage):
            options.setdefault("stream_options", {"include_usage": False})
        if options.get("session_id") is None and self.session_id is None:
            options["session_id"] = thread_id(run_manager)
        return model, to_wire(messages), cast("ChatKeywords", options)

    def _generate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: object,
    ) -> ChatResult:
        with framework_errors:
            model, wire, options = self._call(messages, stop, kwargs, run_manager)
            queued = queued_answers(self)
            reply = queued.reply(wire, options, model) if queued else self.client.chat(model, wire, **options)
            return finish_result(to_result(reply, model), kwargs)

    async def _agenerate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: AsyncCallbackManagerForLLMRun | None = None,
        **kwargs: object,
    ) -> ChatResult:
        with framework_errors:
            model, wire, options = self._call(messages, stop, kwargs, run_manager)
            if queued := queued_answers(self):
                reply = queued.reply(wire, options, model)
            else:
                reply = await (self._queued or self.async_client).chat(model, wire, **options)
            return finish_result(to_result(reply, model), kwargs)

    def _stream(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: object,
    ) -> Iterator[ChatGenerationChunk]:
        with framework_errors:
            model, wire, options = self._call(messages, stop, kwargs, run_manager)
            chunk_of = chunk_translator(model, options, kwargs, blocks=self.output_version == "v1")
            with closing(self.client.stream_chat(model, wire, **options)) as deltas:
                for delta in deltas:
                    yield chunk_of(delta)

    async def _astream(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: AsyncCallbackManagerForLLMRun | None = None,
        **kwargs: object,
    ) -> AsyncIterator[ChatGenerationChunk]:
        with framework_errors:
            model, wire, options = self._call(messages, stop, kwargs, run_manager)
            chunk_of = chunk_translator(model, options, kwargs, blocks=self.output_version == "v1")
            async with aclosing(self.async_client.stream_chat(model, wire, **options)) as deltas:
                async for delta in deltas:
                    yield chunk_of(delta)

    def batch(
        self,
        inputs: list[LanguageModelInput],
        config: RunnableConfig | list[RunnableConfig] | None = None,
        *,
        return_exceptions: bool = False,
        **kwargs: object,
    ) -> list[AIMessage]:
        """Return the answers to several inputs, in their order.

        With ``queue="always"``, all inputs are first answered through the asynchronous queue. Equal inputs share one
        answer. ``max_concurrency`` of ``config`` does not limit the queue, and ``rate_limiter`` counts the requests to
        the queue, not the inputs. See :meth:`langchain_core.runnables.Runnable.batch`.

        Raises:
            ConfigurationError: A keyword is invalid, or the ledger belongs to another model.
            BatchItemError: An input failed. Returned instead with ``return_exceptions``.
            WorkersAIError: See :mod:`langchain_workers_ai.errors`.
        """
        if self.queue == "never" or not inputs:
            return super().batch(inputs, config, return_exceptions=return_exceptions, **kwargs)
        answers = self._answered(inputs, config, kwargs)
        with answers.active():
            return super(ChatWorkersAI, answers.owner).batch(
                inputs, config, return_exceptions=return_exceptions, **kwargs
            )

    async def abatch(
        self,
        inputs: list[LanguageModelInput],
        config: RunnableConfig | list[RunnableConfig] | None = None,
        *,
        return_exceptions: bool = False,
        **kwargs: object,
    ) -> list[AIMessage]:
        """Return the answers to several inputs, in their order. See :meth:`batch`."""
        if self.queue == "never" or not inputs:
            return await super().abatch(inputs, config, return_exceptions=return_exceptions, **kwargs)
        answers = await self._aanswered(inputs, config, kwargs)
        with answers.active():
            return await super(ChatWorkersAI, answers.owner).abatch(
                inputs, config, return_exceptions=return_exceptions, **kwargs
            )

    def batch_as_completed(self, inputs: Any, config: Any = None, **kwargs: Any) -> Iterator[Any]:
        """Yield index and answer of several inputs as they complete.

        With ``queue="always"``, all answers are generated before the first is yielded. See :meth:`batch`.
        """
        if self.queue == "never" or not inputs:
            yield from super().batch_as_completed(inputs, config, **kwargs)
            return
        call = {name: value for name, value in kwargs.items() if name != "return_exceptions"}
        answers = self._answered(inputs, config, call)
        with answers.active():
            done = list(super(ChatWorkersAI, answers.owner).batch_as_completed(inputs, config, **kwargs))
        yield from done

    async def abatch_as_completed(self, inputs: Any, config: Any = None, **kwargs: Any) -> AsyncIterator[Any]:
        """Yield index and answer of several inputs as they complete. See :meth:`batch_as_completed`."""
        if self.queue == "never" or not inputs:
            async for item in super().abatch_as_completed(inputs, config, **kwargs):
                yield item
            return
        call = {name: value for name, value in kwargs.items() if name != "return_exceptions"}
        answers = await self._aanswered(inputs, config, call)
        with answers.active():
            found = super(ChatWorkersAI, answers.owner).abatch_as_completed(inputs, config, **kwargs)
            done = [item async for item in found]
        for item in done:
            yield item

    def queued(
        self,
        *,
        ledger: str | os.PathLike[str],
        window_s: float = 2.0,
        max_items: int = 200,
        deadline_s: float | None = None,
    ) -> Self:
        """Return a copy whose async calls share submissions of the asynchronous queue.

        Use it in runnables that call the model once per input: ``RunnableParallel``, ``RunnableLambda``, a graph, or
        ``abatch_as_completed`` of a chain. Only calls that wait at the same time share a submission, so leave
        ``max_concurrency`` unset. Answers are stored in the ledger, and an equal call returns the stored answer.
        ``astream`` yields the answer as one chunk. Sync calls are sent directly.

        Args:
            ledger: Path of the ledger, on a local disk. It is created if missing.
            window_s: Maximum seconds from the first waiting call to the submission.
            max_items: Maximum calls per submission. More waiting calls are sent in several submissions.
            deadline_s: Maximum seconds from the submission of waiting calls to their answers; None for no limit.

        Raises:
            ConfigurationError: An argument is invalid, or the model has no queue.
        """
        with framework_errors:
            client = limited(self.async_client, self.rate_limiter)
            copied: Self = self.model_copy(update={"rate_limiter": None})  # the limiter counts submissions, not calls
            copied._queued = client.queued(
                self.model, ledger=ledger, window_s=window_s, max_items=max_items, deadline_s=deadline_s
            )
            return copied

    def _answered(
        self, inputs: Sequence[LanguageModelInput], config: object, kwargs: dict[str, Any]
    ) -> QueuedAnswers[Self]:
        """Return the answers of a batch, generated through the queue."""
        _check_configs(config, len(inputs))
        with framework_errors:
            run = self._queue_run(inputs, kwargs, self._cached(inputs, kwargs))
            return run.run(limited(self.client, self.rate_limiter, run.options))

    async def _aanswered(
        self, inputs: Sequence[LanguageModelInput], config: object, kwargs: dict[str, Any]
    ) -> QueuedAnswers[Self]:
        """Return the answers of a batch, generated through the queue."""
        _check_configs(config, len(inputs))
        with framework_errors:
            run = self._queue_run(inputs, kwargs, await self._acached(inputs, kwargs))
            return await run.arun(limited(self.async_client, self.rate_limiter, run.options))

    def _queue_run(
        self, inputs: Sequence[LanguageModelInput], kwargs: Mapping[str, object], cached: Sequence[bool]
    ) -> QueueRun[Self]:
        """Return the queue run for the inputs of a batch. Invalid and cached inputs are left out."""
        from workers_ai.generation import ChatInput

        stop, given = _split_stop(kwargs)
        model, _, options = self._call([], stop, given, None)
        params, extra_body = queue_params(options), options.get("extra_body") or {}
        requests: dict[str, tuple[int, ChatInput]] = {}
        for index, (item, is_cached) in enumerate(zip(inputs, cached, strict=True)):
            if is_cached:
                continue
            try:
                wire = to_wire(self._convert_input(item).to_messages())
            except (WorkersAIError, ValueError, TypeError):  # raised again when LangChain invokes this input
                continue
            requests.setdefault(request_key(wire, options), (index, ChatInput(wire, params, extra_body)))
        owner = self if self.rate_limiter is None else self.model_copy(update={"rate_limiter": None})
        deadline_s = options.pop("total_timeout", None) or self.total_timeout
        return QueueRun(owner, model, requests, options, self.ledger, deadline_s)

    def _cache(self) -> BaseCache | None:
        """Return LangChain's cache for this model, or None."""
        if self.cache is False:
            return None
        return self.cache if isinstance(self.cache, BaseCache) else get_llm_cache()

    def _cache_keys(
        self, inputs: Sequence[LanguageModelInput], kwargs: Mapping[str, object]
    ) -> tuple[list[str | None], str]:
        """Return LangChain's cache keys of inputs (None for invalid inputs), and the key of the model."""
        stop, given = _split_stop(kwargs)
        keys: list[str | None] = []
        for item in inputs:
            try:
                messages = self._convert_input(item).to_messages()
            except (ValueError, TypeError):
                keys.append(None)
            else:
                keys.append(dumps([message.model_copy(update={"id": None}) for message in messages]))
        return keys, self._get_llm_string(stop=stop, **given)

    def _cached(self, inputs: Sequence[LanguageModelInput], kwargs: Mapping[str, object]) -> list[bool]:
        """Return for each input whether LangChain's cache has its answer."""
        if (cache := self._cache()) is None:
            return [False] * len(inputs)
        keys, llm = self._cache_keys(inputs, kwargs)
        return [key is not None and cache.lookup(key, llm) is not None for key in keys]

    async def _acached(self, inputs: Sequence[LanguageModelInput], kwargs: Mapping[str, object]) -> list[bool]:
        """Return for each input whether LangChain's cache has its answer."""
        if (cache := self._cache()) is None:
            return [False] * len(inputs)
        keys, llm = self._cache_keys(inputs, kwargs)
        return [key is not None and await cache.alookup(key, llm) is not None for key in keys]

    def _streaming_disabled(self, **kwargs: object) -> bool:
        return self._queued is not None or anything_queued(self) or super()._streaming_disabled(**kwargs)

    def _generate_with_cache(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: object,
    ) -> ChatResult:
        return with_llm_output(super()._generate_with_cache(messages, stop, run_manager, **kwargs))

    async def _agenerate_with_cache(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: AsyncCallbackManagerForLLMRun | None = None,
        **kwargs: object,
    ) -> ChatResult:
        return with_llm_output(await super()._agenerate_with_cache(messages, stop, run_manager, **kwargs))

    def _combine_llm_outputs(self, llm_outputs: list[Fields | None]) -> Fields:
        return reduce(add_outputs, (output for output in llm_outputs if output), {})

    if not TYPE_CHECKING:  # the declared type stays LangChain's own, which differs between its versions

        def bind(self, **kwargs: object) -> Runnable:
            """Bind keywords of a call and mask secrets. See :meth:`langchain_core.runnables.Runnable.bind`."""
            mask_secrets(kwargs)
            return super().bind(**kwargs)

    # LangChain's fallbacks resolve the annotations of the next two methods at run time.

    def bind_tools(
        self,
        tools: Sequence[Tool],
        *,
        tool_choice: str | bool | Fields | None = None,
        strict: bool | None = None,
        **kwargs: object,
    ) -> Runnable[LanguageModelInput, AIMessage]:
        """Return a model that can call tools.

        Args:
            tools: Tools, functions, Pydantic classes, TypedDicts or OpenAI tool dicts. May be empty.
            tool_choice: ``"auto"``, ``"none"``, ``"any"`` (``"required"``, True), the name of a tool, or an OpenAI
                dict.
            strict: Request arguments that follow the schema exactly. Sent only if set.
            **kwargs: Any parameter of a call, such as ``parallel_tool_calls`` or ``response_format``.

        Raises:
            ConfigurationError: A tool is not a function, or ``tool_choice`` is the name of an unknown tool.
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
        **kwargs: object,
    ) -> Runnable[LanguageModelInput, Any]:
        """Return a runnable whose answers fit a schema.

        Args:
            schema: A Pydantic class (v2 or v1), a TypedDict, a JSON schema, or an OpenAI function dict.
            method: ``"function_calling"``, ``"json_schema"`` or ``"json_mode"``. None selects the best method for the
                model: the schema if the model rejects tools or ``tool_choice``, else a forced tool call.
            include_raw: Return ``{"raw", "parsed", "parsing_error"}`` instead of raising.
            strict: Sent with the schema if set. Invalid with ``"json_mode"``.
            **kwargs: Any parameter of a call, such as ``max_tokens``.

        Raises:
            ConfigurationError: The schema or the method is invalid.
            OutputParserException: On a call: the answer does not fit the schema. The error contains its text.
            ModelRefusalError: On a call: the model refused.
        """
        from langchain_workers_ai._translation.structured import structured_call, value_or_raw

        with framework_errors:
            if method is None and (self.queue == "always" or self._queued is not None):
                method = "json_schema"  # tools in the queue are undocumented
            model = kwargs.get("model")
            bound, parser = structured_call(
                schema, method, strict, kwargs, model if isinstance(model, str) else self.model
            )
            return self.bind(**bound) | (value_or_raw(parser) if include_raw else parser)

    def with_retry(
        self,
        *,
        retry_if_exception_type: tuple[type[BaseException], ...] | Callable[[BaseException], bool] = is_retryable,
        **options: Unpack[RetryOptions],
    ) -> Runnable[LanguageModelInput, AIMessage]:
        """Retry failed calls. See :meth:`langchain_core.runnables.Runnable.with_retry`.

        Args:
            retry_if_exception_type: Errors to retry. Default: errors for which
                :func:`~langchain_workers_ai.is_retryable` returns True.
            **options: ``wait_exponential_jitter``, ``exponential_jitter_params``, ``stop_after_attempt`` (3).
        """
        return super().with_retry(retry_if_exception_type=retry_if_exception_type, **options)

    @property
    def model_name(self) -> str:
        """Return the model id."""
        return self.model

    @property
    def _llm_type(self) -> str:
        return "workers-ai-chat"

    @property
    def _identifying_params(self) -> Mapping[str, object]:
        params = {"model": self.model, **self._set_params()}
        if self.api:
            params["api"] = self.api
        if self.model_kwargs:
            params["model_kwargs"] = self.model_kwargs
        return params

    def _get_invocation_params(self, stop: list[str] | None = None, **kwargs: object) -> Fields:
        return {**self.asdict(), "stop": pick_stop(stop, self.stop), **traced_keywords(kwargs)}

    def _get_llm_string(self, stop: list[str] | None = None, **kwargs: object) -> str:
        return super()._get_llm_string(stop=stop, **traced_keywords(kwargs))

    def _get_ls_params(self, stop: list[str] | None = None, **kwargs: object) -> LangSmithParams:
        params = super()._get_ls_params(stop=stop, **kwargs)
        params["ls_provider"] = PROVIDER
        if sequences := pick_stop(stop, self.stop):
            params["ls_stop"] = sequences
        return params

    def _resolve_model_profile(self) -> ModelProfile | None:
        return profile_of(self.model, self.api)

    @classmethod
    def is_lc_serializable(cls) -> bool:
        """Return True: ``dumps`` and ``loads`` of LangChain work."""
        return True

    @property
    def lc_secrets(self) -> dict[str, str]:
        """Return the secret field and the environment variable that replaces it in a dump."""
        return {"api_token": "CLOUDFLARE_API_TOKEN"}

    @property
    def lc_attributes(self) -> Fields:
        """Return the settings that a dump contains as plain data. Secrets are left out."""
        attributes: Fields = {}
        if isinstance(self.gateway, GatewayOptions):
            options = {item.name: getattr(self.gateway, item.name) for item in fields(GatewayOptions)}
            attributes["gateway"] = {k: v for k, v in options.items() if k != "token" and v is not None}
        if isinstance(self.batch_worker, BatchWorker):
            attributes["batch_worker"] = self.batch_worker.url
        if self.default_headers:
            attributes["default_headers"] = None
        if not (self.timeout is None or isinstance(self.timeout, (int, float))):
            attributes["timeout"] = self.timeout.as_dict()
        return attributes

    def get_num_tokens(self, text: str) -> int:
        """Return an offline estimate of the tokens of a text: one for each four bytes of UTF-8."""
        return len(self.get_token_ids(text))

    def get_token_ids(self, text: str) -> list[int]:
        """Return placeholder ids. Their number is the estimate of :meth:`get_num_tokens`; no tokenizer is loaded."""
        if self.custom_get_token_ids is not None:
            return self.custom_get_token_ids(text)
        return list(range(math.ceil(len(text.encode(errors="replace")) / 4)))

    def get_num_tokens_from_messages(self, messages: Sequence[BaseMessage], tools: Sequence[Tool] | None = None) -> int:
        """Return an offline estimate of the tokens of a conversation and its tools."""
        with framework_errors:
            return count_tokens_approximately(messages, tools=_bound(tools)["tools"] if tools else None)

    def __setattr__(self, name: str, value: object) -> None:
        super().__setattr__(name, value)
        self._forget()
        if name in ("model", "api") and isinstance(self.profile, ResolvedProfile):
            vars(self)["profile"] = self._resolve_model_profile()

    def model_copy(self, *, update: Mapping[str, object] | None = None, deep: bool = False) -> Self:
        """Return a copy. A changed ``model`` also changes the profile and the cache key."""
        copied: Self = super().model_copy(update=update, deep=deep)
        copied._forget()
        if "profile" not in (update or {}) and isinstance(copied.profile, ResolvedProfile):
            vars(copied)["profile"] = copied._resolve_model_profile()
        return copied

    def _forget(self) -> None:
        """Delete LangChain's cached dump, which is part of the cache key."""
        vars(self).pop("_serialized", None)


def _split_stop(kwargs: Mapping[str, object]) -> tuple[list[str] | None, dict[str, object]]:
    """Return ``stop`` and the other keywords of a call, as LangChain passes them to ``_generate``."""
    own = ("stop", "ls_structured_output_format", "structured_output_format")
    stop = cast("list[str] | None", kwargs.get("stop"))
    return stop, {name: value for name, value in kwargs.items() if name not in own}


def _check_configs(config: object, inputs: int) -> None:
    """Raise LangChain's error for a wrong number of configurations, before anything is sent."""
    if isinstance(config, list):
        get_config_list(config, inputs)


def _bound(tools: Sequence[Tool], tool_choice: str | bool | Fields | None = None, strict: bool | None = None) -> Fields:
    from langchain_workers_ai._translation.tools import bound_tools

    return bound_tools(tools, tool_choice, strict)


def _response_format(given: Schema) -> Fields:
    from langchain_workers_ai._translation.structured import response_format_of

    return response_format_of(given)
