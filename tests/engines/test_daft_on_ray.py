"""Daft's ``embed_text`` on Daft's Ray runner, in another process, because a process can select its runner only once."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest

pytest.importorskip("daft", reason="Daft is in the dependency group 'engines'")
pytest.importorskip("ray", reason="Ray is in the dependency group 'engines'")

from workers_ai_emulator import Emulator

ROWS = 2_000
SCRIPT = """
import json, sys
import daft, ray
from daft.functions import embed_text
from workers_ai.daft import WorkersAIProvider

settings, rows = json.loads(sys.argv[1]), int(sys.argv[2])
ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, _node_ip_address="127.0.0.1")
daft.set_runner_ray(noop_if_initialized=True)
frame = daft.from_pydict({"text": [f"row number {number}" for number in range(rows)]})
provider = WorkersAIProvider(**settings)
vectors = embed_text(daft.col("text"), provider=provider, model="@cf/baai/bge-small-en-v1.5")
columns = frame.with_column("vector", vectors).to_pydict()
ray.shutdown()
print(json.dumps([len(set(columns["text"])), sorted({len(vector) for vector in columns["vector"]})]))
"""


@pytest.mark.timeout(240)  # Ray starts slowly on a busy machine
def test_rows_are_embedded_once(emulator: Emulator, settings: dict[str, Any]) -> None:
    command = [sys.executable, "-c", SCRIPT, json.dumps(settings), str(ROWS)]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout.splitlines()[-1]) == [ROWS, [384]]
    assert (emulator.log.texts_embedded, emulator.log.texts_repeated) == (ROWS, 0)
    assert emulator.log.requests <= 1.4 * ROWS / 100
