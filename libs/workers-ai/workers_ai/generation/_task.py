"""The task of the engine that generates answers."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, Literal, cast

from workers_ai._calls.chat import chat, plan_call
from workers_ai._wire.batch import MAX_SUBMISSION_BYTES, json_bytes
from workers_ai._wire.chat.reply import read_chat
from workers_ai._wire.chat.request import ChatForm, ChatPlan, chat_form
from workers_ai._wire.json_writing import compact_json
from workers_ai._wire.params import RUN_ONLY_PARAMS
from workers_ai._wire.quirks import RESPONSES_IN_QUEUE
from workers_ai._wire.usage import sum_usage
from workers_ai.catalogue import lookup
from workers_ai.errors import APIResponseValidationError, BadRequestError, BatchItemError, ConfigurationError
from workers_ai.generation._inputs import ChatInput, Renderer, canonical, read_input
from workers_ai.generation._report import misfit
from workers_ai.ledger._progress import neurons_of
from workers_ai.ledger._records import AnswerEntry, Document, Measured
from workers_ai.ledger._task import Outcome, Prepared, Rewrite
from workers_ai.types import BatchItem, BatchStatus, ChatReply, Usage

if TYPE_CHECKING:
    from collections.abc import Sequence

    from workers_ai._connection import Connection
    from workers_ai._flow.steps import Flow
    from workers_ai._wire.params import ChatKeywords
    from workers_ai.generation._output import OutputFormat
    from workers_ai.ledger._records import Stored
    from workers_ai.types import JSON, Api

__all__ = ["GenerateTask", "estimated_input_tokens"]

_OVER_WINDOW: Final = 1.3
"""An input is sent if its estimate exceeds the window by no more than this factor: the estimate is rough."""

_IMAGE_TOKENS: Final = 1_600
_MESSAGE_TOKENS: Final = 16
_PLANNED: Final = 4_000
"""Maximum number of plans to keep: more than the inputs that wait to be sent."""

_REFERENCE_DIGITS: Final = 16

_ASK_AGAIN: Final = (
    "Your answer does not fit: {why}. Answer again, with JSON only, and make sure that it fits the schema."
)
_ASK_SHORTER: Final = "Your answer was too long and was truncated. Answer again, complete and as short as possible."


class GenerateTask:
    """Generate one answer for each request.

    Args:
        model: Model id.
        renderer: Renderer of items of the source.
        output: The form that answers must have.
        params: Chat parameters of all requests.
        extra_body: Fields added to the body of all requests.
        repair: Number of retries of an answer that does not match the schema.
        mode: ``"queue"`` or ``"direct"``.
        connection: Connection for direct requests; None to estimate only.
    """

    noun = "inputs"
    verb = "generating"
    per_request = 1
    request_tokens: int | None = None
    reads_inputs = True

    def __init__(
        self,
        model: str,
        renderer: Renderer,
        output: OutputFormat,
        params: Mapping[str, JSON],
        extra_body: Mapping[str, JSON] | None,
        repair: int,
        mode: Literal["queue", "direct"],
        connection: Connection | None,
    ) -> None:
        self.model = model
        self._renderer = renderer
        self._output = output
        self._extra_body = extra_body
        self._repair = repair
        self._mode = mode
        self._connection = connection
        card = lookup(model)
        self._window = card.context_window
        self._default_max = card.default_max_tokens or card.max_output_tokens
        self._api: Api | None = None if mode == "direct" else "responses" if RESPONSES_IN_QUEUE.of(card) else "run"
        # gpt-oss accepts no response_format in the queue
        # (https://developers.cloudflare.com/workers-ai/models/gpt-oss-120b/, "Responses_Async").
        in_request = bool(card.json_schema or card.guided_json) and self._api != "responses"
        self._params = dict(params)
        self._form: tuple[object, ChatForm] | None = None  # form of the last input, with its parameters and fields
        self._planned: dict[str, ChatPlan] = {}  # between measuring and sending
        self._instruction = None
        if not output.is_text:
            if in_request:
                self._params["response_format"] = output.response_format
            else:
                self._instruction = output.instruction

    def begin(self, dimensions: int | None) -> None:
        """Do nothing: answers do not depend on earlier ones."""

    def document(self, item: object) -> Document:
        """Return an item of the source as the ledger stores it."""
        return self._renderer.document(item)

    def _messages(self, chat: ChatInput) -> Sequence[Mapping[str, JSON]]:
        """Return the messages of a request."""
        return chat.messages if self._instruction is None else _with_system(chat.messages, self._instruction)

    def _plan(self, chat: ChatInput) -> ChatPlan:
        """Plan a request of the queue.

        Raises:
            BadRequestError: A message cannot be sent to this model.
            ConfigurationError: A parameter is invalid.
        """
        found = self._form
        given = (chat.params, chat.extra_body)
        if found is None or found[0] != given:
            self._form = found = given, self._chat_form(chat)
        return found[1].plan(self._messages(chat))

    def _chat_form(self, chat: ChatInput) -> ChatForm:
        params = self._parameters(chat)
        if self._api == "responses" and (misplaced := sorted(RUN_ONLY_PARAMS & params.keys())):
            raise ConfigurationError(
                f"{self.model} does not accept {', '.join(misplaced)} in the queue: omit it, or send direct requests"
            )
        return chat_form(self.model, params, api=self._api, extra_body=self._fields(chat))

    def _parameters(self, chat: ChatInput) -> dict[str, JSON]:
        """Return the parameters of a request."""
        return {**self._params, **chat.params}

    def _fields(self, chat: ChatInput) -> dict[str, JSON]:
        """Return the fields to add to the body of a request."""
        return {**(self._extra_body or {}), **chat.extra_body}

    def check(self, chat: ChatInput) -> None:
        """Check a request that is put into a submission with others.

        Raises:
            BadRequestError: A message cannot be sent.
            ConfigurationError: A parameter is invalid.
        """
        try:
            self.document((0, chat))
            self._plan(chat)
        except RecursionError:
            raise BadRequestError(
                "messages are nested too deep, or contain themselves: pass flatter messages", model=self.model
            ) from None

    def measure(self, text: str) -> Measured:
        """Return size and price of an input, and why the service would reject it."""
        chat = read_input(text)
        if _is_empty(chat.messages):
            is_null = self._renderer.prompt is not None and chat.messages[-1].get("content") is None
            return Measured(0, 0, why="a value for the prompt is null" if is_null else "the input is empty")
        try:
            plan = self._plan(chat)
        except (BadRequestError, RecursionError) as exc:
            return Measured(0, 0, why=str(getattr(exc, "message", "the input is nested too deep")))
        if self._mode == "queue":
            if len(self._planned) >= _PLANNED:
                self._planned.clear()
            self._planned[text] = plan
        size = json_bytes(plan.request.body)
        expected, at_most = estimated_input_tokens(chat.messages, size)
        why = None
        if size > MAX_SUBMISSION_BYTES:
            why = f"the input has {size:,} bytes; the limit is {MAX_SUBMISSION_BYTES:,} bytes: split it"
        elif self._window and expected > _OVER_WINDOW * self._window:
            window = f"the context window of {self.model} is {self._window:,}"
            why = f"the input has about {expected:,} tokens; {window}: shorten it"
        made = _max_answer_tokens(plan.request.body or {})
        price = neurons_of(self.model, at_most, made or self._default_max or 0)
        return Measured(size, expected, price or 0.0, why, made)

    def prepare(self, texts: Sequence[str], keys: Sequence[bytes]) -> Prepared:
        """Return the request of one input, with its hash as reference."""
        plan = self._planned.pop(texts[0], None) or self._plan(read_input(texts[0]))
        request, context, _ = plan
        body = {**(request.body or {}), "external_reference": _reference(keys[0])}
        body.pop("model", None)
        return Prepared(body, context)

    def send(self, texts: Sequence[str]) -> Flow[BatchStatus]:
        """Send a direct request."""
        assert self._connection is not None
        chat_input = read_input(texts[0])
        calls = self._connection.calls
        options = cast("ChatKeywords", {**self._parameters(chat_input), "extra_body": self._fields(chat_input)})
        plan = plan_call(calls.settings, self.model, self._messages(chat_input), options, stream=False)
        reply = yield from chat(calls, plan)
        return BatchStatus("done", [BatchItem(0, None, True, reply.raw, None)], reply.usage)

    def match(self, items: Sequence[BatchItem], keys: Sequence[bytes] | None) -> Sequence[BatchItem]:
        """Return the items in the order of the requests.

        If every item repeats its reference, items are matched by reference. An item with the reference of another input
        becomes a failed item, because its answer must not be stored under the wrong input.
        """
        if keys is None:
            return items
        expected = [_reference(key) for key in keys]
        by_reference = {item.external_reference: item for item in items}
        if by_reference.keys() == set(expected) and len(by_reference) == len(items):
            return [by_reference[reference] for reference in expected]
        return [
            item if item.external_reference in (None, reference) else _mismatched(item, self.model)
            for item, reference in zip(items, expected, strict=True)
        ]

    def read(
        self, group: Sequence[int], item: BatchItem, inputs: Sequence[Stored], context: Any, request_id: str | None
    ) -> Outcome:
        """Return the answer of an item, or the input to send again."""
        try:
            reply = read_chat(item.result, context)
        except (APIResponseValidationError, RecursionError) as exc:
            return Outcome(error=BatchItemError(str(exc), index=item.index, model=self.model))
        usage = reply.usage if reply.usage and reply.usage.total_tokens else None
        why = self._why_misfit(reply)
        if why and not reply.tool_calls and inputs[0].repairs < self._repair:
            again = self._repaired(inputs[0].text, reply, why)
            measured = self.measure(again)
            if measured.why is None:
                return Outcome(again=Rewrite(group[0], again, measured), usage=usage)
        row = AnswerEntry(
            id=group[0],
            answer=canonical_message(reply),
            finish=reply.finish_reason,
            input_tokens=usage.input_tokens if usage else None,
            output_tokens=usage.output_tokens if usage else None,
            neurons=usage.neurons if usage else None,
            estimated=0,
            request_id=request_id,
            at=time.time(),
        )
        return Outcome([row], misfit=why, usage=usage)

    def _why_misfit(self, reply: ChatReply) -> str:
        try:
            self._output.parse(reply.text)
        except ValueError as exc:
            return misfit(exc, reply.finish_reason)
        return ""

    def _repaired(self, text: str, reply: ChatReply, why: str) -> str:
        """Return an input that requests a corrected answer."""
        chat = read_input(text)
        if reply.finish_reason == "length":
            added: list[Mapping[str, JSON]] = [{"role": "user", "content": _ASK_SHORTER}]
        else:
            request = _ASK_AGAIN.format(why=why)
            added = [
                {"role": "assistant", "content": reply.text or "(no answer)"},
                {"role": "user", "content": request},
            ]
        return canonical(replace(chat, messages=[*chat.messages, *added]))

    def share(self, outcomes: Sequence[Outcome], usage: Usage | None, tokens: int) -> Usage:
        """Return the usage of a job. Set the usage of items that report none to a share by the length of the answer."""
        own = [outcome.usage for outcome in outcomes if outcome.usage is not None]
        total = sum_usage(own) or Usage()
        if usage is not None and usage.total_tokens >= total.total_tokens:
            total = usage._replace(neurons=total.neurons if usage.neurons is None else usage.neurons)
        silent = [outcome for outcome in outcomes if outcome.usage is None and outcome.rows]
        if silent:
            spent = sum(part.input_tokens for part in own), sum(part.output_tokens for part in own)
            lengths = [len(outcome.rows[0][1]) for outcome in silent]
            left_in = max(0, total.input_tokens - spent[0]) or tokens * len(silent) // max(1, len(outcomes))
            left_out = max(0, total.output_tokens - spent[1]) or sum(lengths) // 4
            for outcome, length in zip(silent, lengths, strict=True):
                made = left_out * length // max(1, sum(lengths))
                row = outcome.rows[0]
                assert isinstance(row, AnswerEntry)
                outcome.rows[0] = row._replace(
                    input_tokens=left_in // len(silent), output_tokens=made, neurons=None, estimated=1
                )
            if not total.total_tokens:
                total = Usage(left_in, left_out, left_in + left_out, neurons=total.neurons)
        return total

    def neurons(self, usage: Usage) -> float | None:
        """Return the neurons of a job: as reported, else by list price."""
        if usage.neurons is not None:
            return usage.neurons
        return neurons_of(self.model, usage.input_tokens, usage.output_tokens)


def estimated_input_tokens(messages: Sequence[Mapping[str, JSON]], size: int) -> tuple[int, int]:
    """Estimate the input tokens of a request of ``size`` bytes: the expected number and the maximum."""
    images = image_bytes = 0
    for message in messages:
        content = message.get("content")
        for part in content if isinstance(content, list) else ():
            if isinstance(part, Mapping) and part.get("type") == "image_url":
                images += 1
                image_bytes += json_bytes(part.get("image_url"))
    text = max(0, size - image_bytes)
    extra = images * _IMAGE_TOKENS
    return max(1, text // 4) + extra, text // 2 + _MESSAGE_TOKENS * len(messages) + extra


def _max_answer_tokens(body: Mapping[str, JSON]) -> int:
    """Return the maximum tokens of the answer in a request body; 0 if not set."""
    bounds = [body.get(name) for name in ("max_tokens", "max_output_tokens", "max_completion_tokens")]
    return max((bound for bound in bounds if isinstance(bound, int)), default=0)


def canonical_message(reply: ChatReply) -> str:
    """Return the assistant message of a reply as JSON text."""
    message: dict[str, JSON] = {"role": "assistant", "content": reply.text}
    if reply.reasoning:
        message["reasoning_content"] = reply.reasoning
    if reply.tool_calls:
        message["tool_calls"] = [
            {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
            for call in reply.tool_calls
        ]
    if reply.refusal:
        message["refusal"] = reply.refusal
    if reply.logprobs:
        message["logprobs"] = reply.logprobs
    return compact_json(message).decode(errors="surrogatepass")


def _reference(key: bytes) -> str:
    return key.hex()[:_REFERENCE_DIGITS]


def _mismatched(item: BatchItem, model: str) -> BatchItem:
    error = BatchItemError(
        f"the queue returned the answer to another input ({item.external_reference})", index=item.index, model=model
    )
    return BatchItem(item.index, item.external_reference, False, None, error)


def _is_empty(messages: Sequence[Mapping[str, JSON]]) -> bool:
    """Return whether every message, apart from system messages, is empty."""
    for message in messages:
        content = message.get("content")
        if message.get("role") in ("system", "developer"):
            continue
        if message.get("tool_calls") or not _is_blank(content):
            return False
    return True


def _is_blank(content: JSON) -> bool:
    if isinstance(content, list):
        return all(isinstance(part, Mapping) and part.get("type") == "text" and _is_blank(part.get("text"))
                   for part in content)  # fmt: skip
    return content is None or (isinstance(content, str) and not content.strip())


def _with_system(messages: Sequence[Mapping[str, JSON]], text: str) -> list[Mapping[str, JSON]]:
    """Return the messages with a text added to the system message."""
    first = messages[0] if messages else {}
    if first.get("role") == "system" and isinstance(first.get("content"), str):
        return [{**first, "content": f"{first['content']}\n\n{text}"}, *messages[1:]]
    return [{"role": "system", "content": text}, *messages]
