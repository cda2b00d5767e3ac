"""Write a page for every error code of the service, and one for every error without a code."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

from workers_ai import errors
from workers_ai._wire.error_mapping import error_from_reply, usual_status
from workers_ai.catalogue import successor
from workers_ai.ingest import LedgerError

TABLE = Path(__file__).parents[1] / "errors" / "errors.toml"
LINK = re.compile(r"(errors/)index\.md#(\w+)\)")
MARKS = {"<!-- codes -->": True, "<!-- errors without a code -->": False}
GROUPS = {
    "": "Without a code",
    "1": "1000: service",
    "2": "2000: AI Gateway",
    "3": "3000: service",
    "4": "4000: allocation",
    "5": "5000: models and queue",
    "6": "6000: API",
    "7": "7000: API",
    "8": "8000: model server",
    "9": "9000: API",
    "10": "10000: API",
}
"""Heading in the navigation by the thousands of a code."""
MODEL = "@cf/meta/llama-3.3-70b-instruct-fp8-fast"
EVIDENCE = {
    "documented": "Cloudflare [documents]({source}) this code.",
    "recorded": "Cloudflare does not document this code. It was seen in public recordings or reports.",
    "assumed": "Cloudflare does not document this code, and its meaning is not confirmed.",
}
SOURCE = "https://developers.cloudflare.com/workers-ai/platform/errors/"
Entry = dict[str, Any]


def table() -> dict[str, Entry]:
    """Return the entry of each code and of each class without a code."""
    return tomllib.loads(TABLE.read_text(encoding="utf-8"))


def _error(name: str, entry: Entry) -> errors.WorkersAIError:
    """Return the error that a client raises for an entry."""
    if name == "LedgerError":
        return LedgerError(entry["message"])
    if name == "BatchItemError":
        return errors.BatchItemError(entry["message"], index=7, external_reference="page 8", model=MODEL)
    if not name.isdecimal():
        cls: type[errors.WorkersAIError] = getattr(errors, name)
        return cls(entry["message"])
    code = int(name)
    status = usual_status(code, 400)
    model = "@cf/meta/llama-3-8b-instruct" if code == 5028 else MODEL
    body = {"success": False, "errors": [{"code": code, "message": entry["message"] or "(text of the service)"}]}
    return error_from_reply(status, {}, "", model=model, body=body, successor=successor)


def _page(name: str, entry: Entry) -> str:
    error = _error(name, entry)
    cls = type(error).__name__
    module = "workers_ai.ingest" if cls == "LedgerError" else "workers_ai.errors"
    shown = f"{cls}: {error}"
    heading = f"# {name}: {entry['title']}"
    facts = [f"[`{cls}`][{module}.{cls}]", f"retried: {_retried(error)}"]
    if name.isdecimal():
        facts.insert(1, f"HTTP {error.status_code}")
    do = "\n".join(f"{number}. {line}" for number, line in enumerate(entry["do"], 1))
    source = EVIDENCE[entry["evidence"]].format(source=entry.get("source", SOURCE)) if name.isdecimal() else ""
    return (
        f"{heading}\n\n{' · '.join(facts)}\n{{ .facts }}\n\n## What you see\n\n```text\n{shown}\n```\n\n"
        f"## Why\n\n{entry['why']}\n\n{source}\n\n## What to do\n\n{do}\n\n"
        "[All errors](index.md) · [Capacity and cost](../guides/capacity.md)\n"
    )


def _retried(error: errors.WorkersAIError) -> str:
    return "yes, `max_retries` times (2)" if error.is_retryable else "no"


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Add the pages to the navigation."""
    groups: dict[str, list[dict[str, str]]] = {title: [] for title in GROUPS.values()}
    for name, entry in table().items():
        family = name[:-3] if name.isdecimal() else ""
        groups[GROUPS[family]].append({f"{name}: {entry['title']}": f"errors/{name}.md"})
    section = next(entry["Errors"] for entry in config.nav if "Errors" in entry)
    section += [{title: pages} for title, pages in groups.items()]
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the page of every entry."""
    for name, entry in table().items():
        files.append(File.generated(config, f"errors/{name}.md", content=_page(name, entry)))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Replace the marks of the first page by tables, and links to ``errors/index.md#3040`` by links to the code's page.

    In the repository, these pages do not exist, and such a link leads to the first page.
    """
    markdown = LINK.sub(lambda match: f"{match[1]}{match[2]}.md)" if match[2] in table() else match[0], markdown)
    for mark, with_code in MARKS.items():
        if mark in markdown:
            markdown = markdown.replace(mark, _list(with_code))
    return markdown


def _list(with_code: bool) -> str:
    rows = []
    for name, entry in table().items():
        if name.isdecimal() == with_code:
            error = _error(name, entry)
            cells = [
                f"[{name}]({name}.md)",
                entry["title"],
                f"`{type(error).__name__}`",
                _retried(error)[:3].rstrip(","),
            ]
            if with_code:
                cells.insert(2, str(error.status_code))
            else:
                del cells[2]
            rows.append("| " + " | ".join(cells) + " |")
    heads = ["code", "meaning", "HTTP", "error", "retried"] if with_code else ["error", "meaning", "retried"]
    return "\n".join(["| " + " | ".join(heads) + " |", "|" + "---|" * len(heads), *rows])
