"""Read streamed chat replies, one event at a time."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from pydantic_core import from_json

from workers_ai._wire.chat.reply import finish_reason, first_choice, read_content, reasoning_text, truncation_of, unwrap
from workers_ai._wire.chat.streamed_calls import ToolCallAssembler
from workers_ai._wire.chat.tool_calls import CallIds, recover_leaked_calls
from workers_ai._wire.error_mapping import NAMES, error_from_reply, read_error
from workers_ai._wire.json_parsing import SurrogateJoiner, json_text, parse_body
from workers_ai._wire.json_types import JSON
from workers_ai._wire.request import ReplyContext
from workers_ai._wire.sse import whole_events
from workers_ai._wire.usage import UsageMeter
from workers_ai.errors import APIResponseValidationError, StreamInterruptedError, WorkersAIError
from workers_ai.types import ChatDelta, ChatReply, ToolCall, ToolCallDelta

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

__all__ = ["ChatStreamReader", "deltas_of", "joined", "read_chat_events"]

_log = logging.getLogger("workers_ai")
_DONE: Final = "[DONE]"
_JSON_CHARACTERS: Final = frozenset('{}[]":')
"""Invalid data with one of these characters is a damaged event. Other invalid data is ignored."""


_PLAIN_DELTA: Final = frozenset({"content", "role"})
_TEXT_BESIDE: Final = frozenset({"response", "reasoning", "reasoning_content", "tool_calls"})
"""Keys beside ``choices`` that may repeat or add text and calls."""


class ChatStreamReader:
    """Convert the data of events, of any family, to :class:`ChatDelta` values.

    Call :meth:`read` for each event, then :meth:`finish`, which returns the last delta.

    Attributes:
        done: Whether the end mark has been read. Later events are ignored.

    Args:
        context: Facts of the request that the reader needs.
        headers: Response headers.
        scrub: Function that removes secrets from the text of an error.
    """

    __slots__ = (
        "_assembler",
        "_buffer",
        "_calls_beside",
        "_context",
        "_finish",
        "_has_plain_text",
        "_has_refusal",
        "_headers",
        "_id",
        "_ids",
        "_joiners",
        "_meter",
        "_model",
        "_pending_reasoning",
        "_reasoning",
        "_scrub",
        "_text",
        "done",
    )  # fmt: skip

    def __init__(
        self,
        context: ReplyContext,
        headers: Mapping[str, str] | None = None,
        scrub: Callable[[str], str] = lambda text: text,
    ) -> None:
        self._context = context
        self._headers = headers or {}
        self._scrub = scrub
        self._ids = CallIds(context.known_ids)
        self._assembler = ToolCallAssembler(self._ids, context.tools)
        self._meter = UsageMeter()
        self._text: list[str] = []
        self._reasoning: list[str] = []
        self._pending_reasoning: list[str] = []
        self._has_refusal = False
        # A forced call may be written as text (see recover_leaked_calls), so keep text until the end.
        self._buffer: list[str] | None = [] if context.forced else None
        self._finish: str | None = None
        self.done = False
        # For text and for reasoning; set by the first event with a lone surrogate.
        self._joiners: tuple[SurrogateJoiner, SurrogateJoiner] | None = None
        self._has_plain_text = False  # whether text has begun and is returned as it arrives
        self._calls_beside: bool | None = None
        self._id: JSON = None
        self._model: JSON = None

    @property
    def partial(self) -> str:
        """The text of all events so far."""
        return "".join(self._text)

    def read(self, data: bytes, *, unfinished: bool = False) -> ChatDelta | None:
        """Read the data of one event. Return None if it has no content.

        Args:
            data: The data.
            unfinished: Whether the stream ended inside this event. Then invalid data is ignored here, and
                :meth:`finish` raises.

        Raises:
            StreamInterruptedError: The event is damaged. ``.partial`` has the text so far.
            WorkersAIError: The event is an error; the class depends on its code. ``.partial`` has the text so far.
        """
        if self.done:
            return None
        try:
            event = from_json(data)
        except ValueError:
            event = self._read_invalid(data, unfinished=unfinished)
        if not isinstance(event, dict):
            self._read_text(event)
            return None
        choices = event.get("choices")
        if "error" in event or "errors" in event or not choices:  # fast path: most events have choices and no error
            self._raise_if_error(event)
        if (usage := event.get("usage")) and isinstance(usage, dict):
            self._meter.add(usage)
        if not choices:
            return self._read_native(event)
        choice = choices[0] if isinstance(choices, list) else None
        return self._read_choice(event, choice) if choice and isinstance(choice, dict) else None

    def _read_invalid(self, data: bytes, *, unfinished: bool) -> JSON:
        """Read data that is not strict JSON: an end mark, lone surrogates, or the error text of a binding."""
        text = data.decode(errors="replace").strip()
        if text in ("", _DONE):
            return text
        try:
            event = parse_body(data, keep_lone_surrogates=True)
        except ValueError:
            if details := read_error(text):
                return {"error": details.message, "code": details.code}
            if not (unfinished or _JSON_CHARACTERS.isdisjoint(text)):
                raise self._interrupted(f"an event of the stream is damaged ({len(data)} bytes)") from None
            _log.warning("skipped an event that is not JSON (%d bytes)", len(data))
            return None
        self._joiners = self._joiners or (SurrogateJoiner(), SurrogateJoiner())
        self._has_plain_text = False
        return event

    def _read_text(self, event: JSON) -> None:
        """Read an event that is not an object: the end mark or an error text. Ignore other texts."""
        if event == _DONE:
            self.done = True
        elif isinstance(event, str) and (details := read_error(event)):
            self._raise_if_error({"error": details.message, "code": details.code})

    def _read_choice(self, event: Mapping[str, JSON], choice: Mapping[str, JSON]) -> ChatDelta | None:
        if (index := choice.get("index")) and index != "0":
            return None
        if reason := choice.get("finish_reason"):
            self._finish = reason if isinstance(reason, str) else "stop"
        if self._id is None:
            self._id, self._model = event.get("id"), event.get("model")
        delta = choice.get("delta") or self._unread_part(choice)
        if (  # most events have only text
            self._has_plain_text
            and type(delta) is dict
            and type(text := delta.get("content")) is str
            and text
            and (len(delta) == 1 or delta.keys() <= _PLAIN_DELTA)
            and not choice.get("logprobs")
            and _TEXT_BESIDE.isdisjoint(event)
        ):
            self._text.append(text)
            return ChatDelta(text)
        if not isinstance(delta, dict):
            delta = {"content": choice.get("text")}
        content, reasoning, refusal, in_content = read_content(delta.get("content"), in_stream=True)
        calls = delta.get("tool_calls") or delta.get("function_call") or list(in_content)
        return self._piece(
            content or json_text(event.get("response")),
            reasoning_text(delta) or reasoning or reasoning_text(event),
            self._calls_of(calls, event.get("tool_calls")),
            choice.get("logprobs"),
            delta.get("refusal") or refusal,
        )

    def _unread_part(self, choice: Mapping[str, JSON]) -> JSON:
        """Return the ``message`` of a choice without delta. If it repeats the answer, return only the unread rest."""
        message = choice.get("message")
        if not (isinstance(message, dict) and choice.get("finish_reason") and self._text):
            return message
        content, partial = read_content(message.get("content"), in_stream=True), self.partial
        if not content.text.startswith(partial):
            return message
        rest = {key: message[key] for key in ("tool_calls", "function_call", "refusal") if message.get(key)}
        return {"tool_calls": list(content.calls), **rest, "content": content.text[len(partial) :]}

    def _calls_of(self, calls: JSON, beside: JSON) -> JSON:
        """Return the calls of an event: those in the delta, or those beside ``choices`` (llama-3.3), never both.

        The place of the first call decides for the whole stream.
        """
        if self._calls_beside is None and (calls or beside):
            self._calls_beside = not calls
        return beside if self._calls_beside else calls

    def _read_native(self, event: Mapping[str, JSON]) -> ChatDelta | None:
        if "response" not in event and "tool_calls" not in event:
            inner = unwrap(event)
            if inner is not event and isinstance(inner, dict):
                choice = first_choice(inner)
                return self._read_choice(inner, choice) if choice else self._read_native(inner)
        if isinstance(reason := event.get("finish_reason"), str):
            self._finish = reason
        calls = self._calls_of(None, event.get("tool_calls"))
        return self._piece(json_text(event.get("response")), reasoning_text(event), calls)

    def _raise_if_error(self, event: Mapping[str, JSON]) -> None:
        details = read_error(event)
        if details is None:
            return
        error: WorkersAIError = error_from_reply(
            200, self._headers, "", model=self._context.model, body=event, scrub=self._scrub
        )
        is_named = type(error) is NAMES.get(details.name or "")
        if isinstance(error, APIResponseValidationError) or (self._text and is_named and details.code is None):
            error = self._interrupted(f"the service reported an error in the stream: {details.message}")
            error.code = details.code
        error.partial = self.partial
        raise error

    def _piece(
        self, text: str, reasoning: str = "", calls: JSON = None, logprobs: JSON = None, refusal: JSON = None
    ) -> ChatDelta | None:
        deltas = self._assembler.feed(calls) if calls else ()
        if self._joiners is not None:
            text, reasoning = self._joiners[0].join(text), self._joiners[1].join(reasoning)
        if text:
            self._text.append(text)
            if self._buffer is not None:
                self._buffer.append(text)
                text = ""
        if not self._text and not self._assembler:
            reasoning = self._keep_reasoning(reasoning)
        elif self._pending_reasoning:
            reasoning, self._pending_reasoning = "".join(self._pending_reasoning) + reasoning, []
        if not (self._joiners or self._pending_reasoning):
            self._has_plain_text = bool(self._text) and self._buffer is None
        refused = refusal if isinstance(refusal, str) else ""
        self._has_refusal = self._has_refusal or bool(refused)
        if not (text or reasoning or deltas or logprobs or refused):
            return None
        return ChatDelta(text, reasoning, deltas, logprobs, refused)

    def _keep_reasoning(self, reasoning: str) -> str:
        """Store reasoning that may be the answer. Return it, or "" if the request turned thinking off."""
        if not reasoning:
            return ""
        self._reasoning.append(reasoning)
        if not self._context.thinking_off:
            return reasoning
        self._pending_reasoning.append(reasoning)
        return ""

    def _interrupted(self, message: str) -> StreamInterruptedError:
        error = StreamInterruptedError(self._scrub(message), model=self._context.model)
        error.partial = self.partial
        return error

    def finish(self) -> ChatDelta:
        """Return the last delta. Call this after the last event.

        Raises:
            StreamInterruptedError: The stream had neither an end mark nor a finish reason.
        """
        if not self.done and self._finish is None:
            raise self._interrupted("the stream ended with neither an end mark nor a finish reason")
        usage = self._meter.total(self._headers.get("cf-ai-neurons"))
        truncation = truncation_of(self._finish, usage, self._context)
        calls = self._assembler.finish(truncation)
        rest, last_reasoning = (joiner.flush() for joiner in self._joiners) if self._joiners else ("", "")
        text = "".join(self._buffer or ()) + rest
        if text and not self._assembler:
            leaked = recover_leaked_calls(text, self._context.forced, self._ids)
            calls = [ToolCallDelta(i, call.id, call.name, call.arguments) for i, call in enumerate(leaked)]
            text = "" if calls else text
        has_calls = bool(calls) or bool(self._assembler)
        if not ((truncation and not self._pending_reasoning) or text or self._text or has_calls or self._has_refusal):
            text = "".join(self._reasoning)  # with thinking off, nemotron sends the answer as reasoning
        return ChatDelta(
            text=text,
            reasoning=last_reasoning,
            tool_calls=calls,
            last=True,
            finish_reason=finish_reason(
                self._finish,
                truncation,
                calls=has_calls,
                broken=any(call.error for call in calls),
            ),
            usage=usage,
            id=self._id if isinstance(self._id, str) else None,
            model=self._model if isinstance(self._model, str) else None,
            headers=self._headers,
        )


def deltas_of(reply: ChatReply) -> list[ChatDelta]:
    """Return the deltas of a whole reply, for a requested stream that was answered with plain JSON."""
    calls = [
        ToolCallDelta(i, call.id, call.name, call.arguments, call.arguments if call.error else "", call.error)
        for i, call in enumerate(reply.tool_calls)
    ]
    return [
        ChatDelta(reply.text, reply.reasoning, calls, reply.logprobs, reply.refusal or ""),
        ChatDelta(
            last=True,
            finish_reason=reply.finish_reason,
            usage=reply.usage,
            id=reply.id,
            model=reply.model,
            headers=reply.headers,
        ),
    ]


def joined(deltas: Iterable[ChatDelta]) -> ChatReply:
    """Return the whole reply of all deltas of a stream. The last delta must be among them."""
    texts, reasoning, refusals, logprobs = [], [], [], []
    pieces: dict[int, list[ToolCallDelta]] = {}
    delta = ChatDelta()
    for delta in deltas:
        texts.append(delta.text)
        reasoning.append(delta.reasoning)
        refusals.append(delta.refusal)
        if isinstance(delta.logprobs, dict) and isinstance(tokens := delta.logprobs.get("content"), list):
            logprobs += tokens
        for piece in delta.tool_calls:
            pieces.setdefault(piece.index, []).append(piece)
    reply = ChatReply(
        text="".join(texts),
        reasoning="".join(reasoning),
        tool_calls=tuple(map(_joined_call, pieces.values())),
        finish_reason=delta.finish_reason or "stop",
        usage=delta.usage,
        model=delta.model,
        id=delta.id,
        refusal="".join(refusals) or None,
        logprobs={"content": logprobs} if logprobs else None,
        headers=delta.headers,
    )
    return replace(reply, raw=_as_completion(reply))


def _as_completion(reply: ChatReply) -> JSON:
    """Return a reply as the body of a chat completion, without usage."""
    functions = [(call.id, {"name": call.name, "arguments": call.arguments}) for call in reply.tool_calls]
    message: dict[str, JSON] = {"role": "assistant", "content": reply.text}
    if reply.reasoning:
        message["reasoning_content"] = reply.reasoning
    if functions:
        message["tool_calls"] = [{"id": id_, "type": "function", "function": function} for id_, function in functions]
    choice: dict[str, JSON] = {"index": 0, "message": message, "finish_reason": reply.finish_reason}
    return {"id": reply.id, "object": "chat.completion", "model": reply.model, "choices": [choice]}


def _joined_call(pieces: list[ToolCallDelta]) -> ToolCall:
    first, last = pieces[0], pieces[-1]
    arguments = last.broken or "".join(piece.arguments for piece in pieces)
    return ToolCall(first.id or "", first.name or "", arguments, last.error)


def read_chat_events(
    body: bytes, context: ReplyContext, headers: Mapping[str, str], scrub: Callable[[str], str]
) -> ChatReply:
    """Read a whole event stream, as some proxies send in place of a whole reply.

    Raises:
        StreamInterruptedError: The stream is damaged or ended early.
        WorkersAIError: An event is an error.
    """
    reader = ChatStreamReader(context, headers, scrub)
    deltas = [delta for data in whole_events(body) if (delta := reader.read(data)) is not None]
    return joined([*deltas, reader.finish()])
