"""Structured prediction: what to ask for, and how to read the object out of the reply, whole or in pieces."""

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
from llama_index.llms.workers_ai._from_wire import breaks_off, is_whole, partial_object
from llama_index_instrumentation import get_dispatcher
from pydantic import BaseModel, ValidationError

from workers_ai.errors import APIResponseValidationError, ConfigurationError
from workers_ai.integration import CallIds, parse_answer, parse_growing, recover_leaked_calls

if TYPE_CHECKING:
    from llama_index.core.base.llms.types import ChatResponse, ChatResponseAsyncGen

    from workers_ai.types import JSON

__all__ = ["Mode", "StructuredPrediction", "StructuredReader", "schema_format"]

dispatcher = get_dispatcher(__name__)

_DECIDED_HERE: Final = frozenset({"tool_required", "tool_choice", "allow_parallel_tool_calls"})
_EMPTY: Final = frozenset({"", "{}", "null"})


Mode: TypeAlias = Literal["tool", "schema", "text"]
"""How an object is requested: by a forced tool, by the schema of the answer, or by instructions in the prompt."""


def schema_format(output_cls: type[BaseModel]) -> dict[str, JSON]:
    """Return the ``response_format`` that requests the object as the text of the answer."""
    schema = output_cls.model_json_schema()
    named: dict[str, JSON] = {"name": output_cls.__name__, "schema": schema}
    if description := schema.get("description"):
        named["description"] = description
    return {"type": "json_schema", "json_schema": named}


class StructuredReader(Generic[Model]):
    """Reads objects of one class from responses.

    Args:
        output_cls: The class.
        model: The requested model, for errors.
        from_text: Whether the object is requested as the text of the answer, not as the arguments of a call.
    """

    def __init__(self, output_cls: type[Model], model: str, *, from_text: bool) -> None:
        self._output_cls = output_cls
        self._model = model
        self._from_text = from_text
        self._flexible: type[FlexibleModel] | None = None

    def read(self, response: ChatResponse) -> Model | FlexibleModel | None:
        """Return the object so far; None before it begins. The object of a whole response is complete.

        Raises:
            APIResponseValidationError: The response is whole and holds no such object.
        """
        if is_whole(response):
            return self.whole(response)
        arguments = self._arguments(response)
        value = parse_growing(response.message.content or "") if arguments is None else partial_object(arguments)
        return self._partial(value) if value and isinstance(value, dict) else None

    async def aread(self, responses: ChatResponseAsyncGen) -> AsyncGenerator[Model | FlexibleModel, None]:
        """Yield what :meth:`read` finds in each response."""
        async for response in responses:
            if (found := self.read(response)) is not None:
                yield found

    def whole(self, response: ChatResponse) -> Model:
        """Return the object of a whole response. A forced call may have come as text.

        Raises:
            APIResponseValidationError: There is no object, or it does not fit the class.
        """
        if refusal := response.message.additional_kwargs.get("refusal"):
            raise self._misfit(response, refusal, "the model refused")
        arguments = self._arguments(response)
        text = (response.message.content or "") if arguments is None else arguments
        if arguments is None and not self._from_text:
            raise self._misfit(response, text, "plain text in place of a call")
        try:
            found = json.dumps(parse_answer(text), ensure_ascii=False)
        except ValueError as exc:
            raise self._misfit(response, text, f"invalid JSON: {exc}") from exc
        if found in _EMPTY and _ended_early(response):
            raise self._misfit(response, text, "the answer ended before its first field")
        try:
            return self._output_cls.model_validate_json(found)
        except ValidationError as exc:
            what = "; ".join(f"{'.'.join(map(str, found['loc'])) or 'text'}: {found['msg']}" for found in exc.errors())
            raise self._misfit(response, text, what) from exc

    def _arguments(self, response: ChatResponse) -> str | None:
        """Return the arguments of the call that holds the object; None where the text does."""
        if self._from_text:
            return None
        if calls := response.message.additional_kwargs.get("tool_calls"):
            arguments: str = calls[0]["function"]["arguments"]
            return arguments
        if not is_whole(response):
            return None
        schema = self._output_cls.model_json_schema()
        forced = {schema.get("title") or self._output_cls.__name__: schema}
        written = recover_leaked_calls(response.message.content or "", forced, CallIds(), among_words=True)
        return written[0].arguments if written else None

    def _partial(self, value: dict[str, Any]) -> Model | FlexibleModel:
        try:
            return self._output_cls.model_validate(value)
        except ValidationError:
            if self._flexible is None:
                self._flexible = create_flexible_model(self._output_cls)
            return self._flexible.model_validate(value)

    def _misfit(self, response: ChatResponse, text: str, what: str) -> APIResponseValidationError:
        shown = text if len(text) <= 300 else f"{text[:300]}… ({len(text):,} characters)"
        cut = response.additional_kwargs.get("finish_reason") == "length" or breaks_off(text)
        return APIResponseValidationError(
            f"the reply holds no {self._output_cls.__name__}: {what}"
            + (" (it was cut off: raise max_tokens)" if cut else "")
            + f"; the model wrote {shown!r}",
            model=self._model,
            body=text,
            status_code=200,
        )


class StructuredPrediction(FunctionCallingLLM):
    """The four structured methods of an LLM: the forced choice holds in streams too, and async keeps the system prompt.

    LlamaIndex's own methods take over where ``_structured_mode`` is None.
    """

    @abstractmethod
    def _structured_mode(self) -> Mode | None:
        """Return how an object is requested; None leaves it to LlamaIndex."""

    def _structured_call(
        self,
        output_cls: type[Model],
        prompt: PromptTemplate,
        llm_kwargs: Mapping[str, Any] | None,
        prompt_args: Mapping[str, Any],
    ) -> tuple[StructuredReader[Model], dict[str, Any]] | None:
        """The reader of the reply and the arguments of the chat call; None to leave it to LlamaIndex."""
        if not (isinstance(output_cls, type) and issubclass(output_cls, BaseModel)):
            raise ConfigurationError(f"output_cls is {output_cls!r}: objects are asked for by a pydantic class")
        mode = self._structured_mode()
        if mode is None:
            return None
        kwargs = {name: value for name, value in (llm_kwargs or {}).items() if name not in _DECIDED_HERE}
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
        **prompt_args: Any,
    ) -> Model:
        """Answer with an object of ``output_cls``.

        Args:
            output_cls: Pydantic class.
            prompt: Template of the prompt.
            llm_kwargs: Options of the chat call.
            **prompt_args: What goes into the template.

        Raises:
            APIResponseValidationError: The model answered with something else.
            WorkersAIError: See :mod:`workers_ai.errors`.
        """
        call = self._structured_call(output_cls, prompt, llm_kwargs, prompt_args)
        if call is None:
            plain: Model = super().structured_predict(output_cls, prompt, dict(llm_kwargs or {}), **prompt_args)
            return plain
        reader, arguments = call
        _began(output_cls, prompt, prompt_args)
        return _ended(reader.whole(self.chat(**arguments)))

    async def astructured_predict(
        self,
        output_cls: type[Model],
        prompt: PromptTemplate,
        llm_kwargs: dict[str, Any] | None = None,
        **prompt_args: Any,
    ) -> Model:
        """See :meth:`structured_predict`."""
        call = self._structured_call(output_cls, prompt, llm_kwargs, prompt_args)
        if call is None:
            plain: Model = await super().astructured_predict(output_cls, prompt, dict(llm_kwargs or {}), **prompt_args)
            return plain
        reader, arguments = call
        _began(output_cls, prompt, prompt_args)
        return _ended(reader.whole(await self.achat(**arguments)))

    def _structured_stream_call(
        self,
        output_cls: type[Model],
        prompt: PromptTemplate,
        llm_kwargs: dict[str, Any] | None = None,
        **prompt_args: Any,
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
        **prompt_args: Any,
    ) -> AsyncGenerator[Model | list[Model] | FlexibleModel | list[FlexibleModel], None]:
        call = self._structured_call(output_cls, prompt, llm_kwargs, prompt_args)
        if call is None:
            return await super()._structured_astream_call(output_cls, prompt, dict(llm_kwargs or {}), **prompt_args)
        reader, arguments = call
        return reader.aread(await self.astream_chat(**arguments))


def _ended_early(response: ChatResponse) -> bool:
    return response.additional_kwargs.get("finish_reason") in ("length", "content_filter", "error")


def _began(output_cls: type[BaseModel], prompt: PromptTemplate, prompt_args: dict[str, Any]) -> None:
    dispatcher.event(LLMStructuredPredictStartEvent(output_cls=output_cls, template=prompt, template_args=prompt_args))


def _ended(output: Model) -> Model:
    dispatcher.event(LLMStructuredPredictEndEvent(output=output))
    return output
