"""Decision models: typed questions about a state, answered with probabilities. Needs langchain-core 1.8 or newer."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Final

from langchain_core.messages import BaseMessage
from langchain_core.messages.ai import UsageMetadata
from pydantic import ValidationError, field_validator

from langchain_workers_ai._connection import Connection
from langchain_workers_ai._from_wire import PROVIDER
from langchain_workers_ai._to_wire import to_part, to_wire
from langchain_workers_ai.errors import framework_errors, is_retryable
from workers_ai.config import check_model
from workers_ai.errors import APIResponseValidationError, BadRequestError
from workers_ai.flow import adrive, drive
from workers_ai.wire.chat import run_request
from workers_ai.wire.reply import shortened, unwrap
from workers_ai.wire.usage import read_usage

try:
    from langchain_core.decisions import BaseDecisionModel, ClassifierRequest, ClassifierResponse
except ImportError as exc:  # pragma: no cover - depends on what is installed
    raise ImportError("WorkersAIDecisions needs langchain-core 1.8 or newer (langchain_core.decisions)") from exc

if TYPE_CHECKING:
    from collections.abc import Callable

    from langchain_core.decisions import Question, State
    from langchain_core.runnables import Runnable

    from workers_ai.calls import Reply
    from workers_ai.flow import Flow
    from workers_ai.wire.types import Request

__all__ = ["WorkersAIDecisions"]

_MAX_IMAGES: Final = 4
_ANSWERED: Final = ("noul", "choice", "score")


class WorkersAIDecisions(Connection, BaseDecisionModel):
    """Cloudflare's Clef models behind LangChain's decisions interface.

    For example::

        decisions = WorkersAIDecisions()
        decisions.invoke({"state": "Checkout is down!", "questions": {"urgent": Noul(instructions="Is this urgent?")}})

    The state goes out as JSON: messages as ``{"role", "content"}``. Images anywhere in it are sent beside it, at most
    four, and leave ``"[image 1]"`` in their place. Clef answers ``Noul``, ``Choice`` and ``Score``; ``Box`` is refused.
    Source: https://developers.cloudflare.com/workers-ai/models/clef/.

    Raises:
        ConfigurationError: A setting is missing or malformed, or a keyword is not known.
    """

    keyword_aliases: ClassVar[dict[str, str]] = {**Connection.keyword_aliases, "model_name": "model"}

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
        **kwargs: Any,
    ) -> Runnable[ClassifierRequest, ClassifierResponse]:
        """Repeat failed calls as :meth:`langchain_core.runnables.Runnable.with_retry` does.

        Args:
            retry_if_exception_type: What to repeat; by default :func:`~langchain_workers_ai.is_retryable` says, not
                every exception is repeated.
            **kwargs: ``wait_exponential_jitter``, ``exponential_jitter_params``, ``stop_after_attempt`` (3).
        """
        return super().with_retry(retry_if_exception_type=retry_if_exception_type, **kwargs)

    def _exchange(self, state: State, questions: dict[str, Question]) -> Flow[Reply]:
        service = self.client.service
        reject_if_busy = service.settings.on_busy != "wait"
        return service.calls.exchange(decision_request(self.model, state, questions, reject_if_busy=reject_if_busy))

    def _classify(self, state: State, questions: dict[str, Question]) -> ClassifierResponse:
        with framework_errors:
            reply = drive(self._exchange(state, questions), self.client.service.transport)
            return self.client.service.calls.read(read_decision, reply, self.model, questions)

    async def _aclassify(self, state: State, questions: dict[str, Question]) -> ClassifierResponse:
        with framework_errors:
            reply = await adrive(self._exchange(state, questions), self.async_client.service.transport)
            return self.async_client.service.calls.read(read_decision, reply, self.model, questions)


def decision_request(
    model: str, state: State, questions: Mapping[str, Question], *, reject_if_busy: bool = False
) -> Request:
    """The request for these questions.

    Raises:
        BadRequestError: A question or a piece of the state is not taken by these models.
    """
    asked = {}
    for name, question in questions.items():
        if getattr(question, "type", None) not in _ANSWERED:
            kind = type(question).__name__
            raise BadRequestError(f"question {name!r} is a {kind}: Clef answers Noul, Choice and Score", model=model)
        asked[name] = question.model_dump(mode="json", exclude_none=question.type == "noul")
    images: list[str] = []
    body: dict[str, Any] = {"model": model.rpartition("/")[2], "state": _plain(state, images, model)}
    body["questions"] = _plain(asked, images, model)
    if len(images) > _MAX_IMAGES:
        raise BadRequestError(f"{len(images)} images, of which Clef models take {_MAX_IMAGES}", model=model)
    if images:
        body["images"] = images
    if reject_if_busy:
        body["options"] = {"rejectIfBusy": True}
    return run_request(model, body, task="chat")


def _plain(value: Any, images: list[str], model: str) -> Any:
    """Plain JSON of a state: messages as role and content, media blocks taken out into ``images``."""
    if isinstance(value, BaseMessage):
        return [_plain(message, images, model) for message in to_wire([value])]
    if isinstance(value, Mapping):
        kind = value.get("type")
        if kind in ("image", "image_url"):
            return _embedded(value, images, model)
        if kind in ("audio", "video", "file"):
            raise BadRequestError(f"a block of type {kind!r} in the state: Clef takes text and images", model=model)
        return {str(key): _plain(item, images, model) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item, images, model) for item in value]
    return value


def _embedded(block: Mapping[str, Any], images: list[str], model: str) -> str:
    image = to_part(block).get("image_url")
    url = image.get("url", "") if isinstance(image, dict) else str(image or "")
    if not url.lower().startswith("data:"):
        raise BadRequestError("an image in the state is a link: pass its bytes as base64 or a data: URL", model=model)
    images.append(url)
    return f"[image {len(images)}]"


def read_decision(reply: Reply, model: str, questions: Mapping[str, Question]) -> ClassifierResponse:
    """Read the answers.

    Raises:
        APIResponseValidationError: An answer is missing or not of its question's kind.
    """
    result = unwrap(reply.data)
    body = result if isinstance(result, dict) else {}
    found = body.get("answers")
    answers = found if isinstance(found, dict) else {}
    wrong = [name for name, question in questions.items() if _kind(answers.get(name)) != question.type]
    try:
        if wrong:
            raise ValueError(f"no answer of the right kind to {', '.join(wrong)}")
        return ClassifierResponse(
            model=model,
            answers=answers,
            usage=_usage(body),
            request_id=reply.headers.get("cf-ai-req-id") or reply.headers.get("cf-ray"),
        )
    except (ValidationError, ValueError) as exc:
        raise APIResponseValidationError(
            f"the reply is no decision: {exc}", model=model, body=shortened(json.dumps(result, default=str)),
            status_code=200,
        ) from exc  # fmt: skip


def _usage(body: Mapping[str, Any]) -> UsageMetadata | None:
    """Return the tokens of a decision; None if the reply does not state them as a record."""
    usage = read_usage(body.get("usage"))
    if usage is None:
        return None
    return UsageMetadata(
        input_tokens=usage.input_tokens, output_tokens=usage.output_tokens, total_tokens=usage.total_tokens
    )


def _kind(answer: Any) -> Any:
    return answer.get("type") if isinstance(answer, dict) else None
