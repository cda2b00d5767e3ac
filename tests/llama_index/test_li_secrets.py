"""Token and headers are hidden everywhere; a pickle includes a token only if it was passed as an argument."""

from __future__ import annotations

import copy
import logging
import pickle
import traceback
from typing import TYPE_CHECKING, Any

import pytest
from llama_index.core.base.llms.types import ChatMessage
from llama_index.embeddings.workers_ai import WorkersAIEmbedding
from llama_index.llms.workers_ai import GatewayOptions, WorkersAI
from llama_index.postprocessor.workers_ai_rerank import WorkersAIRerank
from tests.support import ACCOUNT, TOKEN, wired

from workers_ai.errors import ConfigurationError, WorkersAIError
from workers_ai_emulator import Fault

if TYPE_CHECKING:
    from collections.abc import Callable

    from workers_ai_emulator import Emulator

GATEWAY_TOKEN = "gateway-token-of-the-tests"
HEADER = "header-of-the-tests"
SECRETS = (TOKEN, GATEWAY_TOKEN, HEADER)
SETTINGS = {
    "default_headers": {"x-secret": HEADER},
    "gateway": GatewayOptions("gw", token=GATEWAY_TOKEN),
}


def ask(model: Any) -> Any:
    """Send one call of any of the three classes."""
    if isinstance(model, WorkersAI):
        return model.chat([ChatMessage(role="user", content="Hello")])
    if isinstance(model, WorkersAIEmbedding):
        return model.get_text_embedding("a")
    from llama_index.core.schema import NodeWithScore, TextNode

    return model.postprocess_nodes([NodeWithScore(node=TextNode(text="a"))], query_str="q")


@pytest.fixture(params=[WorkersAI, WorkersAIEmbedding, WorkersAIRerank])
def make(request: pytest.FixtureRequest, emulator: Emulator) -> Callable[..., Any]:
    """Return a function that creates one of the three, with every kind of secret. Keywords are further settings."""
    return lambda **settings: request.param(**wired(emulator, **{**SETTINGS, **settings}))


def hidden(*shown: Any) -> bool:
    return not any(secret in str(one) for secret in SECRETS for one in shown)


def test_repr_and_dumps_have_no_secret(make: Any) -> None:
    model = make()
    assert hidden(
        repr(model),
        model,
        model.to_dict(),
        model.to_json(),
        model.model_dump(),
        model.model_dump(mode="json"),
        model.model_dump_json(),
        model.client,
        model.async_client,
        model.client.settings,
    )
    if not isinstance(model, WorkersAIRerank):
        assert hidden(model.to_payload())


def test_masked_values_are_sent(make: Any, emulator: Emulator) -> None:
    seen: dict[str, str] = {}
    serve = emulator.flow

    def watched(request: Any) -> Any:
        seen.update(request.headers)
        return serve(request)

    emulator.flow = watched  # type: ignore[method-assign]
    ask(make())
    assert seen["authorization"] == f"Bearer {TOKEN}"
    assert seen["cf-aig-authorization"] == f"Bearer {GATEWAY_TOKEN}"
    assert seen["x-secret"] == HEADER


@pytest.mark.parametrize(
    "fault", [Fault.error(500, 3043, f"echo {TOKEN}", times=None), Fault.html(522, times=None), Fault.drop(times=None)]
)
def test_errors_and_logs_have_no_secret(
    make: Any, emulator: Emulator, caplog: pytest.LogCaptureFixture, fault: Fault
) -> None:
    emulator.faults.add(fault)
    caplog.set_level(logging.DEBUG)
    with pytest.raises(WorkersAIError) as caught:
        ask(make())
    error = caught.value
    assert hidden(error, repr(error), vars(error), error.response and vars_of(error.response))
    assert hidden("".join(traceback.format_exception(error)), caplog.text)
    assert caplog.text


def vars_of(response: Any) -> Any:
    return (response.status_code, response.headers, response.text)


def test_error_for_a_malformed_option_has_no_token(make: Any) -> None:
    with pytest.raises(ConfigurationError) as caught:
        make(max_retries="many")
    assert hidden(caught.value, "".join(traceback.format_exception(caught.value)))


def test_explicit_token_is_pickled(make: Any, emulator: Emulator) -> None:
    twin = pickle.loads(pickle.dumps(make()))
    assert hidden(repr(twin), twin.to_dict())
    assert twin.api_token.get_secret_value() == TOKEN
    twin.http_client = make().http_client
    ask(twin)
    assert emulator.log.last.headers["x-secret"] == HEADER


def test_token_from_environment_is_not_pickled(make: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    kind = type(make())
    monkeypatch.setenv("CLOUDFLARE_API_TOKEN", TOKEN)
    stored = pickle.dumps(kind(account_id=ACCOUNT))
    assert TOKEN.encode() not in stored
    monkeypatch.setenv("CLOUDFLARE_API_TOKEN", "another-token")
    assert pickle.loads(stored).api_token.get_secret_value() == "another-token"
    monkeypatch.delenv("CLOUDFLARE_API_TOKEN")
    with pytest.raises(ConfigurationError, match="CLOUDFLARE_API_TOKEN"):
        pickle.loads(stored)


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, lambda model: model.model_copy(deep=True)])
def test_copies_work_and_hide_secrets(make: Any, emulator: Emulator, copied: Any) -> None:
    model = make()
    ask(model)
    twin = copied(model)
    assert hidden(repr(twin), twin.to_dict())
    ask(twin)
    ask(model)
    assert emulator.log.statuses == {200: 3}


def test_dump_with_a_token_restores_an_equal_model(make: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    model = make(model="@cf/acme/model-9")
    dump, text = model.to_dict(), model.to_json()
    monkeypatch.setenv("CLOUDFLARE_API_TOKEN", "another-token")
    for twin in (type(model).from_dict(dump), type(model).from_json(text)):
        assert twin.to_dict() == dump
        assert (twin.model, twin.account_id) == ("@cf/acme/model-9", ACCOUNT)
        assert twin.api_token.get_secret_value() == "another-token"


def test_dump_has_no_secrets_and_no_connection_settings(make: Any) -> None:
    plain = make(default_headers=None, gateway=None)
    tuned = make(timeout=5, max_retries=9, on_busy="raise", session_id="s", requests_per_minute=7, max_concurrency=3)
    assert tuned.to_dict() == plain.to_dict()
