"""Decision models: typed questions about a state, answered with probabilities. Requires langchain-core 1.8."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar, Final, Unpack, overload

from langchain_core.messages import BaseMessage
from langchain_core.messages.ai import UsageMetadata
from pydantic import ValidationError, field_validator

from langchain_workers_ai._connection import Connection
from langchain_workers_ai._translation.from_wire import PROVIDER
from langchain_workers_ai._translation.to_wire import to_part, to_wire
from langchain_workers_ai.errors import framework_errors, is_retryable
from workers_ai.errors import APIResponseValidationError, BadRequestError
from workers_ai.integration import (
    adrive,
    check_model,
    drive,
    image_data_url,
    read_usage,
    run_request,
    shortened,
    unwrap,
)

try:
    from langchain_core.decisions import BaseDecisionModel, ClassifierRequest, ClassifierResponse
except ImportError as exc:  # pragma: no cover - depends on what is installed
    raise ImportError("WorkersAIDecisions requires langchain-core 1.8 or newer (langchain_core.decisions)") from exc

if TYPE_CHECKING:
    from collections.abc import Callable

    from langchain_core.decisions import Question, State
    from langchain_core.runnables import Runnable

    from langchain_workers_ai._types import Data, Fields, RetryOptions
    from workers_ai.integration import ConnectionConstructor, Flow, Reply, Request

__all__ = ["WorkersAIDecisions"]

_FIELDS: Final = {
    "image": ("images", 4, 1 << 62, 1 << 62),
    "audio": ("audio", 4, 8 << 20, 32 << 20),
    "video": ("videos", 2, 16 << 20, 16 << 20),
}
"""Media by kind: body field, maximum count, maximum bytes of each and in total. The limit for images is not
documented. Source: https://developers.cloudflare.com/workers-ai/models/clef-omni/."""
_AUDIO_FORMATS: Final = {"wav": "audio/wav", "mp3": "audio/mpeg"}
_LINK: Final = re.compile(r"[a-z][a-z0-9+.-]*:", re.IGNORECASE)
_QUESTION_TYPES: Final = ("noul", "choice", "score")


class WorkersAIDecisions(Connection, BaseDecisionModel):
    """Decision models (Clef) of Cloudflare Workers AI, with LangChain's interface.

    ::

        decisions = WorkersAIDecisions()
        decisions.invoke({"state": "Checkout is down!", "questions": {"urgent": Noul(instructions="Is this urgent?")}})

    The state is sent as JSON, and messages in it as ``{"role", "content"}``. Images in the state are sent in a separate
    field, at most four, and replaced by ``"[image 1]"``. ``clef-omni`` also accepts four audio clips (8 MiB and 300 s
    each) and two videos (16 MiB together, 60 s each). Clef answers ``Noul``, ``Choice`` and ``Score``; ``Box`` raises.
    Source: https://developers.cloudflare.com/workers-ai/models/clef/.

    Raises:
        ConfigurationError: A setting is missing or malformed, or a keyword is unknown.
    """

    if TYPE_CHECKING:  # the second overload accepts the framework's own fields

        @overload
        def __init__(self, model: str = ..., **keywords: Unpack[ConnectionConstructor]) -> None: ...
        @overload
        def __init__(self, model: str = ..., **keywords: object) -> None: ...
        def __init__(self, *args: object, **keywords: object) -> None: ...

    _keyword_aliases: ClassVar[dict[str, str]] = {**Connection._keyword_aliases, "model_name": "model"}

    model: str = "@cf/cloudflare/clef"
    """Model id: ``@cf/cloudflare/clef``, ``clef-flash`` or ``clef-omni`` (alias ``model_name``)."""

    @field_validator("model")
    @classmethod
    def _check_model(cls, model: str) -> str:
        return check_model(model)

    @property
    def _provider(self) -> str:
        return PROVIDER

    def with_retry(
        self,
        *,
        retry_if_exception_type: tuple[type[BaseException], ...] | Callable[[BaseException], bool] = is_retryable,
        **options: Unpack[RetryOptions],
    ) -> Runnable[ClassifierRequest, ClassifierResponse]:
        """Retry failed calls. See :meth:`langchain_core.runnables.Runnable.with_retry`.

        Args:
            retry_if_exception_type: Errors to retry. Default: errors for which
                :func:`~langchain_workers_ai.is_retryable` returns True.
            **options: ``wait_exponential_jitter``, ``exponential_jitter_params``, ``stop_after_attempt`` (3).
        """
        return super().with_retry(retry_if_exception_type=retry_if_exception_type, **options)

    def _exchange(self, state: State, questions: dict[str, Question]) -> Flow[Reply]:
        calls = self.client._connection.calls
        reject_if_busy = calls.settings.on_busy != "wait"
        return calls.exchange(_decision_request(self.model, state, questions, reject_if_busy=reject_if_busy))

    def _classify(self, state: State, questions: dict[str, Question]) -> ClassifierResponse:
        with framework_errors:
            reply = drive(self._exchange(state, questions), self.client._connection.transport)
            return self.client._connection.calls.read(_read_decision, reply, self.model, questions)

    async def _aclassify(self, state: State, questions: dict[str, Question]) -> ClassifierResponse:
        with framework_errors:
            reply = await adrive(self._exchange(state, questions), self.async_client._connection.transport)
            return self.async_client._connection.calls.read(_read_decision, reply, self.model, questions)


def _decision_request(
    model: str, state: State, questions: Mapping[str, Question], *, reject_if_busy: bool = False
) -> Request:
    """Return the request for these questions.

    Raises:
        BadRequestError: The model does not support a question or a part of the state.
    """
    plain_questions: Fields = {}
    for name, question in questions.items():
        if getattr(question, "type", None) not in _QUESTION_TYPES:
            kind = type(question).__name__
            raise BadRequestError(f"question {name!r} is a {kind}: use Noul, Choice or Score", model=model)
        plain_questions[name] = question.model_dump(mode="json", exclude_none=question.type == "noul")
    media = _Media(model)
    body: Fields = {"model": model.rpartition("/")[2], "state": media.plain(state)}
    body["questions"] = media.plain(plain_questions)
    body |= media.fields()
    if reject_if_busy:
        body["options"] = {"rejectIfBusy": True}
    return run_request(model, body, task="chat")


class _Media:
    """Images, audio and video of a state, which are replaced by names such as ``"[image 1]"``."""

    def __init__(self, model: str) -> None:
        self._model = model
        self._found: dict[str, list[str]] = {kind: [] for kind in _FIELDS}

    def plain(self, value: object) -> Data:
        """Return a state as plain JSON: messages as role and content, media as names.

        Raises:
            BadRequestError: The model does not support a block.
        """
        if isinstance(value, BaseMessage):
            return [self.plain(message) for message in to_wire([value])]
        if isinstance(value, Mapping):
            if kind := _kind_of_media(value):
                return self._named(kind, value)
            return {str(key): self.plain(item) for key, item in value.items()}
        if isinstance(value, (list, tuple)):
            return [self.plain(item) for item in value]
        return value

    def _named(self, kind: str, block: Mapping[str, object]) -> str:
        if kind not in _FIELDS or (kind != "image" and not self._model.endswith("/clef-omni")):
            raise self._error(
                f"the state has a block of type {kind!r}: use text and images, or clef-omni, which also accepts audio "
                "and video"
            )
        url = _data_url(kind, block)
        if url is None:
            raise self._error(
                f"the state has a block of type {kind!r} that is a link or has no media type: pass its bytes as base64 "
                "or as a data: URL"
            )
        found = self._found[kind]
        found.append(url)
        return f"[{kind} {len(found)}]"

    def fields(self) -> dict[str, list[str]]:
        """Return the fields of the body with the media.

        Raises:
            BadRequestError: The state has too many media, or they are too large.
        """
        for kind, (field, most, size, together) in _FIELDS.items():
            found = self._found[kind]
            sizes = [(len(url) - url.index(",") - 1) * 3 // 4 for url in found]
            if len(found) > most:
                raise self._error(f"the state has {len(found)} {field}: pass at most {most}")
            if max(sizes, default=0) > size or sum(sizes) > together:
                raise self._error(
                    f"{field} of the state are too large: pass at most {size >> 20} MiB each and {together >> 20} MiB "
                    "in total"
                )
        return {_FIELDS[kind][0]: found for kind, found in self._found.items() if found}

    def _error(self, message: str) -> BadRequestError:
        return BadRequestError(message, model=self._model)


def _kind_of_media(block: Mapping[str, Data]) -> str | None:
    """Return "image", "audio", "video" or another type of file; None for plain data."""
    kind = block.get("type")
    if kind in ("image_url", "input_image"):
        return "image"
    if kind == "input_audio":
        return "audio"
    if kind in ("file", "media"):
        media_type = str(block.get("mime_type") or "").partition("/")[0].lower()
        return media_type if media_type in _FIELDS else "file"
    return kind if isinstance(kind, str) and kind in _FIELDS else None


def _data_url(kind: str, block: Mapping[str, object]) -> str | None:
    """Return the content of a block as a data: URL; None for a link or without a media type."""
    if kind == "image":
        part = to_part(block)
        image = part.get("image_url") if isinstance(part, Mapping) else None
        return image_data_url(str((image.get("url") if isinstance(image, dict) else image) or ""))
    given = block.get("input_audio") if block.get("type") == "input_audio" else block
    body: Mapping[str, Data] = given if isinstance(given, Mapping) else {}
    data = body.get("base64") or body.get("data") or body.get("url") or ""
    if isinstance(data, bytes):
        data = (data if data.isascii() else base64.b64encode(data)).decode()
    media_type = body.get("mime_type") or _AUDIO_FORMATS.get(str(body.get("format")))
    if not isinstance(data, str):
        return None
    if data and not _LINK.match(data) and media_type:
        data = f"data:{media_type};base64,{data}"
    return data if data.lower().startswith(f"data:{kind}/") else None


def _read_decision(reply: Reply, model: str, questions: Mapping[str, Question]) -> ClassifierResponse:
    """Return the answers of a reply.

    Raises:
        APIResponseValidationError: An answer is missing, or its type differs from its question's.
    """
    result = unwrap(reply.data)
    body: Fields = result if isinstance(result, dict) else {}
    found = body.get("answers")
    answers: Fields = found if isinstance(found, dict) else {}
    wrong = [name for name, question in questions.items() if _kind(answers.get(name)) != question.type]
    try:
        if wrong:
            raise ValueError(f"the answer to {', '.join(wrong)} is missing or of another type than the question")
        return ClassifierResponse(
            model=model,
            answers=answers,
            usage=_usage(body),
            request_id=reply.headers.get("cf-ai-req-id") or reply.headers.get("cf-ray"),
        )
    except (ValidationError, ValueError) as exc:
        raise APIResponseValidationError(
            f"the reply is not a valid decision: {exc}", model=model, body=shortened(json.dumps(result, default=str)),
            status_code=200,
        ) from exc  # fmt: skip


def _usage(body: Fields) -> UsageMetadata | None:
    """Return the tokens of a decision; None if the reply has no usage."""
    usage = read_usage(body.get("usage"))
    if usage is None:
        return None
    return UsageMetadata(
        input_tokens=usage.input_tokens, output_tokens=usage.output_tokens, total_tokens=usage.total_tokens
    )


def _kind(answer: Data) -> Data:
    return answer.get("type") if isinstance(answer, dict) else None
