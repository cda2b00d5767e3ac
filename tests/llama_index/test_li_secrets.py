"""Token and headers show nowhere; a pickle carries a token only where it was given."""

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
from tests.llama_index.conftest import ACCOUNT, TOKEN, wired

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
    """One call of any of the three."""
    if isinstance(model, WorkersAI):
        return model.chat([ChatMessage(role="user", content="Hello")])
    if isinstance(model, WorkersAIEmbedding):
        return model.get_text_embedding("a")
    from llama_index.core.schema import NodeWithScore, TextNode

    return model.postprocess_nodes([NodeWithScore(node=TextNode(text="a"))], query_str="q")


@pytest.fixture(params=[WorkersAI, WorkersAIEmbedding, WorkersAIRerank])
def make(request: pytest.FixtureRequest, emulator: Emulator) -> Callable[..., Any]:
    """Makes one of the three, with every kind of secret; keywords are further settings."""
    return lambda **settings: request.param(**wired(emulator, **{**SETTINGS, **settings}))


def hidden(*shown: Any) -> bool:
    return not any(secret in str(one) for secret in SECRETS for one in shown)


def test_nothing_that_is_shown_or_dumped_has_a_secret(make: Any) -> None:
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


def test_what_is_hidden_is_sent(make: Any, emulator: Emulator) -> None:
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
def test_no_error_and_no_log_has_a_secret(
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


def test_a_malformed_option_is_told_without_the_token(make: Any) -> None:
    with pytest.raises(ConfigurationError) as caught:
        make(max_retries="many")
    assert hidden(caught.value, "".join(traceback.format_exception(caught.value)))


def test_a_given_token_goes_into_a_pickle_and_works_on_the_other_side(make: Any, emulator: Emulator) -> None:
    twin = pickle.loads(pickle.dumps(make()))
    assert hidden(repr(twin), twin.to_dict())
    assert twin.api_token.get_secret_value() == TOKEN
    twin.http_client = make().http_client
    ask(twin)
    assert emulator.log.last.headers["x-secret"] == HEADER


def test_a_token_of_the_environment_stays_out_of_a_pickle(make: Any, monkeypatch: pytest.MonkeyPatch) -> None:
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
def test_copies_work_and_show_nothing(make: Any, emulator: Emulator, copied: Any) -> None:
    model = make()
    ask(model)
    twin = copied(model)
    assert hidden(repr(twin), twin.to_dict())
    ask(twin)
    ask(model)
    assert emulator.log.statuses == {200: 3}


def test_a_dump_makes_an_equal_model_once_the_token_is_given(make: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    model = make(model="@cf/acme/model-9")
    dump, text = model.to_dict(), model.to_json()
    monkeypatch.setenv("CLOUDFLARE_API_TOKEN", "another-token")
    for twin in (type(model).from_dict(dump), type(model).from_json(text)):
        assert twin.to_dict() == dump
        assert (twin.model, twin.account_id) == ("@cf/acme/model-9", ACCOUNT)
        assert twin.api_token.get_secret_value() == "another-token"


def test_tuning_and_secrets_are_no_part_of_a_dump(make: Any) -> None:
    plain = make(default_headers=None, gateway=None)
    tuned = make(timeout=5, max_retries=9, on_busy="raise", session_id="s", requests_per_minute=7, max_concurrency=3)
    assert tuned.to_dict() == plain.to_dict()
