"""``--help`` of every command, its examples, and shell completion."""

from __future__ import annotations

import shlex
from typing import Any

import pytest
from typer.main import get_command
from typer.testing import CliRunner

from workers_ai.cli._app import app
from workers_ai.cli._errors import _OPTIONS

ROOT = get_command(app)
COMMANDS = ROOT.commands  # type: ignore[attr-defined]


def examples(name: str) -> list[str]:
    return [line for line in (COMMANDS[name].epilog or "").split("\n\n") if "workers-ai " in line and "`" not in line]


@pytest.mark.parametrize("name", sorted(set(COMMANDS) - {"demo", "probe"}))
def test_examples_are_commands(name: str) -> None:
    assert examples(name)
    for example in examples(name):
        program, command, *arguments = shlex.split(example.rpartition(" | ")[2])
        assert (program, command) == ("workers-ai", name)
        COMMANDS[name].make_context(name, arguments)


def test_errors_mention_only_existing_options() -> None:
    assert set(_OPTIONS.values()) <= {
        option for one in COMMANDS.values() for param in one.params for option in param.opts
    }


def test_help_is_plain_without_a_terminal() -> None:
    for name in COMMANDS:
        result = CliRunner().invoke(app, [name, "-h"], env={"COLUMNS": "100"})
        assert result.exit_code == 0
        assert "\x1b" not in result.output
        assert "Exit status: 0" in result.output
        uses_account = "account_id" in {parameter.name for parameter in COMMANDS[name].params}
        assert ("CLOUDFLARE_API_TOKEN" in result.output) == uses_account, name


@pytest.mark.parametrize(
    ("words", "completed"),
    [
        ("workers-ai do", {"doctor"}),
        ("workers-ai rerank --model @cf/baai/", {"@cf/baai/bge-reranker-base"}),
        ("workers-ai models --task text-e", {"text-embeddings"}),
    ],
)
def test_the_shell_completes_commands_models_and_tasks(words: str, completed: set[str]) -> None:
    env: dict[str, Any] = {
        "_WORKERS_AI_COMPLETE": "complete_bash", "COMP_WORDS": words, "COMP_CWORD": str(len(words.split()) - 1),
    }  # fmt: skip
    result = CliRunner().invoke(app, env=env, prog_name="workers-ai")
    assert set(result.stdout.split()) == completed
