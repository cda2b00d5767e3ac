"""The official ``cloudflare`` SDK, unchanged, through a socket."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from tests.emulator.conftest import BGE, GEMMA, LLAMA
from tests.emulator.test_chat import GREETING

from workers_ai_emulator import Emulator

cloudflare = pytest.importorskip("cloudflare", reason="cloudflare is in the group 'test'")

if TYPE_CHECKING:
    from collections.abc import Iterator

ACCOUNT = {"account_id": "acct"}


@pytest.fixture(scope="module")
def client() -> Iterator[Any]:
    with Emulator().serve() as url, cloudflare.Cloudflare(base_url=url, api_token="token", max_retries=0) as client:
        yield client


def test_chat_of_both_families(client: Any) -> None:
    ask = [{"role": "user", "content": "Hello"}]
    native = client.ai.run(LLAMA, messages=ask, **ACCOUNT)
    newer = client.ai.run(GEMMA, messages=ask, **ACCOUNT)

    assert native["response"] == GREETING
    assert newer["choices"][0]["message"]["content"] == GREETING


def test_embeddings(client: Any) -> None:
    result = client.ai.run(BGE, text=["a", "b"], **ACCOUNT)

    assert result["shape"] == [2, 768]
    assert len(result["data"][1]) == 768


def test_the_catalogue_is_paged(client: Any) -> None:
    names = [row["name"] if isinstance(row, dict) else row.name for row in client.ai.models.list(**ACCOUNT)]

    assert BGE in names


def test_a_schema(client: Any) -> None:
    schema = client.ai.models.schema.get(model=BGE, **ACCOUNT)

    assert schema.input
    assert schema.output


def test_the_token_is_verified(client: Any) -> None:
    assert client.user.tokens.verify().status == "active"


@pytest.mark.parametrize(
    ("model", "body", "code"), [("@cf/no/model", {"text": "a"}, 7000), (BGE, {"text": [""]}, 5006)]
)
def test_errors_have_their_code(client: Any, model: str, body: dict[str, Any], code: int) -> None:
    with pytest.raises(cloudflare.BadRequestError) as caught:
        client.ai.run(model, **body, **ACCOUNT)

    assert code == caught.value.errors[0].code


def test_a_wrong_token_is_an_authentication_error() -> None:
    with (
        Emulator().serve() as url,
        cloudflare.Cloudflare(base_url=url, api_token="bad-token", max_retries=0) as client,
        pytest.raises(cloudflare.AuthenticationError),
    ):
        client.ai.run(BGE, text="a", **ACCOUNT)
