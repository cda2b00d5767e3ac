"""Answer a corpus with a chain, through the asynchronous queue."""

from __future__ import annotations

from collections.abc import AsyncIterable, Mapping, Sized
from dataclasses import KW_ONLY, dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, cast

from langchain_core.output_parsers import BaseOutputParser
from langchain_core.prompts import BasePromptTemplate
from langchain_core.runnables import Runnable, RunnableBinding, RunnableSequence

from langchain_workers_ai._chat.queued import limited, queue_params
from langchain_workers_ai._translation.from_wire import to_result
from langchain_workers_ai._translation.to_wire import to_wire
from langchain_workers_ai.chat_models import ChatWorkersAI
from langchain_workers_ai.errors import framework_errors
from workers_ai.errors import ConfigurationError
from workers_ai.generation import ChatInput, Failure, GenerateOptions, GenerateReport, agenerate, estimate, generate
from workers_ai.integration import argument_error
from workers_ai.types import ChatReply, ToolCall

if TYPE_CHECKING:
    import os
    from collections.abc import AsyncIterator, Iterable, Iterator, Sequence

    from langchain_core.language_models import LanguageModelInput
    from langchain_core.messages import BaseMessage
    from langchain_core.runnables import RunnableConfig

    from langchain_workers_ai._types import Data, Fields
    from workers_ai.generation import Answer, GenerateEstimate

__all__ = ["GenerationReport", "WorkersAIBatchGenerator"]

_Pair: TypeAlias = tuple[str | int, ChatInput]
_TRUNCATED = ("length", "content_filter", "error")


@dataclass(frozen=True)
class GenerationReport(GenerateReport):
    """Report of one generation with a chain.

    Attributes:
        parsers: The output parsers of the chain.
    """

    parsers: tuple[Runnable[Any, Any], ...] = field(default=(), repr=False, compare=False)

    def answers(self) -> Iterator[Answer]:
        """Yield an answer for every input, in the order of the inputs, in bounded memory.

        ``data`` is the output of the chain: the parsed value, or the message if the chain has no parser. An answer that
        a parser rejects has an ``error``, and its text.
        """
        for position, answer in enumerate(super().answers()):
            if answer.error is not None or answer.message is None:
                yield answer
                continue
            value: Data = answer_message(answer, self.model)
            try:
                for parser in self.parsers:
                    value = parser.invoke(value)
            except Exception as exc:  # noqa: BLE001 - parsers of users may raise any error
                yield replace(answer, data=None, error=Failure(answer.id, None, str(exc), position))
            else:
                yield replace(answer, data=value)

    def to_dict(self) -> Fields:
        """Return the report as JSON values."""
        return {name: value for name, value in super().to_dict().items() if name != "parsers"}


def answer_message(answer: Answer, model: str) -> BaseMessage:
    """Return the LangChain message of an answer."""
    message = answer.message or {}
    finish = answer.finish_reason or "stop"
    truncation = finish if finish in _TRUNCATED else ""
    calls: list[ToolCall] = []
    listed: Sequence[Fields] = message.get("tool_calls") or ()
    for call in listed:
        name, arguments = call["function"]["name"], call["function"]["arguments"]
        calls.append(ToolCall(call["id"], name, arguments, argument_error(arguments, truncation)))
    refusal = message.get("refusal")
    reply = ChatReply(
        text=answer.text or "",
        reasoning=str(message.get("reasoning_content") or ""),
        tool_calls=tuple(calls),
        finish_reason=finish,
        usage=answer.usage,
        refusal=None if refusal is None else str(refusal),
        logprobs=message.get("logprobs"),
    )
    return to_result(reply, model).generations[0].message


@dataclass
class WorkersAIBatchGenerator:
    """Answer any number of inputs with a chain, through the asynchronous queue.

    ::

        chain = prompt | ChatWorkersAI(model="@cf/moonshotai/kimi-k2.6", max_tokens=2000) | parser
        report = WorkersAIBatchGenerator(chain, ledger="answers.ledger").generate(rows)
        for answer in report.answers():
            print(answer.id, answer.data, answer.error)

    The prompts are rendered on this machine. Every answer is recorded in the ledger, and the parsers run when
    ``answers()`` reads them. If the process is killed, the same call continues from the ledger. Equal inputs share one
    answer. For objects, prefer ``model.with_structured_output(schema, method="json_schema")``: tools in the queue are
    undocumented. A ``rate_limiter`` of the model counts the requests to the queue. See
    :func:`workers_ai.generation.generate`.

    Args:
        runnable: A ``ChatWorkersAI``, or a chain of prompts, one ``ChatWorkersAI`` (also bound, such as by
            ``bind_tools`` or ``with_structured_output``), and output parsers.
        ledger: Path of the ledger. A missing file is created.
        mode: ``"queue"``, or ``"direct"`` for synchronous requests.
        requests_per_job: Inputs per submission. None for 200, or for 1,000 above a million inputs.
        limit_cost_usd: Maximum cost of one call in USD, by list price. Requires ``max_tokens`` on the model.
        deadline_s: Timeout in seconds; None for no limit.
        raise_on_failure: Raise if an input failed.
        progress: Show a progress bar.

    Raises:
        ConfigurationError: The chain has an unsupported step.
    """

    runnable: Runnable[Any, Any]
    _: KW_ONLY
    ledger: str | os.PathLike[str]
    mode: Literal["queue", "direct"] = "queue"
    requests_per_job: int | None = None
    limit_cost_usd: float | None = None
    deadline_s: float | None = None
    raise_on_failure: bool = False
    progress: bool = True

    def __post_init__(self) -> None:
        with framework_errors:
            steps = _steps(self.runnable)
            place = next((i for i, step in enumerate(steps) if _model(step) is not None), None)
            if place is None:
                names = ", ".join(type(step).__name__ for step in steps)
                raise ConfigurationError(
                    f"the chain has no ChatWorkersAI among its steps ({names}): use prompt | model | parser, without "
                    "with_retry and with_fallbacks (the generator retries failed inputs)"
                )
            self._prompts = steps[:place]
            self._parsers = steps[place + 1 :]
            _check_steps(self._prompts, BasePromptTemplate, "before the model: use prompts only")
            _check_steps(self._parsers, BaseOutputParser, "after the model: use output parsers only")
            model, given = _model(steps[place]) or (None, {})
            assert model is not None
            self._llm = model
            stop = given.pop("stop", None)
            given.pop("ls_structured_output_format", None)
            self._model, _, self._options = model._call([], stop, given, None)

    def generate(
        self, inputs: Iterable[object], ids: Iterable[str | int] | None = None, config: RunnableConfig | None = None
    ) -> GenerationReport:
        """Answer inputs and return the report.

        Args:
            inputs: Inputs of the chain.
            ids: One id for each input; None for the indices of the inputs.
            config: Configuration of prompts and parsers, such as callbacks.

        Raises:
            ConfigurationError: An option is invalid, an input does not fit the prompt, the model has no queue, or the
                ledger belongs to another model or other settings.
            LedgerError: The ledger cannot be used.
            BatchTimeoutError: ``deadline_s`` has passed. The same call continues.
            BatchItemError: An input failed, with ``raise_on_failure``.
            WorkersAIError: The run cannot continue, for example because the quota is exhausted. The same call
                continues later.
        """
        with framework_errors:
            report = generate(
                self._source(inputs, ids, config),
                ledger=self.ledger,
                model=self._model,
                client=limited(self._llm.client, self._llm.rate_limiter, self._options),
                **self._arguments(inputs),
            )
            return self._report(report, config)

    async def agenerate(
        self,
        inputs: Iterable[object] | AsyncIterable[object],
        ids: Iterable[str | int] | None = None,
        config: RunnableConfig | None = None,
    ) -> GenerationReport:
        """Answer inputs without blocking the event loop. Accepts asynchronous iterators, too. See :meth:`generate`."""
        with framework_errors:
            if isinstance(inputs, AsyncIterable):
                source: AsyncIterator[_Pair] | Iterator[_Pair] = self._asource(inputs, ids, config)
            else:
                source = self._source(inputs, ids, config)
            report = await agenerate(
                source,
                ledger=self.ledger,
                model=self._model,
                client=limited(self._llm.async_client, self._llm.rate_limiter, self._options),
                **self._arguments(inputs),
            )
            return self._report(report, config)

    def estimate(self, inputs: Iterable[object], ids: Iterable[str | int] | None = None) -> GenerateEstimate:
        """Return tokens and cost of a call of :meth:`generate`, without sending anything."""
        with framework_errors:
            arguments = self._arguments(inputs)
            return estimate(
                self._source(inputs, ids, None),
                ledger=self.ledger,
                model=self._model,
                max_tokens=arguments.get("max_tokens"),
                extra_body=arguments.get("extra_body"),
                mode=self.mode,
                requests_per_job=self.requests_per_job,
            )

    def _arguments(self, inputs: object) -> GenerateOptions:
        """Return the options of the core's generation."""
        return {
            "max_tokens": self._options.get("max_tokens"),
            "extra_body": self._options.get("extra_body") or None,
            "mode": self.mode,
            "requests_per_job": self.requests_per_job,
            "limit_cost_usd": self.limit_cost_usd,
            "deadline_s": self.deadline_s,
            "raise_on_failure": self.raise_on_failure,
            "progress": self.progress,
            "total": len(inputs) if isinstance(inputs, Sized) else None,
        }

    def _source(
        self, inputs: Iterable[object], ids: Iterable[str | int] | None, config: RunnableConfig | None
    ) -> Iterator[_Pair]:
        """Yield id and request of each input."""
        if isinstance(inputs, (str, bytes, Mapping)) or hasattr(inputs, "columns"):
            raise ConfigurationError(
                f"inputs must be an iterable of inputs of the chain, not a {type(inputs).__name__}: pass a list"
            )
        keys = _Ids(ids)
        for item in inputs:
            key = keys.take()
            yield key, self._request(key, item, config)
        keys.finish()

    async def _asource(
        self, inputs: AsyncIterable[object], ids: Iterable[str | int] | None, config: RunnableConfig | None
    ) -> AsyncIterator[_Pair]:
        """Yield id and request of each input of an asynchronous iterator."""
        keys = _Ids(ids)
        async for item in inputs:
            key = keys.take()
            yield key, self._request(key, item, config)
        keys.finish()

    def _request(self, key: str | int, item: object, config: RunnableConfig | None) -> ChatInput:
        """Return the request of an input.

        Raises:
            ConfigurationError: The input does not fit the prompt.
        """
        value: Data = item
        try:
            for prompt in self._prompts:
                value = prompt.invoke(value, config)
            messages = self._llm._convert_input(cast("LanguageModelInput", value)).to_messages()
        except (KeyError, TypeError, ValueError) as exc:
            raise ConfigurationError(f"input {key!r} does not fit the chain: {exc}") from exc
        params = {name: value for name, value in queue_params(self._options).items() if name != "max_tokens"}
        return ChatInput(to_wire(messages), params)

    def _report(self, report: GenerateReport, config: RunnableConfig | None) -> GenerationReport:
        facts = {item.name: getattr(report, item.name) for item in fields(GenerateReport)}
        return GenerationReport(**facts, parsers=tuple(parser.with_config(config) for parser in self._parsers))


class _Ids:
    """The ids of the inputs, in order.

    Args:
        given: The ids; None for indices.
    """

    def __init__(self, given: Iterable[str | int] | None) -> None:
        self._given = None if given is None else iter(given)
        self._count = 0

    def take(self) -> str | int:
        """Return the id of the next input.

        Raises:
            ConfigurationError: There are fewer ids than inputs.
        """
        self._count += 1
        if self._given is None:
            return self._count - 1
        for key in self._given:
            return key
        raise ConfigurationError(f"there are more inputs than ids ({self._count - 1:,}): pass one id for each input")

    def finish(self) -> None:
        """Check that all ids were used.

        Raises:
            ConfigurationError: There are more ids than inputs.
        """
        for _ in self._given or ():
            raise ConfigurationError(f"there are more ids than inputs ({self._count:,}): pass one id for each input")


def _steps(runnable: Runnable[Any, Any]) -> list[Runnable[Any, Any]]:
    """Return the steps of a chain."""
    while isinstance(runnable, RunnableBinding) and isinstance(runnable.bound, (RunnableSequence, RunnableBinding)):
        if _model(runnable) is not None:
            break
        runnable = runnable.bound
    return list(runnable.steps) if isinstance(runnable, RunnableSequence) else [runnable]


def _model(step: Data) -> tuple[ChatWorkersAI, Fields] | None:
    """Return the model of a step and its bound keywords; None for other steps."""
    given: Fields = {}
    while isinstance(step, RunnableBinding):
        given = {**step.kwargs, **given}
        step = step.bound
    return (step, given) if isinstance(step, ChatWorkersAI) else None


def _check_steps(steps: Sequence[object], kind: type, remedy: str) -> None:
    for step in steps:
        if not isinstance(step, kind):
            raise ConfigurationError(f"the chain has a {type(step).__name__} {remedy}")
