"""The three distributions: files, metadata, and modules loaded on import."""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

LIBS = Path(__file__).parents[2] / "libs"
PACKAGES = {
    "llama-index-llms-workers-ai": "llama_index.llms.workers_ai",
    "llama-index-embeddings-workers-ai": "llama_index.embeddings.workers_ai",
    "llama-index-postprocessor-workers-ai-rerank": "llama_index.postprocessor.workers_ai_rerank",
}
BESIDE = {
    "llama_index.llms.openai_like": "OpenAILike",
    "llama_index.embeddings.cloudflare_workersai": "CloudflareEmbedding",
}
"""Packages of others under the same namespaces."""


@pytest.fixture(params=PACKAGES)
def distribution(request: pytest.FixtureRequest) -> str:
    return request.param


def project(distribution: str) -> dict[str, Any]:
    return tomllib.loads((LIBS / distribution / "pyproject.toml").read_text())


def test_namespace_has_no_init_files(distribution: str) -> None:
    home = LIBS / distribution
    leaf = home.joinpath(*PACKAGES[distribution].split("."))
    assert (leaf / "__init__.py").is_file()
    assert (leaf / "py.typed").is_file()
    above = {path for path in (home / "llama_index").rglob("*") if path.is_file() and leaf not in path.parents}
    assert {path for path in above if "__pycache__" not in path.parts} == set()


def test_wheel_contains_only_the_package(distribution: str) -> None:
    hatch = project(distribution)["tool"]["hatch"]["build"]["targets"]
    assert hatch["wheel"] == hatch["sdist"] == {"include": ["llama_index/"]}


def test_project_metadata(distribution: str) -> None:
    told = project(distribution)
    hub, module = told["tool"]["llamahub"], importlib.import_module(PACKAGES[distribution])
    assert told["project"]["name"] == distribution
    assert hub["import_path"] == PACKAGES[distribution]
    classes = [name for name in module.__all__ if hasattr(getattr(module, name), "class_name")]
    assert sorted(hub["class_authors"]) == sorted(classes)
    assert f"workers-ai=={module.__version__}" in told["project"]["dependencies"]
    assert "llama-index-core>=0.14.23,<0.15" in told["project"]["dependencies"]
    assert len(told["project"]["dependencies"]) == 2


def test_public_names_exist_and_are_documented(distribution: str) -> None:
    module = importlib.import_module(PACKAGES[distribution])
    for name in module.__all__:
        assert name == "__version__" or getattr(module, name).__doc__


def test_other_packages_of_the_namespace_still_import() -> None:
    for name, found in BESIDE.items():
        assert hasattr(importlib.import_module(name), found)
    for name in PACKAGES.values():
        module = importlib.import_module(name)
        for package in (name.rpartition(".")[0], "llama_index"):
            assert sys.modules[package].__file__ is None  # a shared namespace
        assert module.__file__ is not None


def test_import_loads_no_heavy_modules() -> None:
    script = """
import importlib, json, sys
import llama_index.core, tqdm.auto
before = set(sys.modules)
for name in sys.argv[1:]:
    module = importlib.import_module(name)
    [getattr(module, public) for public in module.__all__ if public not in ("LedgerError", "WorkersAIBatchExtractor")]
print(json.dumps(sorted(set(sys.modules) - before)))
"""
    shown = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", script, *PACKAGES.values()], capture_output=True, text=True, check=True
    )
    loaded = json.loads(shown.stdout)
    assert not {name.split(".")[0] for name in loaded} & {"httpx", "openai", "requests", "aiohttp", "tiktoken", "anyio"}
    assert "workers_ai.client" not in loaded  # imported by the first call
    ours = ("workers_ai", *PACKAGES.values())
    foreign = [name for name in loaded if not name.startswith(ours)]
    assert set(foreign) <= {"difflib", "llama_index.llms", "llama_index.embeddings", "llama_index.postprocessor"}
