"""Write a reference page for every public module, from the list of public names."""

from __future__ import annotations

from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

LIST = Path(__file__).parents[2] / "tests" / "repo" / "public_names.txt"
MARK = "<!-- public modules -->"
PACKAGES = (
    "langchain_workers_ai",
    "llama_index.embeddings.workers_ai",
    "llama_index.llms.workers_ai",
    "llama_index.postprocessor.workers_ai_rerank",
    "workers_ai",
    "workers_ai_emulator",
)


def public_modules() -> dict[str, dict[str, str]]:
    """Return the names of each public module: the name, and the public name that it is an alias of or ""."""
    modules: dict[str, dict[str, str]] = {}
    classes: set[str] = set()
    for line in LIST.read_text(encoding="utf-8").splitlines():
        kind, rest = line.removeprefix("async ").split(" ", 1)
        path = rest.split("(")[0].split(":")[0].split(" ")[0]
        module, _, name = path.rpartition(".")
        if kind == "class":
            classes.add(path)
        if module in classes:  # a member
            continue
        modules.setdefault(module, {})[name] = rest.partition(" = ")[2] if kind == "alias" else ""
    return modules


def _page(module: str, names: dict[str, str]) -> str:
    lines = [
        f"# `{module}`",
        "",
        f"::: {module}",
        "    options:",
        "      members: false",
        "      show_root_heading: false",
    ]
    lines += ["      show_root_toc_entry: false", ""]
    for name, alias in names.items():
        if name != "__version__" and not alias:
            lines += [f"::: {module}.{name}", ""]
    aliases = {name: alias for name, alias in names.items() if alias}
    if aliases:
        lines += ["## Defined elsewhere", ""]
        lines += [f"- `{name}`: [`{alias}`][{alias}]" for name, alias in aliases.items()]
    return "\n".join(lines) + "\n"


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Add the public modules to the navigation, grouped by package."""
    groups: dict[str, list[dict[str, str]]] = {}
    for module in public_modules():
        package = next((name for name in PACKAGES if module == name or module.startswith(f"{name}.")), module)
        label = module.removeprefix(f"{package}.")
        groups.setdefault(package, []).append({label: f"reference/{module}.md"})
    section = next(entry["Reference"] for entry in config.nav if "Reference" in entry)
    section += [{package: pages} for package, pages in groups.items()]
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the page of every public module."""
    for module, names in public_modules().items():
        files.append(File.generated(config, f"reference/{module}.md", content=_page(module, names)))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """List the modules on the first page of the reference."""
    if MARK not in markdown:
        return markdown
    rows = [f"| [`{module}`]({module}.md) | {_names(names)} |" for module, names in public_modules().items()]
    return markdown.replace(MARK, "\n".join(["| module | names |", "|---|---|", *rows]))


def _names(names: dict[str, str]) -> str:
    return ", ".join(f"`{name}`" for name in names if name != "__version__")
