"""Inputs of a generation: render them to chat requests, and compute their hashes."""

from __future__ import annotations

import hashlib
import json
import math
import string
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final, TypeAlias

from workers_ai._validation import require_int
from workers_ai._wire.json_parsing import read_json, replace_lone_surrogates
from workers_ai._wire.json_writing import plain_json
from workers_ai._wire.params import CHAT_PARAMS
from workers_ai.errors import BadRequestError, ConfigurationError
from workers_ai.ledger._records import Document, as_mapping, checked_id

if TYPE_CHECKING:
    from workers_ai.types import JSON

__all__ = ["ChatInput", "Input", "PromptTemplate", "Renderer", "check_fields", "input_hash", "read_input"]

_EXAMPLE: Final = "(id, text), (id, messages), (id, row) with prompt=, or (id, ChatInput)"


@dataclass(frozen=True)
class ChatInput:
    """A rendered chat request: the contents of one item of the queue.

    Attributes:
        messages: OpenAI-shaped messages.
        params: Parameters of this request, named as for :meth:`workers_ai.Client.chat` (``max_tokens``, ``tools``,
            ``response_format``, ...). They take precedence over those of the whole generation.
        extra_body: Fields added to the body of this request. They take precedence in the same way.
    """

    messages: Sequence[Mapping[str, JSON]]
    params: Mapping[str, JSON] = field(default_factory=dict)
    extra_body: Mapping[str, JSON] = field(default_factory=dict)


Input: TypeAlias = "str | Sequence[Mapping[str, JSON]] | Mapping[str, JSON] | ChatInput"
"""Input of one answer: a text, messages, a row for the prompt template, or a rendered request."""


_canonical: Final = json.JSONEncoder(ensure_ascii=False, sort_keys=True, separators=(",", ":"), allow_nan=False)


def canonical(chat: ChatInput) -> str:
    """Return a rendered request as canonical JSON: sorted keys, no spaces, lone surrogates replaced.

    Raises:
        BadRequestError: A value cannot be written as JSON.
    """
    value = {"messages": list(chat.messages), "params": dict(chat.params)}
    if chat.extra_body:  # omitted if empty: ledgers contain the hashes of requests without it
        value["extra_body"] = dict(chat.extra_body)
    try:
        text = _canonical.encode(value)
        text.encode()
    except (TypeError, ValueError, RecursionError):
        plain = replace_lone_surrogates(json.loads(plain_json(value)))
        text = _canonical.encode(plain)
    return text


def read_input(text: str) -> ChatInput:
    """Return the request that :func:`canonical` wrote."""
    value = read_json(text)
    return ChatInput(value["messages"], value["params"], value.get("extra_body", {}))


def input_hash(text: str, doc_id: str | int | None = None) -> bytes:
    """Return the SHA-256 that identifies an input in the ledger.

    Args:
        text: The input as :func:`canonical` writes it.
        doc_id: Id of the input if equal inputs get separate answers, else None.
    """
    if doc_id is not None:
        text = f"{text}\n{json.dumps(doc_id)}"
    return hashlib.sha256(text.encode()).digest()


class PromptTemplate:
    """A prompt with ``{name}`` placeholders.

    Args:
        template: The text, with ``{{`` and ``}}`` for literal braces.

    Raises:
        ConfigurationError: A placeholder is malformed, or the template has none.
    """

    def __init__(self, template: str) -> None:
        if not isinstance(template, str) or not template.strip():
            raise ConfigurationError(
                f"prompt must be a text with a placeholder such as {{text}}, not {template!r:.200}",
                arguments=("prompt",),
            )
        try:
            parts = list(string.Formatter().parse(template))
        except ValueError as exc:
            raise ConfigurationError(
                f"prompt is malformed ({exc}): write {{{{ and }}}} for braces", arguments=("prompt",)
            ) from None
        self.names: dict[str, None] = {}
        self._parts: list[tuple[str, str | None]] = []
        for literal, name, form, conversion in parts:
            if name is not None and (not name.isidentifier() or form or conversion):
                shown = f"{name}{f'!{conversion}' if conversion else ''}{f':{form}' if form else ''}"
                raise ConfigurationError(
                    f"the placeholder {{{shown:.100}}} of prompt is not a plain name: use the name of a column, or "
                    "write {{ and }} for braces",
                    arguments=("prompt",),
                )
            self._parts.append((literal, name))
            if name is not None:
                self.names[name] = None
        if not self.names:
            raise ConfigurationError(
                "prompt has no placeholder, so that all inputs would be the same: add one such as {text}",
                arguments=("prompt",),
            )

    def render(self, row: str | Mapping[str, JSON], doc_id: str | int) -> str:
        """Return the prompt of one row; a text fills the only placeholder.

        Raises:
            ConfigurationError: The row has no value for a placeholder.
        """
        if isinstance(row, str):
            if len(self.names) > 1:
                raise ConfigurationError(
                    f"prompt has the placeholders {', '.join(self.names)}, but the input {doc_id!r:.200} is one text: "
                    "pass a mapping",
                    arguments=("prompt",),
                )
            row = dict.fromkeys(self.names, row)
        missing = [name for name in self.names if name not in row]
        if missing:
            raise ConfigurationError(
                f"the input {doc_id!r:.200} has no {', '.join(missing)} for the placeholders of prompt; it has "
                f"{', '.join(map(str, row)) or 'no column'}. Write {{{{ and }}}} for braces that are not placeholders",
                arguments=("prompt",),
            )
        return "".join(literal if name is None else f"{literal}{row[name]}" for literal, name in self._parts)


@dataclass(frozen=True)
class Renderer:
    """Convert items of a source to documents of the ledger.

    Attributes:
        prompt: The template, or None.
        system: System message put before the input, or None.
        dedupe: Whether equal inputs share one answer.
        is_text: Whether answers are free text, so that an input may have a ``response_format`` of its own.
        max_tokens: Output tokens of the model at most, or None.
    """

    prompt: PromptTemplate | None = None
    system: str | None = None
    dedupe: bool = True
    is_text: bool = True
    max_tokens: int | None = None

    def document(self, item: object) -> Document:
        """Return an item of the source as the ledger stores it.

        Raises:
            BadRequestError: The item is neither a pair of id and input nor a mapping with ``id``; its id or its input
                has another type.
            ConfigurationError: The input has no value for the prompt template, or another type.
        """
        doc_id, given = self._pair(item)
        text = canonical(self.render(doc_id, given))
        return Document(doc_id, input_hash(text, None if self.dedupe else doc_id), text)

    def _pair(self, item: object) -> tuple[str | int, object]:
        mapping = as_mapping(item)
        if mapping is not None and "id" in mapping:
            item = mapping
        if isinstance(item, Mapping) and "id" in item:
            given: object = item if self.prompt is not None else item.get("input", item.get("text", item))
            return checked_id(item["id"]), given
        if isinstance(item, (tuple, list)) and len(item) == 2:
            return checked_id(item[0]), as_mapping(item[1]) or item[1]
        raise BadRequestError(f"an input must be {_EXAMPLE}, not {item!r:.200}")

    def render(self, doc_id: str | int, given: object) -> ChatInput:
        """Return the chat request of one input.

        Raises:
            BadRequestError: The input has another type.
            ConfigurationError: The input has no value for the prompt template, or another type.
        """
        if isinstance(given, ChatInput):
            self._check_chat(given, doc_id)
            return replace(given, messages=self._with_system(given.messages))
        if isinstance(given, Mapping) and self.prompt is None:
            raise ConfigurationError(f"the input {doc_id!r:.200} is a row: pass prompt= with its columns in braces")
        if isinstance(given, (str, Mapping)):
            text: str | None = self.prompt.render(given, doc_id) if self.prompt is not None else str(given)
            values = self._values(given, doc_id)
            if any(value is None or (isinstance(value, float) and math.isnan(value)) for value in values):
                text = None  # reported as failed; pandas has NaN for a null
            elif all(isinstance(value, str) and not value.strip() for value in values):
                text = ""  # reported as failed, even if the prompt adds text
            return ChatInput([*self._system(), {"role": "user", "content": text}])
        if isinstance(given, (list, tuple)) and all(isinstance(message, Mapping) for message in given):
            if self.prompt is not None:
                raise ConfigurationError(
                    f"the input {doc_id!r:.200} is a list of messages: omit prompt=, which requires texts or rows"
                )
            return ChatInput(self._with_system(given))
        raise BadRequestError(
            f"the input {doc_id!r:.200} is a {type(given).__name__}; pass a text, a list of messages, a row or a "
            "ChatInput"
        )

    def _values(self, given: str | Mapping[str, JSON], doc_id: str | int) -> list[JSON]:
        """Return a text, or the values of a row that the prompt uses.

        Raises:
            ConfigurationError: A value is bytes.
        """
        if isinstance(given, str):
            return [given]
        names = self.prompt.names if self.prompt else {}
        for name in names:
            if isinstance(given[name], bytes):
                raise ConfigurationError(f"{name} of the input {doc_id!r:.200} is bytes: decode it to a text")
        return [given[name] for name in names]

    def _system(self) -> list[Mapping[str, JSON]]:
        return [] if self.system is None else [{"role": "system", "content": self.system}]

    def _with_system(self, messages: Sequence[Mapping[str, JSON]]) -> list[Mapping[str, JSON]]:
        """Return messages with the system message before them, unless they have one of their own."""
        has_own = any(message.get("role") in ("system", "developer") for message in messages)
        return [*([] if has_own else self._system()), *messages]

    def _check_chat(self, chat: ChatInput, doc_id: str | int) -> None:
        if self.prompt is not None:
            raise ConfigurationError(
                f"the input {doc_id!r:.200} is a ChatInput, which is already rendered: omit prompt="
            )
        is_list = isinstance(chat.messages, Sequence) and not isinstance(chat.messages, str)
        if not (is_list and all(isinstance(message, Mapping) for message in chat.messages)):
            raise BadRequestError(f"the messages of the input {doc_id!r:.200} must be a list of mappings")
        for name in ("params", "extra_body"):
            if not isinstance(getattr(chat, name), Mapping):
                raise BadRequestError(f"{name} of the input {doc_id!r:.200} must be a mapping")
        if unknown := sorted(map(str, chat.params.keys() - CHAT_PARAMS)):
            raise ConfigurationError(
                f"the input {doc_id!r:.200} has unknown parameters: {', '.join(unknown)}. Use those of Client.chat, "
                "and extra_body for other fields of the body"
            )
        require_int(f"max_tokens of the input {doc_id!r:.200}", chat.params.get("max_tokens"), 1, self.max_tokens)
        check_fields({**chat.params, **chat.extra_body}, f"the input {doc_id!r:.200}", is_text=self.is_text)


def check_fields(fields: Mapping[str, JSON], owner: str, *, is_text: bool) -> None:
    """Check fields of a request body that a generation sets or excludes.

    Args:
        fields: The fields.
        owner: Where they were passed, for the message.
        is_text: Whether answers are free text.

    Raises:
        ConfigurationError: A field is not possible in a generation.
    """
    if fields.get("stream"):
        raise ConfigurationError(f"{owner} must not have stream: answers of a corpus are not streamed; remove it")
    if fields.get("n", 1) not in (None, 1):
        raise ConfigurationError(f"{owner} must not have n: pass each input n times, with dedupe=False")
    if not is_text and not {"response_format", "guided_json"}.isdisjoint(fields):
        raise ConfigurationError(f"{owner} has response_format or guided_json: pass that or schema=, not both")
