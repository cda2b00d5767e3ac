"""Parse answers to values that fit a schema. An answer that does not fit raises an error and never becomes None."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

from langchain_core.exceptions import ModelRefusalError, OutputParserException
from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage
from langchain_core.output_parsers import BaseTransformOutputParser
from langchain_core.outputs import ChatGeneration, Generation
from langchain_core.runnables.utils import AddableDict
from pydantic import BaseModel, SkipValidation

from langchain_workers_ai._types import Data, Fields
from workers_ai.integration import (
    CallIds,
    conform,
    early_end,
    parse_answer,
    parse_growing,
    parse_json,
    recover_leaked_calls,
    shortened,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from workers_ai.types import JSON


__all__ = ["AnswerParser"]

_NO_VALUE: Final = object()


class AnswerParser(BaseTransformOutputParser[object]):
    """Parse the answer of one structured call, complete or streamed.

    A stream yields the partial dict after each chunk. An instance of a class is yielded once, at the end. At the end
    of a stream, the sum of its chunks is checked like a complete answer.
    """

    tool_name: str | None = None
    """Name of the forced tool; None if the answer is JSON text."""
    cls: SkipValidation[type | None] = None
    """Pydantic class to return; None for a dict."""
    answer_schema: Fields
    """JSON schema of the answer."""

    @property
    def _type(self) -> str:
        return "workers-ai-answer"

    def parse(self, text: str) -> object:
        """Return the value of an answer in JSON text."""
        return self._fit(_strict_json(text), text)

    def parse_result(self, result: list[Generation], *, partial: bool = False) -> object:
        """Return the value of an answer.

        Raises:
            ModelRefusalError: The model refused.
            OutputParserException: The answer does not fit the schema; ``llm_output`` has its text.
        """
        first = result[0]
        message = first.message if isinstance(first, ChatGeneration) else AIMessage(first.text)
        if partial:
            return self._partial_value(message)
        for block in message.content_blocks:
            if block["type"] == "refusal":
                raise ModelRefusalError.from_refusal(block, raw_message=message)
        try:
            shown, value = self._value(message)
            return self._fit(value, shown)
        except OutputParserException as exc:
            why = early_end(message.response_metadata.get("finish_reason"))
            if not why:
                raise
            raise OutputParserException(f"{why}: {exc.args[0]}", llm_output=exc.llm_output) from exc

    def _value(self, message: BaseMessage) -> tuple[str, JSON]:
        """Return the answer as text and as a value. Some models put the answer into their reasoning."""
        text = message.text if message.text.strip() else _reasoning(message)
        if self.tool_name is None:
            return text, _strict_json(text)
        calls = message.tool_calls if isinstance(message, AIMessage) else []
        invalid = message.invalid_tool_calls if isinstance(message, AIMessage) else []
        for bad in invalid:
            if bad.get("name") == self.tool_name:
                raise _parse_error(
                    f"the call of {self.tool_name} is invalid: {bad.get('error')}", bad.get("args") or ""
                )
        for call in calls:
            if call["name"] == self.tool_name:
                return "", call["args"]
        if called := [str(call.get("name")) for call in (*calls, *invalid)]:
            raise _parse_error(f"the model called {', '.join(called)} instead of {self.tool_name}", text)
        ids = CallIds()
        for written in recover_leaked_calls(text, {self.tool_name: self.answer_schema}, ids, among_words=True)[:1]:
            return text, parse_json(written.arguments)
        raise _parse_error(f"the model answered with text instead of calling {self.tool_name}", text)

    def _fit(self, value: JSON, shown: str) -> object:
        """Return an instance of the class, or a dict that fits the schema."""
        shown = shown or json.dumps(value, ensure_ascii=False)
        if self.cls is None:
            return self._checked(value, shown)
        try:
            if issubclass(self.cls, BaseModel):
                # Strict classes accept strings for dates and enumerations only from JSON.
                return self.cls.model_validate_json(json.dumps(value))
            return self.cls.parse_obj(value)  # type: ignore[attr-defined] # pydantic.v1
        except ValueError as exc:
            raise _parse_error(f"the answer does not fit {self.cls.__name__}: {exc}", shown) from exc

    def _checked(self, value: JSON, shown: str) -> Data:
        schema = self.answer_schema
        is_object = schema.get("type") == "object" or "properties" in schema
        if value is None or (is_object and not isinstance(value, dict)):
            raise _parse_error(f"the answer is a JSON {type(value).__name__}, not an object", shown)
        try:
            return conform(value, schema)
        except ValueError as exc:
            raise _parse_error(str(exc), shown) from exc

    def _partial_value(self, message: BaseMessage) -> Data:
        """Return the received part of a dict; None if nothing has arrived."""
        if self.cls is not None:
            return None
        if self.tool_name is None:
            return parse_growing(message.text)
        calls = message.tool_calls if isinstance(message, AIMessage) else ()
        return next((call["args"] for call in calls if call["name"] == self.tool_name and call["args"]), None)

    def _transform(self, input: Iterator[str | BaseMessage]) -> Iterator[object]:
        partial = _PartialAnswer(self)
        for chunk in input:
            if (value := partial.add(chunk)) is not _NO_VALUE:
                yield value
        if (value := partial.finish()) is not _NO_VALUE:
            yield value

    async def _atransform(self, input: AsyncIterator[str | BaseMessage]) -> AsyncIterator[object]:
        partial = _PartialAnswer(self)
        async for chunk in input:
            if (value := partial.add(chunk)) is not _NO_VALUE:
                yield value
        if (value := partial.finish()) is not _NO_VALUE:
            yield value

    def transform_with_raw(self, input: Iterator[BaseMessage]) -> Iterator[Fields]:
        """Yield each raw chunk, then the value or the error. Never raise.

        Partial values are not yielded: they would remain in the sum of the chunks of an answer that does not fit.
        """
        chunks: list[BaseMessage] = []
        for chunk in input:
            chunks.append(chunk)
            yield AddableDict(raw=chunk)
        yield self._value_or_error(chunks)

    async def atransform_with_raw(self, input: AsyncIterator[BaseMessage]) -> AsyncIterator[Fields]:
        """Yield each raw chunk, then the value or the error. See :meth:`transform_with_raw`."""
        chunks: list[BaseMessage] = []
        async for chunk in input:
            chunks.append(chunk)
            yield AddableDict(raw=chunk)
        yield self._value_or_error(chunks)

    def _value_or_error(self, chunks: list[BaseMessage]) -> Fields:
        try:
            return AddableDict(parsed=self.parse_result([ChatGeneration(message=_sum(chunks))]), parsing_error=None)
        except Exception as exc:  # noqa: BLE001 - a validator of the caller's class may raise anything
            return AddableDict(parsed=None, parsing_error=exc)


class _PartialAnswer:
    """The sum of the received chunks of an answer. Returns each new value."""

    def __init__(self, parser: AnswerParser) -> None:
        self._parser = parser
        self._chunks: list[BaseMessage] = []
        self._last: Data = None

    def add(self, chunk: str | BaseMessage) -> object:
        if isinstance(chunk, str):
            chunk = AIMessageChunk(content=chunk)
        self._chunks.append(chunk)
        if self._parser.cls is not None:  # instances are created at the end only
            return _NO_VALUE
        self._add_up()
        return self._new(self._parse(partial=True))

    def _add_up(self) -> None:
        self._chunks = [_sum(self._chunks)]

    def finish(self) -> object:
        if not self._chunks:
            return _NO_VALUE
        self._add_up()
        return self._new(self._parse(partial=False))

    def _parse(self, *, partial: bool) -> object:
        return self._parser.parse_result([ChatGeneration(message=self._chunks[0])], partial=partial)

    def _new(self, value: object) -> object:
        if value is None or value == self._last:
            return _NO_VALUE
        self._last = value
        return value


def _sum(messages: list[BaseMessage]) -> BaseMessage:
    """Return the sum of chunks; the last message if they are complete messages."""
    chunks = [message for message in messages if isinstance(message, AIMessageChunk)]
    return chunks[0] + chunks[1:] if len(chunks) == len(messages) > 1 else messages[-1]


def _reasoning(message: BaseMessage) -> str:
    blocks = message.content_blocks
    return "".join(str(block.get("reasoning") or "") for block in blocks if block["type"] == "reasoning")


def _strict_json(text: str) -> JSON:
    """Return the JSON value in the text of an answer."""
    try:
        return parse_answer(text)
    except ValueError:
        raise _parse_error("the answer is not JSON" if text.strip() else "the answer is empty", text) from None


def _parse_error(message: str, shown: str | Fields) -> OutputParserException:
    text = shortened(shown)
    line = f"{message}. Retry, or use another method= or model."
    return OutputParserException(f"{line} The model wrote: {text}" if text else line, llm_output=text)
