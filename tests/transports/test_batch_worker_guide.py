"""The Worker of the guide, run by Node.js with a substitute for ``env.AI`` and called by the client."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from workers_ai import BatchWorker, Client, errors
from workers_ai.batch import BatchJob

HERE = Path(__file__).parent
GUIDE = HERE.parents[1] / "docs" / "guides" / "batch-worker.md"
M3 = "@cf/baai/bge-m3"
KEY = {"Authorization": "Bearer key-of-the-worker"}

pytestmark = pytest.mark.skipif(shutil.which("node") is None, reason="Node.js runs the Worker of the guide")


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Return the URL of the Worker."""
    (source,) = re.findall(r"```js\n(.*?)```", GUIDE.read_text(encoding="utf-8"), re.DOTALL)
    worker = tmp_path_factory.mktemp("worker") / "worker.mjs"
    worker.write_text(source, encoding="utf-8")
    command = ["node", HERE / "batch_worker" / "serve.mjs", worker]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        yield process.stdout.readline().strip()
        process.terminate()


@pytest.fixture
def client(url: str, account: dict[str, Any]) -> Iterator[Client]:
    """Return a client whose queue is this Worker."""
    with Client(**account, batch_worker=BatchWorker(url, headers=KEY)) as client:
        yield client


def test_texts_of_any_number_are_embedded(client: Client) -> None:
    texts = ["x" * (1 + number) for number in range(250)]
    vectors = client.embed(M3, texts, queue="always").vectors
    assert [vector[0] for vector in vectors] == list(range(1, 251))


def test_items_match_requests_of_any_size(client: Client) -> None:
    sizes = (70, 1, 80)
    items = client.batch.run(M3, [{"text": ["x" * size] * size} for size in sizes])
    assert [[row[0] for row in item.result["data"]] for item in items] == [[size] * size for size in sizes]


def test_rejections_are_typed(client: Client, url: str, account: dict[str, Any]) -> None:
    with pytest.raises(errors.BadRequestError, match="INVALID_BODY: texts must be a list of non-empty strings"):
        client.batch.submit(M3, [{"text": [""]}])
    with pytest.raises(errors.BatchError, match="INVALID_REQUEST_ID"):
        client.batch.poll(BatchJob("mine", M3))
    with pytest.raises(errors.BatchError, match="BATCH_ERROR: unknown request_id"):
        client.batch.poll(BatchJob("ffffffff-0000-4000-8000-000000000000", M3))
    with (
        Client(**account, batch_worker=url) as keyless,
        pytest.raises(errors.AuthenticationError, match="headers of batch_worker="),
    ):
        keyless.batch.submit(M3, [{"text": ["a"]}])
