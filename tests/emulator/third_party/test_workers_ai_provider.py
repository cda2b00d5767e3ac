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

pytestmark = pytest.mark.skipif(
    os.environ.get("RIVALS") != "required", reason="installs from npm; `bash .ci/run rivals` runs it"
)


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """Install the provider; fail without Node.js, npm or the registry."""
    folder = tmp_path_factory.mktemp("js")
    for name in ("package.json", "check.mjs"):
        shutil.copy(HERE / name, folder)
    command = ["npm", "install", "--no-audit", "--no-fund", "--no-package-lock", "--loglevel", "error"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr[-1000:]
    return folder


def test_the_provider_reads_every_reply(package: pathlib.Path) -> None:
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
