"""Structured prediction: request an object, and parse it from complete and streamed responses."""

from __future__ import annotations

import json
from abc import abstractmethod
from collections.abc import AsyncGenerator, Generator, Mapping
from copy import copy
from typing import TYPE_CHECKING, Any, Final, Generic, Literal, TypeAlias

from llama_index.core.instrumentation.events.llm import (
    LLMStructuredPredictEndEvent,
    LLMStructuredPredictStartEvent,
)
from llama_index.core.llms.function_calling import FunctionCallingLLM
from llama_index.core.output_parsers import PydanticOutputParser
from llama_index.core.program.function_program import get_function_tool
from llama_index.core.program.utils import FlexibleModel, create_flexible_model
from llama_index.core.prompts import PromptTemplate
from llama_index.core.types import Model
from llama_index.llms.workers_ai._from_wire import is_complete, is_truncated_json, partial_object
from llama_index_instrumentation import get_dispatcher
from pydantic import BaseModel, ValidationError

from workers_ai.errors import APIResponseValidationError, ConfigurationError
from workers_ai.integration import CallIds, early_end, parse_answer, parse_growing, recover_leaked_calls

if TYPE_CHECKING:
    from llama_index.core.base.llms.types import ChatResponse, ChatResponseAsyncGen

    from workers_ai.types import JSON

__all__ = ["Mode", "StructuredPrediction", "StructuredReader", "check_output_cls", "schema_format"]

dispatcher = get_dispatcher(__name__)

_SET_HERE: Final = frozenset({"tool_required", "tool_choice", "allow_parallel_tool_calls"})
_EMPTY: Final = frozenset({"", "{}", "null"})


Mode: TypeAlias = Literal["tool", "schema", "text"]
"""How an object is requested: by a forced tool, by a JSON schema, or by instructions in the prompt."""


def schema_format(output_cls: type[BaseModel]) -> dict[str, JSON]:
    """Return the ``response_format`` that requests an object of ``output_cls`` as the text of the answer."""
    schema = output_cls.model_json_schema()
    named: dict[str, JSON] = {"name": output_cls.__name__, "schema": schema}
    if description := schema.get("description"):
        named["description"] = description
    return {"type": "json_schema", "json_schema": named}


def check_output_cls(output_cls: object) -> None:
    """Raise ``ConfigurationError`` unless ``output_cls`` is a pydantic class."""
    if not (isinstance(output_cls, type) and issubclass(output_cls, BaseModel)):
        raise ConfigurationError(f"output_cls must be a pydantic class, not {output_cls!r}")


class StructuredReader(Generic[Model]):
    """Parse objects of one class from responses.

    Args:
        output_cls: The class.
        model: The requested model, for errors.
        from_text: Whether the object is the text of the answer. Otherwise it is the arguments of a tool call.
    """

    def __init__(self, output_cls: type[Model], model: str, *, from_text: bool) -> None:
        self._output_cls = output_cls
        self._model = model
        self._from_text = from_text
        self._flexible: type[FlexibleModel] | None = None

    def read(self, response: ChatResponse) -> Model | FlexibleModel | None:
        """Return the object received so far; None before its first field.

        Raises:
            APIResponseValidationError: The response is complete and has no valid object.
        """
        if is_complete(response):
            return self.read_complete(response)
        arguments = self._arguments(response)
        value = parse_growing(response.message.content or "") if arguments is None else partial_object(arguments)
        return self._partial(value) if value and isinstance(value, dict) else None

    async def aread(self, responses: ChatResponseAsyncGen) -> AsyncGenerator[Model | FlexibleModel, None]:
        """Yield the object of each response; see :meth:`read`."""
        async for response in responses:
            if (found := self.read(response)) is not None:
                yield found

    def read_complete(self, response: ChatResponse) -> Model:
        """Return the object of a complete response. Also parse a forced tool call that the model wrote as text.

        Raises:
            APIResponseValidationError: The object is missing or invalid.
        """
        if refusal := response.message.additional_kwargs.get("refusal"):
            raise self._invalid(response, refusal, "the model refused to answer")
        arguments = self._arguments(response)
        text = (response.message.content or "") if arguments is None else arguments
        if arguments is None and not self._from_text:
            raise self._invalid(response, text, "the model wrote text instead of a tool call")
        try:
            found = json.dumps(parse_answer(text), ensure_ascii=False)
        except ValueError as exc:
            raise self._invalid(response, text, f"invalid JSON: {exc}") from exc
        if found in _EMPTY and _reason_for_early_end(response):
            raise self._invalid(response, text, "the answer ended before its first field")
        try:
            return self._output_cls.model_validate_json(found)
        except ValidationError as exc:
            reason = "; ".join(f"{'.'.join(map(str, err['loc'])) or 'text'}: {err['msg']}" for err in exc.errors())
            raise self._invalid(response, text, reason) from exc

    def _arguments(self, response: ChatResponse) -> str | None:
        """Return the arguments of the tool call with the object; None if the object is in the text."""
        if self._from_text:
            return None
        if calls := response.message.additional_kwargs.get("tool_calls"):
            arguments: str = calls[0]["function"]["arguments"]
            return arguments
        if not is_complete(response):
            return None
        schema = self._output_cls.model_json_schema()
        forced = {schema.get("title") or self._output_cls.__name__: schema}
        written = recover_leaked_calls(response.message.content or "", forced, CallIds(), among_words=True)
        return written[0].arguments if written else None

    def _partial(self, value: dict[str, JSON]) -> Model | FlexibleModel:
        try:
            return self._output_cls.model_validate(value)
        except ValidationError:
            if self._flexible is None:
                self._flexible = create_flexible_model(self._output_cls)
            return self._flexible.model_validate(value)

    def _invalid(self, response: ChatResponse, text: str, reason: str) -> APIResponseValidationError:
        shown = text if len(text) <= 300 else f"{text[:300]}… ({len(text):,} characters)"
        why = _reason_for_early_end(response) or (early_end("length") if is_truncated_json(text) else "")
        return APIResponseValidationError(
            f"the reply has no valid {self._output_cls.__name__}: {reason}"
            + (f" ({why})" if why else "")
            + f"; text of the answer: {shown!r}",
            model=self._model,
            body=text,
            status_code=200,
        )


class StructuredPrediction(FunctionCallingLLM):
    """Structured prediction of an LLM, sync, async and streamed.

    It differs from LlamaIndex's base class in two points: streams force the tool as well, and async calls send the
    system prompt. If ``_structured_mode`` returns None, the methods of the base class are used.
    """

    @abstractmethod
    def _structured_mode(self) -> Mode | None:
        """Return how to request an object; None to use the methods of LlamaIndex's base class."""

    def _structured_call(
        self,
        output_cls: type[Model],
        prompt: PromptTemplate,
        llm_kwargs: Mapping[str, Any] | None,
        prompt_args: Mapping[str, object],
    ) -> tuple[StructuredReader[Model], dict[str, Any]] | None:
        """Return the reader of the response and the arguments of the chat call; None to use LlamaIndex's base class.

        Raises:
            ConfigurationError: ``output_cls`` is not a pydantic class.
        """
        check_output_cls(output_cls)
        mode = self._structured_mode()
        if mode is None:
            return None
        kwargs = {name: value for name, value in (llm_kwargs or {}).items() if name not in _SET_HERE}
        if mode == "text":
            prompt = copy(prompt)
            prompt.output_parser = PydanticOutputParser(output_cls=output_cls)
        messages = self._extend_messages(prompt.format_messages(llm=self, **prompt_args))
        reader = StructuredReader(output_cls, self.metadata.model_name, from_text=mode != "tool")
        if mode == "text":
            return reader, {"messages": messages, **kwargs}
        if mode == "schema":
            return reader, {"messages": messages, "response_format": schema_format(output_cls), **kwargs}
        tool = get_function_tool(output_cls)
        return reader, self._prepare_chat_with_tools([tool], chat_history=messages, tool_required=True, **kwargs)

    def structured_predict(
        self,
        output_cls: type[Model],
        prompt: PromptTemplate,
        llm_kwargs: dict[str, Any] | None = None,
        **prompt_args: object,
    ) -> Model:
        """Return the answer as an object of ``output_cls``.

        Args:
            output_cls: A pydantic class.
            prompt: Template of the prompt.
            llm_kwargs: Options of the chat call.
            **prompt_args: Values for the template.

        Raises:
            APIResponseValidationError: The answer has no valid object. ``body`` is its text.
            WorkersAIError: See :mod:`workers_ai.errors`.
        """
        call = self._structured_call(output_cls, prompt, llm_kwargs, prompt_args)
        if call is None:
            plain: Model = super().structured_predict(output_cls, prompt, dict(llm_kwargs or {}), **prompt_args)
            return plain
        reader, arguments = call
        _send_start_event(output_cls, prompt, prompt_args)
        return _with_end_event(reader.read_complete(self.chat(**arguments)))

    async def astructured_predict(
        self,
        output_cls: type[Model],
        prompt: PromptTemplate,
        llm_kwargs: dict[str, Any] | None = None,
        **prompt_args: object,
    ) -> Model:
        """Return the answer as an object of ``output_cls``. See :meth:`structured_predict`."""
        call = self._structured_call(output_cls, prompt, llm_kwargs, prompt_args)
        if call is None:
            plain: Model = await super().astructured_predict(output_cls, prompt, dict(llm_kwargs or {}), **prompt_args)
            return plain
        reader, arguments = call
        _send_start_event(output_cls, prompt, prompt_args)
        return _with_end_event(reader.read_complete(await self.achat(**arguments)))

    def _structured_stream_call(
        self,
        output_cls: type[Model],
        prompt: PromptTemplate,
        llm_kwargs: dict[str, Any] | None = None,
        **prompt_args: object,
    ) -> Generator[Model | list[Model] | FlexibleModel | list[FlexibleModel], None, None]:
        call = self._structured_call(output_cls, prompt, llm_kwargs, prompt_args)
        if call is None:
            yield from super()._structured_stream_call(output_cls, prompt, dict(llm_kwargs or {}), **prompt_args)
            return
        reader, arguments = call
        for response in self.stream_chat(**arguments):
            if (found := reader.read(response)) is not None:
                yield found

    async def _structured_astream_call(
        self,
        output_cls: type[Model],
        prompt: PromptTemplate,
        llm_kwargs: dict[str, Any] | None = None,
        **prompt_args: object,
    ) -> AsyncGenerator[Model | list[Model] | FlexibleModel | list[FlexibleModel], None]:
        call = self._structured_call(output_cls, prompt, llm_kwargs, prompt_args)
        if call is None:
            return await super()._structured_astream_call(output_cls, prompt, dict(llm_kwargs or {}), **prompt_args)
        reader, arguments = call
        return reader.aread(await self.astream_chat(**arguments))


def _reason_for_early_end(response: ChatResponse) -> str:
    return early_end(response.additional_kwargs.get("finish_reason"))


def _send_start_event(output_cls: type[BaseModel], prompt: PromptTemplate, prompt_args: dict[str, object]) -> None:
    dispatcher.event(LLMStructuredPredictStartEvent(output_cls=output_cls, template=prompt, template_args=prompt_args))


def _with_end_event(output: Model) -> Model:
    dispatcher.event(LLMStructuredPredictEndEvent(output=output))
    return output
