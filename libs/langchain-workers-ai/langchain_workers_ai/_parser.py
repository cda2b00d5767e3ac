"""From an answer to a value that fits its schema; an answer that does not fit raises, and never becomes None."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from langchain_core.exceptions import ModelRefusalError, OutputParserException
from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage
from langchain_core.output_parsers import BaseTransformOutputParser
from langchain_core.outputs import ChatGeneration, Generation
from langchain_core.runnables.utils import AddableDict
from pydantic import BaseModel, SkipValidation

from workers_ai.integration import (
    CallIds,
    conform,
    parse_answer,
    parse_growing,
    parse_json,
    recover_leaked_calls,
    shortened,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator, Mapping

__all__ = ["AnswerParser"]

_NOTHING: Final = object()


class AnswerParser(BaseTransformOutputParser[Any]):
    """Parses the answer of one structured call, whole or streamed.

    A stream of a dict yields it as it grows; a class is made once, at the end. The end of a stream is judged as a whole
    answer is.
    """

    tool_name: str | None = None
    """Name of the forced tool; None where the answer is JSON text."""
    cls: SkipValidation[type | None] = None
    """Pydantic class to make; None for a dict."""
    answer_schema: dict[str, Any]
    """JSON schema of the answer."""

    @property
    def _type(self) -> str:
        return "workers-ai-answer"

    def parse(self, text: str) -> Any:
        """Parse JSON text."""
        return self._fit(_strict_json(text), text)

    def parse_result(self, result: list[Generation], *, partial: bool = False) -> Any:
        """Parse an answer.

        Raises:
            ModelRefusalError: The model refused.
            OutputParserException: The answer does not fit; it is in ``llm_output``.
        """
        first = result[0]
        message = first.message if isinstance(first, ChatGeneration) else AIMessage(first.text)
        if partial:
            return self._growing(message)
        for block in message.content_blocks:
            if block["type"] == "refusal":
                raise ModelRefusalError.from_refusal(block, raw_message=message)
        try:
            shown, value = self._value(message)
            return self._fit(value, shown)
        except OutputParserException as exc:
            if message.response_metadata.get("finish_reason") != "length":
                raise
            raise OutputParserException(
                f"the answer was cut at max_tokens; raise max_tokens or ask for less: {exc.args[0]}",
                llm_output=exc.llm_output,
            ) from exc

    def _value(self, message: BaseMessage) -> tuple[str, Any]:
        """The answer as text, and as a value. Some models answer in their reasoning, with an empty text beside it."""
        text = message.text if message.text.strip() else _reasoning(message)
        if self.tool_name is None:
            return text, _strict_json(text)
        calls = message.tool_calls if isinstance(message, AIMessage) else []
        invalid = message.invalid_tool_calls if isinstance(message, AIMessage) else []
        for bad in invalid:
            if bad.get("name") == self.tool_name:
                raise _misfit(f"the call of {self.tool_name} is invalid: {bad.get('error')}", bad.get("args") or "")
        for call in calls:
            if call["name"] == self.tool_name:
                return "", call["args"]
        if called := [str(call.get("name")) for call in (*calls, *invalid)]:
            raise _misfit(f"the model called {', '.join(called)} instead of {self.tool_name}", text)
        ids = CallIds()
        for written in recover_leaked_calls(text, {self.tool_name: self.answer_schema}, ids, among_words=True)[:1]:
            return text, parse_json(written.arguments)
        raise _misfit(f"the model answered with text instead of calling {self.tool_name}", text)

    def _fit(self, value: Any, shown: str) -> Any:
        """The value as the class wanted, or as a dict with everything in it that the schema requires."""
        shown = shown or json.dumps(value, ensure_ascii=False)
        if self.cls is None:
            return self._checked(value, shown)
        try:
            if issubclass(self.cls, BaseModel):
                # As JSON, for classes that are strict: they take texts for dates and enumerations from JSON alone.
                return self.cls.model_validate_json(json.dumps(value))
            return self.cls.parse_obj(value)  # type: ignore[attr-defined] # pydantic.v1
        except ValueError as exc:
            raise _misfit(f"the answer does not fit {self.cls.__name__}: {exc}", shown) from exc

    def _checked(self, value: Any, shown: str) -> Any:
        schema = self.answer_schema
        is_object = schema.get("type") == "object" or "properties" in schema
        if value is None or (is_object and not isinstance(value, dict)):
            raise _misfit(f"the answer is a JSON {type(value).__name__}, not an object", shown)
        try:
            return conform(value, schema)
        except ValueError as exc:
            raise _misfit(str(exc), shown) from exc

    def _growing(self, message: BaseMessage) -> Any:
        """What of a dict has arrived; None for nothing yet."""
        if self.cls is not None:
            return None
        if self.tool_name is None:
            return parse_growing(message.text)
        calls = message.tool_calls if isinstance(message, AIMessage) else ()
        return next((call["args"] for call in calls if call["name"] == self.tool_name and call["args"]), None)

    def _transform(self, input: Iterator[str | BaseMessage]) -> Iterator[Any]:
        growth = _Growth(self)
        for chunk in input:
            if (value := growth.add(chunk)) is not _NOTHING:
                yield value
        if (value := growth.finish()) is not _NOTHING:
            yield value

    async def _atransform(self, input: AsyncIterator[str | BaseMessage]) -> AsyncIterator[Any]:
        growth = _Growth(self)
        async for chunk in input:
            if (value := growth.add(chunk)) is not _NOTHING:
                yield value
        if (value := growth.finish()) is not _NOTHING:
            yield value

    def beside_raw(self, input: Iterator[BaseMessage]) -> Iterator[dict[str, Any]]:
        """Yield raw pieces as they come, then the value or the error. Never raise.

        A growing value is not yielded: it would stay in the sum of the pieces of an answer that does not fit.
        """
        pieces: list[BaseMessage] = []
        for chunk in input:
            pieces.append(chunk)
            yield AddableDict(raw=chunk)
        yield self._value_or_error(pieces)

    async def abeside_raw(self, input: AsyncIterator[BaseMessage]) -> AsyncIterator[dict[str, Any]]:
        """See :meth:`beside_raw`."""
        pieces: list[BaseMessage] = []
        async for chunk in input:
            pieces.append(chunk)
            yield AddableDict(raw=chunk)
        yield self._value_or_error(pieces)

    def _value_or_error(self, pieces: list[BaseMessage]) -> dict[str, Any]:
        try:
            return AddableDict(parsed=self.parse_result([ChatGeneration(message=_sum(pieces))]), parsing_error=None)
        except Exception as exc:  # noqa: BLE001 - a validator of the caller's class may raise anything
            return AddableDict(parsed=None, parsing_error=exc)


class _Growth:
    """Adds the pieces of an answer up, and tells when there is a new value to hand on."""

    def __init__(self, parser: AnswerParser) -> None:
        self._parser = parser
        self._pieces: list[Any] = []
        self._shown: Any = None

    def add(self, piece: str | BaseMessage) -> Any:
        if isinstance(piece, str):
            piece = AIMessageChunk(content=piece)
        self._pieces.append(piece)
        if self._parser.cls is not None:  # made at the end alone, so that adding up each piece would be for nothing
            return _NOTHING
        self._add_up()
        return self._new(self._parse(partial=True))

    def _add_up(self) -> None:
        self._pieces = [_sum(self._pieces)]

    def finish(self) -> Any:
        if not self._pieces:
            return _NOTHING
        self._add_up()
        return self._new(self._parse(partial=False))

    def _parse(self, *, partial: bool) -> Any:
        return self._parser.parse_result([ChatGeneration(message=self._pieces[0])], partial=partial)

    def _new(self, value: Any) -> Any:
        if value is None or value == self._shown:
            return _NOTHING
        self._shown = value
        return value


def _sum(pieces: list[BaseMessage]) -> BaseMessage:
    """Return the message of these pieces; the last one if they are whole messages."""
    chunks = [piece for piece in pieces if isinstance(piece, AIMessageChunk)]
    return chunks[0] + chunks[1:] if len(chunks) == len(pieces) > 1 else pieces[-1]


def _reasoning(message: BaseMessage) -> str:
    blocks = message.content_blocks
    return "".join(str(block.get("reasoning") or "") for block in blocks if block["type"] == "reasoning")


def _strict_json(text: str) -> Any:
    """JSON out of the text of an answer."""
    try:
        return parse_answer(text)
    except ValueError:
        raise _misfit("the answer is not JSON" if text.strip() else "the answer is empty", text) from None


def _misfit(message: str, shown: str | Mapping[str, Any]) -> OutputParserException:
    text = shortened(shown)
    return OutputParserException(f"{message}. The model wrote: {text}" if text else message, llm_output=text)
