"""``workers-ai chat``: one answer, or a conversation in a terminal."""

from __future__ import annotations

import json
import re
import sys
import uuid
from contextlib import closing, suppress
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING

import typer

from workers_ai.cli._errors import message_of, note
from workers_ai.cli._options import CHAT_MODEL
from workers_ai.errors import ConfigurationError, WorkersAIError
from workers_ai.ingest._parquet import whole_file

if TYPE_CHECKING:
    from pathlib import Path

    from workers_ai._wire.params import ChatKeywords
    from workers_ai.client import Client

__all__ = ["Conversation", "answer", "answer_as_json", "converse"]

_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
"""Control characters that a terminal would execute: all except tab and line feed."""


@dataclass
class Conversation:
    """The messages of a conversation.

    Attributes:
        model: Model id.
        session_id: Sent as ``x-session-affinity``, which keeps the prefix of the conversation cached.
        messages: Messages so far.
        path: Session file; None to keep the conversation in memory only.
    """

    model: str
    session_id: str = field(default_factory=lambda: str(uuid.uuid4()))
    messages: list[dict[str, str]] = field(default_factory=list)
    path: Path | None = None

    @classmethod
    def open(cls, path: Path | None, model: str | None, system: str | None) -> Conversation:
        """Return the conversation of a session file, or a new one.

        Args:
            path: Session file; None for a conversation without one.
            model: Model id; None for the model of the session, else the default.
            system: System message; None for the session's.

        Raises:
            ConfigurationError: The file is not a session, or the session has another system message.
        """
        if path is None or not path.exists():
            messages = [{"role": "system", "content": system}] if system else []
            return cls(model or CHAT_MODEL, messages=messages, path=path)
        found = _read(path)
        found.model = model or found.model
        if system is not None and {"role": "system", "content": system} not in found.messages[:1]:
            raise ConfigurationError(
                f"{path} has another system message: omit --system, or start a session in another file"
            )
        return found

    def request_messages(self, prompt: str) -> list[dict[str, str]]:
        """Return the messages of a request with this prompt."""
        return [*self.messages, {"role": "user", "content": prompt}]

    def call_options(self, options: ChatKeywords) -> ChatKeywords:
        """Return the options of a call in this conversation."""
        return {**options, "session_id": self.session_id}

    def keep(self, prompt: str, text: str) -> None:
        """Add a prompt and its answer, and write the session file.

        Raises:
            OSError: The file cannot be written.
        """
        self.messages = [*self.request_messages(prompt), {"role": "assistant", "content": text}]
        if self.path is not None:
            stored = {"model": self.model, "session_id": self.session_id, "messages": self.messages}
            with whole_file(self.path) as file:
                file.write(json.dumps(stored, indent=1).encode())


def _read(path: Path) -> Conversation:
    try:
        stored = json.loads(path.read_text(encoding="utf-8"))
        messages = [{"role": str(one["role"]), "content": str(one["content"])} for one in stored["messages"]]
        return Conversation(str(stored["model"]), str(stored["session_id"]), messages, path)
    except (ValueError, TypeError, KeyError) as exc:
        raise ConfigurationError(
            f"{path} is not a session of `workers-ai chat`: pass another file (a new file starts a session)"
        ) from exc


def answer(client: Client, conversation: Conversation, prompt: str, options: ChatKeywords) -> None:
    """Print an answer as it arrives, and add it to the conversation. Print reasoning on stderr in a terminal.

    Raises:
        StreamInterruptedError: The stream ended early. The received text is printed; the turn is not saved.
        WorkersAIError: The call failed.
    """
    screen = _Screen()
    messages = conversation.request_messages(prompt)
    stream = client.stream_chat(conversation.model, messages, **conversation.call_options(options))
    finish_reason = None
    try:
        with closing(stream):
            for piece in stream:
                screen.reason(piece.reasoning)
                screen.write(piece.text or piece.refusal)
                finish_reason = piece.finish_reason or finish_reason
    finally:
        screen.end()
    conversation.keep(prompt, screen.text)
    _warn_if_truncated(finish_reason)


def answer_as_json(client: Client, conversation: Conversation, prompt: str, options: ChatKeywords) -> str:
    """Return an answer with its usage as a JSON object, and add it to the conversation.

    Raises:
        WorkersAIError: The call failed.
    """
    messages = conversation.request_messages(prompt)
    reply = client.chat(conversation.model, messages, **conversation.call_options(options))
    conversation.keep(prompt, reply.text)
    _warn_if_truncated(reply.finish_reason)
    facts = asdict(reply)
    names = ("model", "text", "reasoning", "refusal", "finish_reason", "id")
    return json.dumps(
        {name: facts[name] for name in names} | {"usage": reply.usage and reply.usage._asdict()}, ensure_ascii=False
    )


def converse(client: Client, conversation: Conversation, options: ChatKeywords) -> None:
    """Read prompts from the terminal and answer them, up to the end of the input (Ctrl-D).

    An error or Ctrl-C ends one turn, which is not saved.
    """
    with suppress(ImportError):  # not on Windows
        import readline  # noqa: F401 - adds history and line editing to `input`

    turns = sum(message["role"] == "user" for message in conversation.messages)
    continued = f", {turns} earlier turns" if turns else ""
    typer.echo(f"{conversation.model}{continued}. Ctrl-C stops an answer, Ctrl-D ends.", err=True)
    while True:
        try:
            prompt = input("> ").strip()
        except EOFError:
            typer.echo(err=True)
            return
        if not prompt:
            continue
        try:
            answer(client, conversation, prompt, options)
        except KeyboardInterrupt:
            note("interrupted: this turn is not saved")
        except WorkersAIError as exc:
            note(message_of(exc))


def _warn_if_truncated(finish_reason: str | None) -> None:
    if finish_reason == "length":
        note("the answer is truncated: pass a larger --max-tokens")


class _Screen:
    """Print an answer, in a terminal without control characters."""

    def __init__(self) -> None:
        from rich.console import Console

        self.text = ""
        self._is_terminal = sys.stdout.isatty()
        self._stderr = Console(stderr=True, highlight=False, markup=False) if self._is_terminal else None
        self._shows_reasoning = False

    def reason(self, text: str) -> None:
        """Print reasoning dimmed on stderr, if stdout and stderr are terminals."""
        if text and self._stderr is not None and self._stderr.is_terminal:
            self._shows_reasoning = True
            self._stderr.print(_CONTROL.sub("", text), style="dim", end="", soft_wrap=True)

    def write(self, text: str) -> None:
        """Print a piece of the answer at once."""
        if not text:
            return
        if self._shows_reasoning and self._stderr is not None:
            self._stderr.print("\n")
            self._shows_reasoning = False
        self.text += text
        typer.echo(_CONTROL.sub("", text) if self._is_terminal else text, nl=False)

    def end(self) -> None:
        """End the last line."""
        if self._shows_reasoning or (self.text and not self.text.endswith("\n")):
            typer.echo()
