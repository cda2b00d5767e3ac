"""npm's ``workers-ai-provider`` with the AI SDK, unchanged, on Node.js."""

from __future__ import annotations

import json
import os
import pathlib
import shutil
import subprocess

import pytest
from tests.emulator.test_chat import GREETING

from workers_ai_emulator import Emulator

HERE = pathlib.Path(__file__).parent / "js"

pytestmark = [
    pytest.mark.skipif(shutil.which("node") is None, reason="Node.js is not installed"),
    pytest.mark.skipif(shutil.which("npm") is None, reason="npm is not installed"),
]


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    folder = tmp_path_factory.mktemp("js")
    for name in ("package.json", "check.mjs"):
        shutil.copy(HERE / name, folder)
    command = ["npm", "install", "--no-audit", "--no-fund", "--no-package-lock", "--loglevel", "error"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=100)
    if done.returncode:
        pytest.skip(f"npm could not install workers-ai-provider: {done.stderr[-300:]}")
    return folder


def test_the_provider_finds_everything_where_it_looks(package: pathlib.Path) -> None:
    emulator = Emulator()
    with emulator.serve() as url:
        environment = {**os.environ, "EMULATOR_URL": url}
        done = subprocess.run(
            ["node", "check.mjs"], cwd=package, capture_output=True, text=True, timeout=60, env=environment
        )
    assert done.returncode == 0, done.stderr

    expected = {
        **{f"{name} {kind}": GREETING for name in ("llama", "gemma") for kind in ("text", "stream")},
        **{f"{name} finish": "stop" for name in ("llama", "gemma")},
        **{f"{name} agent": "The result of clock is: 14:02 in Oslo" for name in ("llama", "gemma")},
        **{f"{name} object": {"age": 41} for name in ("llama", "gemma")},
        "embeddings": [768, 768],
        "rerank": 1,
        "error": 400,
    }
    assert expected == json.loads(done.stdout.splitlines()[-1])
