"""Reading a streamed chat reply, one server-sent event at a time."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from pydantic_core import from_json

from workers_ai.errors import APIResponseValidationError, StreamInterruptedError, WorkersAIError
from workers_ai.refusals import error_from_reply, read_refusal
from workers_ai.wire.jsontext import is_json, json_text, mended, parse_body
from workers_ai.wire.reply import content_text, finish_reason, first_choice, reasoning_text, unwrap
from workers_ai.wire.toolcalls import CallIds, ToolCallAssembler, recover_leaked_calls
from workers_ai.wire.types import JSON, ChatDelta, ChatReply, ReplyContext, ToolCallDelta
from workers_ai.wire.usage import UsageMeter

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

__all__ = ["ChatStreamReader", "deltas_of"]

_log = logging.getLogger("workers_ai")
_DONE: Final = b"[DONE]"


class ChatStreamReader:
    """Turns the data of events into :class:`ChatDelta` pieces, both families in one.

    ``read`` never stops early: text may follow a finish reason, and the end mark may come twice. ``finish`` gives the
    last piece, or says that the stream was cut.

    Args:
        context: What of the request is needed to read the reply.
        headers: Headers of the reply.
        scrub: Removes secrets from the text of an error.
    """

    __slots__ = (
        "_assembler", "_buffer", "_context", "_done", "_finish", "_half", "_headers",
        "_id", "_ids", "_meter", "_model", "_scrub", "_text",
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
        self._assembler = ToolCallAssembler(self._ids)
        self._meter = UsageMeter()
        self._text: list[str] = []
        # A forced call may come as text (see recover_leaked_calls), so that text is held back until the end.
        self._buffer: list[str] | None = [] if context.forced else None
        self._finish: str | None = None
        self._done = False
        self._half: str | None = None  # a string once an event has held half a letter
        self._id: str | None = None
        self._model: str | None = None

    @property
    def partial(self) -> str:
        """The text that has arrived."""
        return "".join(self._text)

    def read(self, data: bytes) -> ChatDelta | None:
        """Read the data of one event; None where it has nothing to hand on.

        Raises:
            WorkersAIError: The event is an error, of the class that its code means, with ``.partial``.
        """
        try:
            event = from_json(data)
        except ValueError:
            event = self._read_oddly(data)
        if not isinstance(event, dict):
            return None
        choices = event.get("choices")
        if "error" in event or "errors" in event or not choices:  # most events are asked no more than that
            self._raise_if_error(event)
        if (usage := event.get("usage")) and isinstance(usage, dict):
            self._meter.add(usage)
        if not choices:
            return self._read_native(event)
        choice = first_choice(event)
        return self._read_choice(event, choice) if choice else None

    def _read_oddly(self, data: bytes) -> JSON:
        """Read what is no strict JSON: an end mark, half a letter, the text that a binding throws, or nothing."""
        if data.strip() == _DONE:
            self._done = True
            return None
        try:
            event = parse_body(data, halves=True)
        except ValueError:
            if refusal := read_refusal(data.decode(errors="replace")):
                return {"error": refusal.message, "code": refusal.code}
            _log.warning("skipped an event that is not JSON (%d bytes)", len(data))
            return None
        self._half = self._half or ""
        return event

    def _whole_letters(self, text: str) -> str:
        """The text with halves of letters joined; one at the end waits for the next piece."""
        text = (self._half or "") + text
        self._half = text[-1] if "\ud800" <= text[-1:] <= "\udbff" else ""
        whole: str = mended(text[: len(text) - len(self._half)])
        return whole

    def _read_choice(self, event: Mapping[str, JSON], choice: Mapping[str, JSON]) -> ChatDelta | None:
        if choice.get("index") not in (None, 0, "0"):
            return None
        if reason := choice.get("finish_reason"):
            self._finish = reason
        if self._id is None:
            self._id, self._model = event.get("id"), event.get("model")
        delta = choice.get("delta") or choice.get("message")
        if not isinstance(delta, dict) or not delta:
            return self._piece(json_text(choice.get("text")), logprobs=choice.get("logprobs"))
        content = delta.get("content")
        return self._piece(
            content if type(content) is str else content_text(content),
            reasoning_text(delta),
            delta.get("tool_calls") or delta.get("function_call"),
            choice.get("logprobs"),
            delta.get("refusal"),
        )

    def _read_native(self, event: Mapping[str, JSON]) -> ChatDelta | None:
        if "response" not in event and "tool_calls" not in event:
            inner = unwrap(event)
            if inner is not event and isinstance(inner, dict):
                choice = first_choice(inner)
                return self._read_choice(inner, choice) if choice else self._read_native(inner)
        if isinstance(reason := event.get("finish_reason"), str):
            self._finish = reason
        return self._piece(json_text(event.get("response")), reasoning_text(event), event.get("tool_calls"))

    def _raise_if_error(self, event: Mapping[str, JSON]) -> None:
        refusal = read_refusal(event)
        if refusal is None:
            return
        error: WorkersAIError = error_from_reply(
            200, self._headers, "", model=self._context.model, body=event, scrub=self._scrub
        )
        if isinstance(error, APIResponseValidationError):
            error = self._interrupted(f"the service reported an error in the stream: {refusal.message}")
            error.code = refusal.code
        error.partial = self.partial
        raise error

    def _piece(
        self, text: str, reasoning: str = "", calls: JSON = None, logprobs: JSON = None, refusal: JSON = None
    ) -> ChatDelta | None:
        deltas = self._assembler.feed(calls) if calls else ()
        if self._half is not None:
            text, reasoning = self._whole_letters(text), mended(reasoning)
        if text:
            self._text.append(text)
            if self._buffer is not None:
                self._buffer.append(text)
                text = ""
        refused = refusal if isinstance(refusal, str) else ""
        if not (text or reasoning or deltas or logprobs or refused):
            return None
        return ChatDelta(text, reasoning, deltas, logprobs, refused)

    def _interrupted(self, message: str) -> StreamInterruptedError:
        error = StreamInterruptedError(self._scrub(message), model=self._context.model)
        error.partial = self.partial
        return error

    def finish(self) -> ChatDelta:
        """The last piece, after the last event.

        Raises:
            StreamInterruptedError: Neither an end mark nor a finish reason has come.
        """
        if not self._done and self._finish is None:
            raise self._interrupted("the stream ended with neither an end mark nor a finish reason")
        calls = self._assembler.finish()
        text = "".join(self._buffer or ()) + (mended(self._half) if self._half else "")
        if text and not self._assembler:
            leaked = recover_leaked_calls(text, self._context.forced, self._ids)
            calls = [ToolCallDelta(i, call.id, call.name, call.arguments) for i, call in enumerate(leaked)]
            text = "" if calls else text
        usage = self._meter.total(self._headers.get("cf-ai-neurons"))
        has_calls = bool(calls) or bool(self._assembler)
        return ChatDelta(
            text=text,
            tool_calls=calls,
            last=True,
            finish_reason=finish_reason(
                self._finish,
                calls=has_calls,
                broken=any(call.broken for call in calls),
                context=self._context,
                usage=usage,
            ),
            usage=usage,
            id=self._id,
            model=self._model,
            headers=self._headers,
        )


def deltas_of(reply: ChatReply) -> list[ChatDelta]:
    """A whole reply as a stream: the service answered a request to stream with ordinary JSON, or cannot stream this."""
    calls = [
        ToolCallDelta(i, call.id, call.name, call.arguments, "" if is_json(call.arguments) else call.arguments)
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
