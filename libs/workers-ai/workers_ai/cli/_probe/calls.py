"""Requests of the probe as plain data, and the replies to them."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Final

from workers_ai._wire.error_mapping import ErrorDetails, read_error
from workers_ai.catalogue import lookup

if TYPE_CHECKING:
    from collections.abc import Mapping

    from workers_ai.types import JSON

__all__ = ["Call", "OpenQuestionError", "Reply", "poll"]

_DEFAULT_OUTPUT_TOKENS: Final = 256
_CHARACTERS_PER_TOKEN: Final = 3
"""Deliberately low, so that the estimate of the cost is high."""


class OpenQuestionError(Exception):
    """The replies do not answer a question. The message contains the reason."""


@dataclass(frozen=True)
class Call:
    """One request.

    Attributes:
        path: Path after ``/accounts/{account}/ai/``.
        body: JSON body.
        model: Model id, for the price.
    """

    path: str
    body: Mapping[str, JSON]
    model: str

    @cached_property
    def key(self) -> str:
        """Key that is equal for equal calls. The session sends each call once."""
        return f"{self.path} {json.dumps(self.body, sort_keys=True)}"

    @property
    def cost_usd(self) -> float:
        """Estimated cost by list price; high: three characters count as one token and answers have full length."""
        card = lookup(self.model)
        texts = len(json.dumps(self.body)) / _CHARACTERS_PER_TOKEN
        requests = self.body.get("requests")
        items = requests if isinstance(requests, list) else [self.body]
        answers = sum(_output_tokens(item) for item in items if isinstance(item, dict))
        return (texts * (card.usd_per_m_in or 0) + answers * (card.usd_per_m_out or 0)) / 1e6

    def __str__(self) -> str:
        body = json.dumps(self.body)
        return f"POST {self.path} {body if len(body) <= 120 else body[:117] + '...'}"


def poll(submission: Call, request_id: str) -> Call:
    """Return the call that polls a submission."""
    return Call(submission.path, {"request_id": request_id}, submission.model)


def _output_tokens(body: Mapping[str, JSON]) -> int:
    most = body.get("max_tokens") or body.get("max_output_tokens")
    return most if isinstance(most, int) else _DEFAULT_OUTPUT_TOKENS


@dataclass(frozen=True)
class Reply:
    """One reply.

    Attributes:
        status: HTTP status.
        headers: Headers, with names in lower case.
        text: Body as text.
    """

    status: int
    headers: Mapping[str, str]
    text: str = field(repr=False)

    @cached_property
    def data(self) -> JSON:
        """The parsed body; None if the body is not JSON."""
        try:
            parsed: JSON = json.loads(self.text)
        except (ValueError, RecursionError):
            return None
        return parsed

    @cached_property
    def error(self) -> ErrorDetails | None:
        """The error in the reply; None for a success."""
        failed = self.status >= 400 or (isinstance(self.data, dict) and self.data.get("success") is False)
        if not failed:
            return None
        return read_error(self.data, is_error=True) or ErrorDetails(f"HTTP {self.status}")

    @property
    def code(self) -> int | None:
        """Code of the error; None if missing."""
        return self.error.code if self.error else None

    @property
    def result(self) -> dict[str, JSON]:
        """The ``result`` of a success.

        Raises:
            OpenQuestionError: The reply is an error or has no result.
        """
        found = self.success().get("result")
        if not isinstance(found, dict):
            raise OpenQuestionError(f"HTTP {self.status} without a result object")
        return found

    def success(self) -> dict[str, JSON]:
        """Return the body of a success.

        Raises:
            OpenQuestionError: The reply is an error or not a JSON object.
        """
        if self.error:
            raise OpenQuestionError(self.summary)
        if not isinstance(self.data, dict):
            raise OpenQuestionError(f"HTTP {self.status} without a JSON object")
        return self.data

    @property
    def accepted(self) -> str:
        """``"accept"`` for a success, ``"reject"`` for an error of the request (4xx).

        Raises:
            OpenQuestionError: Another error.
        """
        if self.error is None:
            return "accept"
        if not 400 <= self.status < 500:
            raise OpenQuestionError(self.summary)
        return "reject"

    @property
    def summary(self) -> str:
        """Status, code and text of the error."""
        if self.error is None:
            return f"HTTP {self.status}"
        code = "" if self.error.code is None else f", code {self.error.code}"
        return f"HTTP {self.status}{code}: {self.error.message:.160}"

    @cached_property
    def events(self) -> list[dict[str, JSON]]:
        """JSON events of a stream.

        Raises:
            OpenQuestionError: The reply is an error or has no event.
        """
        if self.error:
            raise OpenQuestionError(self.summary)
        found = []
        for line in self.text.splitlines():
            if line.startswith("data:") and line[5:].strip() != "[DONE]":
                try:
                    event = json.loads(line[5:])
                except ValueError:
                    continue
                if isinstance(event, dict):
                    found.append(event)
        if not found:
            raise OpenQuestionError(f"HTTP {self.status} without an event")
        return found
