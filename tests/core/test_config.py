"""Settings: from arguments and from the environment; invalid settings."""

from __future__ import annotations

import pickle
from dataclasses import asdict
from typing import Any

import httpx
import pytest
from pydantic import SecretStr
from tests.support import every_row

from workers_ai import AsyncClient, Client, GatewayOptions, Settings
from workers_ai._connection import Connection
from workers_ai._validation import check_model
from workers_ai.errors import ConfigurationError

HEX = "f" * 32


def test_arguments_outrank_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CLOUDFLARE_ACCOUNT_ID", "from-env")
    monkeypatch.setenv("CLOUDFLARE_API_TOKEN", "token-from-env")
    monkeypatch.setenv("CLOUDFLARE_BASE_URL", "https://env.example/client/v4")
    monkeypatch.setenv("CLOUDFLARE_AI_GATEWAY", "gw-env")
    settings = Settings.resolve()
    assert (settings.account_id, settings.api_token.get_secret_value()) == ("from-env", "token-from-env")
    assert (settings.base_url, settings.gateway) == ("https://env.example/client/v4", GatewayOptions("gw-env"))
    given = Settings.resolve(account_id="a", api_token="t", base_url="https://arg.example/client/v4", gateway="gw")
    assert (given.account_id, given.api_token.get_secret_value(), given.base_url) == (
        "a",
        "t",
        "https://arg.example/client/v4",
    )
    assert given.gateway == GatewayOptions("gw")


@pytest.mark.parametrize(
    ("setting", "names"),
    [
        ("account_id", ["CLOUDFLARE_ACCOUNT_ID", "CF_ACCOUNT_ID"]),
        ("api_token", ["CLOUDFLARE_API_TOKEN", "CLOUDFLARE_AUTH_TOKEN", "CF_AI_API_TOKEN", "CF_API_TOKEN"]),
    ],
)
def test_the_first_variable_that_is_set_wins(setting: str, names: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    other = {"account_id": {"api_token": "t"}, "api_token": {"account_id": "a"}}[setting]
    for name in reversed(names):
        monkeypatch.setenv(name, f"value-of-{name}")
        found = getattr(Settings.resolve(**other), setting)
        assert f"value-of-{name}" == (found.get_secret_value() if isinstance(found, SecretStr) else found)
    monkeypatch.setenv(names[0], "  ")
    found = getattr(Settings.resolve(**other), setting)
    assert f"value-of-{names[1]}" == (found.get_secret_value() if isinstance(found, SecretStr) else found)


def test_no_generic_variable_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("BASE_URL", "API_KEY", "API_TOKEN", "ACCOUNT_ID", "OPENAI_API_KEY", "OPENAI_BASE_URL", "GATEWAY"):
        monkeypatch.setenv(name, "https://elsewhere.example")
    with pytest.raises(ConfigurationError, match="CLOUDFLARE_ACCOUNT_ID or CF_ACCOUNT_ID"):
        Settings.resolve(api_token="t")
    with pytest.raises(ConfigurationError, match="CLOUDFLARE_API_TOKEN or CLOUDFLARE_AUTH_TOKEN or CF_AI_API_TOKEN"):
        Settings.resolve(account_id="a")
    assert Settings.resolve(account_id="a", api_token="t").base_url == "https://api.cloudflare.com/client/v4"


def test_white_space_around_credentials_is_removed() -> None:
    settings = Settings.resolve(account_id=f" {HEX}\n", api_token=" secret-token\n")
    assert (settings.account_id, settings.api_token.get_secret_value()) == (HEX, "secret-token")


MALFORMED = {
    "placeholder as account": ({"account_id": "${CLOUDFLARE_ACCOUNT_ID}"}, "CLOUDFLARE_ACCOUNT_ID"),
    "path as account": ({"account_id": "a/../b"}, "CLOUDFLARE_ACCOUNT_ID"),
    "token as account": ({"account_id": "v1.0-secret-token"}, "CLOUDFLARE_ACCOUNT_ID"),
    "the very token as account": ({"account_id": "the-token", "api_token": "the-token"}, "is the API token"),
    "something as long as a token": ({"account_id": "A1b2" * 10}, "or the API token"),
    "placeholder as token": ({"api_token": "${CLOUDFLARE_API_TOKEN}"}, "CLOUDFLARE_API_TOKEN"),
    "two words as token": ({"api_token": "Bearer secret"}, "CLOUDFLARE_API_TOKEN"),
    "letters no header carries": ({"api_token": "sécret"}, "CLOUDFLARE_API_TOKEN"),
    "no URL": ({"base_url": "api.cloudflare.com/client/v4"}, "CLOUDFLARE_BASE_URL"),
    "other scheme": ({"base_url": "ftp://host/client/v4"}, "CLOUDFLARE_BASE_URL"),
    "invalid port": ({"base_url": "https://host:port/client/v4"}, "CLOUDFLARE_BASE_URL"),
    "white space in the URL": ({"base_url": "https://ho st/client/v4"}, "CLOUDFLARE_BASE_URL"),
    "user in the URL": ({"base_url": "https://me:pw@host/client/v4"}, "must not have a user"),
    "query in the URL": ({"base_url": "https://host/client/v4?a=b"}, "must not have a user, query"),
    "another account in the URL": ({"base_url": "https://host/client/v4/accounts/a/ai/v1"}, "contains another account"),
    "dots in the URL": ({"base_url": "https://host/../client/v4"}, "must not contain '..'"),
    "not encrypted": ({"base_url": "http://host.example/client/v4"}, "allow_insecure_http=True"),
    "on_busy": ({"on_busy": "queue"}, "wait, retry, raise"),
    "max_retries": ({"max_retries": -1}, "max_retries must be a whole number 0 or more"),
    "max_retries, a fraction": ({"max_retries": 1.5}, "max_retries"),
    "max_retries, a truth": ({"max_retries": True}, "max_retries"),
    "max_concurrency": ({"max_concurrency": 0}, "max_concurrency must be a whole number 1 or more"),
    "requests_per_minute": ({"requests_per_minute": 0}, "requests_per_minute"),
    "timeout": ({"timeout": 0}, "timeout must be more than 0 and at most"),
    "timeout, no number": ({"timeout": float("nan")}, "timeout"),
    "timeout, a text": ({"timeout": "30"}, "timeout must be seconds or an httpx.Timeout"),
    "header value": ({"default_headers": {"x-a": "secret\r\nx-b: 1"}}, "value of header x-a"),
    "header value, letters": ({"default_headers": {"x-a": "sécret"}}, "value of header x-a"),
    "header value, a number": ({"default_headers": {"x-a": 1}}, "value of header x-a"),
    "header name": ({"default_headers": {"x a": "1"}}, "header name 'x a'"),
    "gateway id": ({"gateway": "my gateway"}, "gateway id"),
    "an empty label": ({"base_url": "https://a..b/client/v4"}, "base_url is malformed"),
    "a long label": ({"base_url": f"https://{'a' * 64}.example/client/v4"}, "base_url is malformed"),
    "an endless timeout": ({"timeout": float("inf")}, "timeout must be more than 0 and at most"),
    **{
        f"account {left!r}": ({"account_id": left}, "CLOUDFLARE_ACCOUNT_ID")
        for left in ("undefined", "None", "null", "YOUR_ACCOUNT_ID", "your-account-id")
    },
    **{
        f"token {left!r}": ({"api_token": left}, "CLOUDFLARE_API_TOKEN")
        for left in ("undefined", "None", "$CLOUDFLARE_API_TOKEN", "<token>", "YOUR_API_TOKEN", "{{token}}")
    },
    "no version in the URL": ({"base_url": "https://api.cloudflare.com"}, "must end with /client/v4"),
    "the gateway's other API": (
        {"base_url": "https://gateway.ai.cloudflare.com/v1/acct/gw/compat"},
        "gateway.ai.cloudflare.com/v1/ACCOUNT/GATEWAY/workers-ai",
    ),
    **{
        f"{name}, of another type": ({name: value}, f"{name} must be")
        for name, value in {
            "account_id": 123,
            "api_token": b"secret",
            "base_url": ["https://host"],
            "default_headers": "secret",
            "gateway": 5,
            "batch_worker": 5,
        }.items()
    },
}


@every_row(("given", "text"), MALFORMED.values())
def test_a_malformed_setting_is_reported_without_secrets(given: dict[str, Any], text: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        Settings.resolve(**{"account_id": HEX, "api_token": "secret-token", **given})
    assert text in str(caught.value)
    for secret in ("secret", "sécret", "me:pw", "A1b2"):
        assert secret not in str(caught.value)
    assert isinstance(caught.value, ValueError)


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "127.9.9.9", "[::1]", "api.localhost"])
def test_plain_http_is_for_this_machine(host: str, account: dict[str, Any]) -> None:
    url = f"http://{host}:8787/client/v4"
    assert Settings.resolve(**account, base_url=url).base_url == url


def test_plain_http_to_other_hosts_needs_an_option(account: dict[str, Any]) -> None:
    url = "http://proxy.example/client/v4"
    assert Settings.resolve(**account, base_url=url, allow_insecure_http=True).base_url == url


@pytest.mark.parametrize(
    ("base_url", "root"),
    [
        ("https://api.cloudflare.com/client/v4", f"https://api.cloudflare.com/client/v4/accounts/{HEX}/ai"),
        ("https://api.cloudflare.com/client/v4///", f"https://api.cloudflare.com/client/v4/accounts/{HEX}/ai"),
        (
            "https://gateway.ai.cloudflare.com/v1/acct/gw",
            "https://gateway.ai.cloudflare.com/v1/acct/gw/workers-ai",
        ),
        (
            "https://gateway.ai.cloudflare.com/v1/acct/gw/workers-ai/",
            "https://gateway.ai.cloudflare.com/v1/acct/gw/workers-ai",
        ),
    ],
)
def test_base_url_of_requests(base_url: str, root: str) -> None:
    assert Settings.resolve(account_id=HEX, api_token="t", base_url=base_url)._root == root


def test_gateway_options_become_headers() -> None:
    assert GatewayOptions("gw").headers() == {"cf-aig-gateway-id": "gw"}
    options = GatewayOptions(
        "gw", token="gw-secret", cache_ttl_s=3600, skip_cache=False, cache_key="k", metadata={"user": 7, "ok": True},
        collect_log=True, event_id="e1", request_timeout_ms=2500, max_attempts=3, retry_delay_ms=0, backoff="linear",
    )  # fmt: skip
    assert options.headers() == {
        "cf-aig-gateway-id": "gw",
        "cf-aig-authorization": "Bearer gw-secret",
        "cf-aig-cache-ttl": "3600",
        "cf-aig-skip-cache": "false",
        "cf-aig-cache-key": "k",
        "cf-aig-metadata": '{"user": 7, "ok": true}',
        "cf-aig-collect-log": "true",
        "cf-aig-event-id": "e1",
        "cf-aig-request-timeout": "2500",
        "cf-aig-max-attempts": "3",
        "cf-aig-retry-delay": "0",
        "cf-aig-backoff": "linear",
    }
    assert "gw-secret" not in repr(options)


@every_row(
    "given",
    [
        {"cache_ttl_s": 59},
        {"cache_ttl_s": 2_592_001},
        {"max_attempts": 0},
        {"max_attempts": 6},
        {"retry_delay_ms": 5001},
        {"request_timeout_ms": 0},
        {"metadata": dict.fromkeys("abcdef", 1)},
        {"backoff": "random"},
        {"cache_key": "clé"},
        {"event_id": "a\nb"},
        {"token": "a\nb"},
    ],
)
def test_gateway_options_out_of_range(given: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError):
        GatewayOptions("gw", **given)


def test_headers_of_a_request(account: dict[str, Any]) -> None:
    settings = Settings.resolve(
        **account, gateway="gw", session_id="thread 7/ü", default_headers={"X-Team": SecretStr("search")}
    )
    assert settings._headers() == {
        "accept": "*/*",
        "authorization": "Bearer token-of-the-tests-0123456789",
        "cf-aig-gateway-id": "gw",
        "x-session-affinity": "thread 7/%C3%BC",
        "x-team": "search",
    }


def test_repr_and_pickle_include_no_secrets(account: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    given = Settings.resolve(**account, default_headers={"x-key": "header-secret"}, gateway=GatewayOptions("g", "gws"))
    own = httpx.Client(transport=httpx.MockTransport(lambda request: httpx.Response(200, json={"response": "a"})))
    client = Client._of(Connection.open(given, http_client=own))
    client.chat("@cf/a", [{"role": "user", "content": "hi"}])
    shown = repr(
        (given, vars(given), asdict(given), *map(vars, (client, client._connection, client._connection.transport)))
    )
    for secret in ("token-of-the-tests", "header-secret", "gws"):
        assert secret not in shown
    assert pickle.loads(pickle.dumps(given)) == given
    monkeypatch.setenv("CF_API_TOKEN", "token-of-this-side")
    from_env = pickle.dumps(Settings.resolve(account_id="a"))
    assert b"token-of-this-side" not in from_env
    monkeypatch.setenv("CF_API_TOKEN", "token-of-that-side")
    assert pickle.loads(from_env).api_token.get_secret_value() == "token-of-that-side"
    monkeypatch.delenv("CF_API_TOKEN")
    with pytest.raises(ConfigurationError, match="CF_API_TOKEN"):
        pickle.loads(from_env)


@pytest.mark.parametrize("make", [Client, AsyncClient])
def test_clients_accept_aliases_and_suggest_the_nearest_name(make: Any, account: dict[str, Any]) -> None:
    client = make(account_id="a", api_key="t-1", request_timeout=7)
    assert (client.settings.api_token.get_secret_value(), client.settings.timeout) == ("t-1", 7)
    with pytest.raises(ConfigurationError, match=r"has no keyword 'max_retry'; did you mean 'max_retries'\?"):
        make(**account, max_retry=3)
    with pytest.raises(ConfigurationError, match="api_token twice, once as api_key"):
        make(**account, api_key="t-1")
    assert "token-of-the-tests" not in repr(make(**account))


def test_a_call_rejects_unknown_keywords(account: dict[str, Any]) -> None:
    client = Client(**account)
    with pytest.raises(ConfigurationError, match="'temprature'; did you mean 'temperature'"):
        client.chat("@cf/a", [], temprature=1)
    with pytest.raises(ConfigurationError, match="on_busy 'queue'"):
        client.chat("@cf/a", [], on_busy="queue")
    with pytest.raises(ConfigurationError, match="'poling'; did you mean 'pooling'"):
        client.embed("@cf/a", ["a"], poling="cls")
    with pytest.raises(ConfigurationError, match="batch_size must be a whole number 1 or more, not -1"):
        client.embed("@cf/a", ["a"], batch_size=-1)
    with pytest.raises(ConfigurationError, match="top_n must be a whole number 0 or more, not -1"):
        client.rerank("@cf/a", "q", ["a"], top_n=-1)


@pytest.mark.parametrize("model", ["@cf/meta/llama-3.3-70b", "@hf/a/b", "deepseek/v4", "dynamic/my-route", "名前"])
def test_any_well_formed_model_is_accepted(model: str) -> None:
    assert check_model(model) == model


@every_row(
    "model", ["", " ", "a b", "../x", "@cf/../x", "a?b", "a#b", "a%2Fb", "a\\b", "/a", "a//b", "a\nb", "a\x00", None, 7]
)
def test_a_model_id_that_changes_the_url_is_rejected(model: Any) -> None:
    with pytest.raises(ConfigurationError, match="malformed"):
        check_model(model)


def test_a_timeout_as_plain_data_becomes_an_httpx_timeout(account: dict[str, Any]) -> None:
    given = httpx.Timeout(5, read=None)
    assert Settings.resolve(**account, timeout=given.as_dict()).timeout == given
    for odd in ({"reed": 5}, {"read": 5}):
        with pytest.raises(ConfigurationError, match="a timeout mapping must have the keys connect, read"):
            Settings.resolve(**account, timeout=odd)


def test_an_httpx_timeout_is_used_unchanged(account: dict[str, Any]) -> None:
    timeout = httpx.Timeout(5, read=60)
    assert Settings.resolve(**account, timeout=timeout).timeout is timeout


@pytest.mark.parametrize(
    "end", ["", "/workers-ai", "/workers-ai/", "/workers-ai/v1", "/workers-ai/run", "/workers-ai/@cf/meta/llama"]
)
def test_all_forms_of_a_gateway_url_are_equal(end: str) -> None:
    base_url = f"https://gateway.ai.cloudflare.com/v1/{HEX}/gw"
    settings = Settings.resolve(account_id=HEX, api_token="t", base_url=base_url + end)
    assert settings._root == f"{base_url}/workers-ai"
