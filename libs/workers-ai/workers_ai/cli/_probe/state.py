"""Store the findings of probe runs in one small JSON file."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from workers_ai.errors import ConfigurationError

if TYPE_CHECKING:
    from pathlib import Path

    from workers_ai._settings.settings import Settings
    from workers_ai.cli._probe.question import Value

__all__ = ["State", "read_state"]


@dataclass
class State:
    """Answers and batches of one account.

    Attributes:
        path: The file.
        account: Hash of the URL and the account.
        answers: Answers by the name of the question.
        jobs: Request ids of batches in the queue, by the key of their call.
    """

    path: Path
    account: str
    answers: dict[str, Value] = field(default_factory=dict)
    jobs: dict[str, str] = field(default_factory=dict)

    def save(self) -> None:
        """Write the file atomically.

        Raises:
            OSError: The file cannot be written.
        """
        content = {"account": self.account, "answers": self.answers, "jobs": self.jobs}
        new = self.path.with_name(f"{self.path.name}.new")
        new.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
        new.replace(self.path)


def read_state(path: Path, settings: Settings, *, anew: bool = False) -> State:
    """Return the state of an account; an empty one if there is no file.

    Args:
        path: The file.
        settings: URL and account.
        anew: Ignore the answers in the file.

    Raises:
        ConfigurationError: The file is damaged or belongs to another account.
        OSError: The file cannot be read.
    """
    account = hashlib.sha256(settings._root.encode()).hexdigest()[:16]
    if anew or not path.exists():
        return State(path, account)
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        state = State(path, content["account"], dict(content["answers"]), dict(content["jobs"]))
    except (ValueError, KeyError, TypeError) as exc:
        raise ConfigurationError(f"{path} is not a state file of the probe: delete it or pass --state FILE") from exc
    if state.account != account:
        raise ConfigurationError(f"{path} belongs to another account: pass --state FILE or --anew")
    return state
