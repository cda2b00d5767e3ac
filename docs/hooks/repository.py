"""Show files of the repository as pages of the site, and change links to them.

Pages are written for the repository, where a link such as ``../CONTRIBUTING.md`` works. On the site, links to files
with a page lead to this page. Other links to files outside ``docs`` become plain text.
"""

from __future__ import annotations

import json
import posixpath
import re
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[2]
LINK = re.compile(r"(?<!!)\[((?:[^\[\]]|\[[^\]]*\])*)\]\((?!https?:|mailto:|#)([^)#\s]+)(#[^)\s]*)?\)")

_pages: dict[str, str] = {}
"""Page of the site by path in the repository."""
_origins: dict[str, str] = {}
"""Path in the repository by page that is made from it."""


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Add notebooks and examples to the navigation."""
    for title, pattern in (("Notebooks", "notebooks/*.ipynb"), ("Examples", "examples/*.py")):
        section = next(entry[title] for entry in config.nav if title in entry)
        section += [f"{path.parent.name}/{path.stem}.md" for path in sorted(ROOT.glob(pattern))]
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages of files outside ``docs``."""
    for file in files.documentation_pages():
        _pages[f"docs/{file.src_uri}"] = file.src_uri
    for source, target, text in _repository_pages():
        _pages[source], _origins[target] = target, source
        files.append(File.generated(config, target, content=text))
    return files


def _repository_pages() -> Iterator[tuple[str, str, str]]:
    """Yield path in the repository, page and text."""
    for name in ("CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md"):
        yield name, name.lower(), _read(ROOT / name)
    yield "tests/contract/README.md", "conformance.md", _read(ROOT / "tests" / "contract" / "README.md")
    for path in sorted(ROOT.glob("libs/*/README.md")):
        yield f"libs/{path.parent.name}/README.md", f"packages/{path.parent.name}.md", _read(path)
    for folder in ("notebooks", "examples"):
        yield f"{folder}/README.md", f"{folder}/index.md", _read(ROOT / folder / "README.md")
    for path in sorted(ROOT.glob("notebooks/*.ipynb")):
        yield f"notebooks/{path.name}", f"notebooks/{path.stem}.md", _notebook(path)
    for path in sorted(ROOT.glob("examples/*.py")):
        text = f"# {path.name}\n\n```python\n{_read(path)}```\n"
        yield f"examples/{path.name}", f"examples/{path.stem}.md", text


def _read(path: Path) -> str:
    return path.read_text(encoding="utf-8")


def _notebook(path: Path) -> str:
    """Return the cells of a notebook as Markdown."""
    cells: list[dict[str, Any]] = json.loads(_read(path))["cells"]
    parts = []
    for cell in cells:
        source = "".join(cell["source"]).strip()
        parts.append(source if cell["cell_type"] == "markdown" else f"```python\n{source}\n```")
    return "\n\n".join(part for part in parts if part) + "\n"


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Change links to files of the repository to links to their pages."""
    source = _origins.get(page.file.src_uri, f"docs/{page.file.src_uri}")

    def target(match: re.Match[str]) -> str:
        text, link, anchor = match[1], match[2], match[3] or ""
        path = posixpath.normpath(str(PurePosixPath(source).parent / link))
        if shown := _pages.get(path) or _pages.get(f"{path}/README.md"):
            return f"[{text}]({posixpath.relpath(shown, str(PurePosixPath(page.file.src_uri).parent))}{anchor})"
        if (ROOT / path).exists() and not path.startswith("docs/"):
            return f"{text} (`{path}` in the repository)"
        return match[0]

    return LINK.sub(target, markdown)
