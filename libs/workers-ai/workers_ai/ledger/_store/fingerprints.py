"""Fingerprints: options that change the results of a ledger. Results of different fingerprints do not mix."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

from workers_ai._validation import check_model, require_one_of
from workers_ai.catalogue import lookup
from workers_ai.errors import ConfigurationError

if TYPE_CHECKING:
    from workers_ai._wire.json_types import JSON

__all__ = ["AnyFingerprint", "ChatFingerprint", "Fingerprint", "TaskName", "differences", "read_fingerprint", "task_of"]

TaskName: TypeAlias = Literal["embed", "generate"]

_SHOWN: Final = 60
_LEAD: Final = 20


@dataclass(frozen=True)
class Fingerprint:
    """Options that change the vectors of a ledger.

    Attributes:
        model: Model id.
        pooling: ``"mean"``, ``"cls"`` or None for the service's default.
        instruction: Text put before each document, or None.
        truncate_inputs: Whether the service truncates texts that are too long.
        normalize: Whether vectors are scaled to length 1.
    """

    model: str
    pooling: Literal["mean", "cls"] | None = None
    instruction: str | None = None
    truncate_inputs: bool | None = None
    normalize: bool = False

    def __post_init__(self) -> None:
        """Check the options. Raise :class:`~workers_ai.errors.ConfigurationError` for an invalid one."""
        task = lookup(check_model(self.model)).task
        if task not in (None, "Text Embeddings"):
            raise ConfigurationError(
                f"{self.model} is a model for {task}: use an embedding model such as @cf/baai/bge-m3"
            )
        require_one_of("pooling", self.pooling, (None, "mean", "cls"))
        require_one_of("truncate_inputs", self.truncate_inputs, (None, True, False))
        require_one_of("normalize", self.normalize, (True, False))
        if not isinstance(self.instruction, str | None):
            raise ConfigurationError(f"instruction must be a string or None, not {self.instruction!r:.200}")


@dataclass(frozen=True)
class ChatFingerprint:
    """Options that change the answers of a ledger.

    Attributes:
        model: Model id.
        prompt: Prompt template, or None.
        system: System message, or None.
        schema: JSON schema of the answers, or None.
        labels: Labels, or None. Each answer is one of them.
        params: Chat parameters of all requests.
    """

    model: str
    prompt: str | None = None
    system: str | None = None
    schema: dict[str, JSON] | None = None
    labels: list[str] | None = None
    params: dict[str, JSON] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Check the model. Raise :class:`~workers_ai.errors.ConfigurationError` if it is not a chat model."""
        card = lookup(check_model(self.model))
        if card.task == "Text Embeddings":
            raise ConfigurationError(
                f"{self.model} is a model for {card.task}: use a chat model, or embed with workers_ai.ingest"
            )
        if card.family == "decision":
            raise ConfigurationError(
                f"{self.model} is a decision model: call it with WorkersAIDecisions of langchain-workers-ai, or pass "
                "labels= with a chat model such as @cf/qwen/qwen3-30b-a3b-fp8"
            )
        if card.task not in (None, "Text Generation"):
            raise ConfigurationError(
                f"{self.model} is a model for {card.task}: use a chat model such as @cf/qwen/qwen3-30b-a3b-fp8"
            )


AnyFingerprint: TypeAlias = "Fingerprint | ChatFingerprint"


def task_of(fingerprint: AnyFingerprint) -> TaskName:
    """Return the kind of ledger that a fingerprint belongs to."""
    return "generate" if isinstance(fingerprint, ChatFingerprint) else "embed"


def read_fingerprint(task: str, text: str) -> AnyFingerprint:
    """Return a fingerprint as it was stored.

    Raises:
        ValueError, TypeError: The text is not a fingerprint of this task.
        ConfigurationError: A value in it is invalid.
    """
    facts = json.loads(text)
    if task not in ("embed", "generate"):
        raise ValueError(f"unknown task {task!r:.100}")
    return Fingerprint(**facts) if task == "embed" else ChatFingerprint(**facts)


def differences(theirs: AnyFingerprint, mine: AnyFingerprint) -> str:
    """Return the fields that differ, each with both values; long values are shortened around the difference."""
    there, here = asdict(theirs), asdict(mine)
    parts: list[str] = []
    for name in here:
        if there[name] == here[name]:
            continue
        if name == "params":
            changed = sorted(key for key in there[name].keys() | here[name].keys()
                             if there[name].get(key) != here[name].get(key))  # fmt: skip
            parts += [_both(key, there[name].get(key), here[name].get(key)) for key in changed]
        else:
            parts.append(_both(name, there[name], here[name]))
    return ", ".join(parts)


def _both(name: str, theirs: JSON, mine: JSON) -> str:
    old, new = repr(theirs), repr(mine)
    same = next((i for i, (a, b) in enumerate(zip(old, new, strict=False)) if a != b), min(len(old), len(new)))
    start = max(0, same - _LEAD) if max(len(old), len(new)) > _SHOWN else 0
    return f"{name} {_excerpt(old, start)}, not {_excerpt(new, start)}"


def _excerpt(text: str, start: int) -> str:
    shown = text[start : start + _SHOWN]
    return f"{'...' if start else ''}{shown}{'...' if start + _SHOWN < len(text) else ''}"
