"""Write the commands of `workers-ai` with their arguments and options."""

from __future__ import annotations

import typing
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import Files
from mkdocs.structure.pages import Page
from typer.main import get_command

from workers_ai.cli._app import app

MARK = "<!-- commands -->"


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Replace the mark by a section for each command."""
    if MARK not in markdown:
        return markdown
    commands: dict[str, Any] = get_command(app).commands  # type: ignore[attr-defined]
    sections = [_section(name, command) for name, command in commands.items() if not command.hidden]
    return markdown.replace(MARK, "\n\n".join(sections))


def _section(name: str, command: Any) -> str:
    shown = [one for one in command.params if not one.hidden and one.name != "help"]
    arguments = [one for one in shown if one.param_type_name == "argument"]
    usage = " ".join([f"workers-ai {name}", *map(_usage, arguments)])
    rows = [f"| `{_label(one)}` | {_meaning(one)} |" for one in shown]
    table = "\n".join(["| argument or option | meaning |", "|---|---|", *rows]) if rows else ""
    text = (command.help or "").replace("\b\n", "").replace("\f", "")
    lines = "\n".join([f"{usage} [OPTIONS]", *_examples(command.epilog or "")])
    return f"## {name}\n\n```console\n{lines}\n```\n\n{_as_markdown(text)}\n\n{table}"


def _examples(epilog: str) -> list[str]:
    """Return the examples at the end of a help page."""
    return [line for line in epilog.split("\n\n") if "workers-ai " in line and "`" not in line]


def _as_markdown(text: str) -> str:
    """Return a help text with its indented lines (examples) as code."""
    return "\n".join(
        f"    {line.strip()}" if line.startswith((" ", "workers-ai ", "$ ")) else line for line in text.split("\n")
    )


def _usage(argument: Any) -> str:
    metavar = argument.metavar or argument.name.upper()
    return metavar if argument.required else f"[{metavar}]"


def _label(one: Any) -> str:
    if one.param_type_name == "argument":
        return str(one.metavar or one.name.upper())
    return ", ".join([*one.opts, *one.secondary_opts]) + ("" if one.is_flag else f" {one.metavar or _kind(one)}")


def _kind(option: Any) -> str:
    annotation = option.type_descriptor.annotation
    choices = typing.get_args(annotation) if typing.get_origin(annotation) is typing.Literal else ()
    return "|".join(map(str, choices)) or getattr(annotation, "__name__", "value").upper()


def _meaning(one: Any) -> str:
    text = (one.help or "").replace("|", "\\|")
    if isinstance(one.show_default, str):
        return f"{text} Default: {one.show_default}."
    if one.show_default and one.default not in (None, False, "", ()):
        return f"{text} Default: `{one.default}`."
    return text
