"""``workers-ai doctor``: every fault is reported with a remedy, and the token is never printed."""

from __future__ import annotations

import json
import socket
import ssl
from importlib import metadata
from typing import Any

import httpx
import pytest

from workers_ai.cli._doctor import local, service
from workers_ai_emulator import Emulator, Fault

Checks = dict[str, dict[str, str]]


def examine(workers_ai: Any, *arguments: str) -> Checks:
    """Return the checks by name. If a check has two results, return the last one."""
    report = json.loads(workers_ai("doctor", "--json", *arguments, status=None).stdout)
    checks = {check["check"]: check for check in report["checks"]}
    assert report["ok"] is all(check["status"] != "failed" for check in report["checks"])
    assert [
        check for check in checks.values() if not check["remedy"] and check["status"] in ("failed", "warning")
    ] == []
    return checks


def status(checks: Checks) -> dict[str, str]:
    return {name: check["status"] for name, check in checks.items() if check["status"] not in ("ok", "skipped")}


def test_all_checks_pass(workers_ai: Any, emulator: Emulator, account: dict[str, Any]) -> None:
    result = workers_ai("doctor")
    lines = result.stdout.splitlines()
    assert [line.split(maxsplit=2)[:2] for line in lines[:-1]] == [
        ["ok", "python"], ["ok", "packages"], ["ok", "dependencies"], ["ok", "account"], ["ok", "base"],
        ["ok", "proxy"], ["ok", "certificates"], ["ok", "connection"], ["ok", "tls"], ["ok", "clock"], ["ok", "token"],
        ["ok", "models"], ["ok", "call"],
    ]  # fmt: skip
    assert lines[-1] == "no problem found"
    assert f"{account['account_id']} from CLOUDFLARE_ACCOUNT_ID" in result.stdout
    assert "\x1b" not in result.stdout
    assert emulator.log.requests == 3
    assert emulator.log.entries[-1].json == {"text": ["doctor"], "options": {"rejectIfBusy": True}}


def test_errors_end_with_status_1_and_a_remedy(workers_ai: Any, emulator: Emulator) -> None:
    emulator.settings.accounts = ["another"]
    lines = workers_ai("doctor", status=1).stdout.splitlines()
    assert lines[-1] == "failed: models, call"
    assert lines[-2].strip().startswith("-> copy the account id from https://dash.cloudflare.com")


def test_all_missing_settings_are_reported_and_nothing_is_sent(
    workers_ai: Any, emulator: Emulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("CLOUDFLARE_ACCOUNT_ID")
    monkeypatch.delenv("CLOUDFLARE_API_TOKEN")
    result = workers_ai("doctor", status=1)
    account, token = (line for line in result.stdout.splitlines() if line.startswith("failed  "))
    assert "set CLOUDFLARE_ACCOUNT_ID or CF_ACCOUNT_ID" in account
    assert "set CLOUDFLARE_API_TOKEN or" in token
    assert emulator.log.requests == 0


@pytest.mark.parametrize(
    ("settings", "problems", "remedy"),
    [
        ({"tokens": []}, {"token": "failed", "call": "failed"}, "create a token"),
        ({"unpermitted": True}, {"models": "warning", "call": "failed"}, "permission Workers AI Read"),
        ({"unlisted": True}, {"models": "warning"}, "only `workers-ai models --check`"),
        ({"owned": True}, {}, ""),
        ({"accounts": []}, {"models": "failed", "call": "failed"}, "copy the account id"),
    ],
    ids=["rejected token", "no permission", "no list of models", "token of the account", "unknown account"],
)
def test_tokens_and_accounts(
    workers_ai: Any, emulator: Emulator, account: dict[str, Any], settings: dict[str, Any], problems: Any, remedy: str
) -> None:
    names = {"unpermitted": "unpermitted_tokens", "unlisted": "list_refused_tokens", "owned": "account_tokens"}
    for name, value in settings.items():
        setattr(emulator.settings, names.get(name, name), [account["api_token"]] if value is True else value)
    checks = examine(workers_ai)
    assert status(checks) == problems
    if problems:
        assert remedy in checks[list(problems)[-1]]["remedy"]
    assert "owned" not in settings or "account token" in checks["token"]["detail"]


STATE = {"success": True, "errors": [], "messages": []}
LATER = "2099-01-01T00:00:00Z"


@pytest.mark.parametrize(
    ("reply", "expected", "says"),
    [
        (Fault.reply(STATE | {"result": {"status": "expired"}}), "failed", "is expired"),
        (Fault.reply(STATE | {"result": {"status": "disabled"}}), "failed", "is disabled"),
        (Fault.reply(STATE | {"result": {"status": "active", "expires_on": LATER}}), "ok", f"until {LATER}"),
        (
            Fault.reply(STATE | {"result": {"status": "active", "expires_on": "2026-01-02T00:00:00Z"}}),
            "warning",
            "but expires on 2026-01-02",
        ),
        (Fault.reply(STATE | {"result": None}), "warning", "does not report its state"),
        (Fault.reply("[]"), "warning", "does not report its state"),
        (Fault.error(400, 6003, "Invalid request headers", layer="api"), "failed", "not an API token"),
        (Fault.error(404, 7003, "Could not route", layer="api"), "failed", "is rejected"),
        (Fault.error(500, 7009, "Upstream"), "warning", "HTTP 500 instead of the state"),
    ],
    ids=lambda value: value if isinstance(value, str) else None,
)
def test_states_of_a_token(workers_ai: Any, emulator: Emulator, reply: Fault, expected: str, says: str) -> None:
    emulator.faults.add(reply.on(route="verify"))
    check = examine(workers_ai)["token"]
    assert check["status"] == expected
    assert says in check["detail"]


@pytest.mark.parametrize(
    ("fault", "expected", "says", "remedy"),
    [
        (Fault.busy(), "warning", "code 3040", "try again"),
        (Fault.error(429, 4006, "daily free allocation used up"), "failed", "code 4006", "UTC"),
        (Fault.error(500, 3043, "Internal server error"), "failed", "code 3043", "Retry later"),
        (Fault.error(400, 5006, "Bad input"), "failed", "code 5006", "platform/errors"),
        (Fault.error(403, 5035, "paid plan"), "failed", "code 5035", "Workers Paid plan"),
        (Fault.error(401, 2009, "Unauthorized", layer="gateway"), "failed", "code 2009", "GatewayOptions(id, token="),
        (Fault.error(400, 5007, "No such model"), "failed", "code 5007", "model id"),
        (Fault.drop(), "failed", "no response", "network"),
    ],
    ids=["busy", "quota", "broken", "input", "plan", "gateway", "model", "dropped"],
)
def test_results_of_the_call(
    workers_ai: Any, emulator: Emulator, fault: Fault, expected: str, says: str, remedy: str
) -> None:
    emulator.faults.add(fault.on(route="run"))
    check = examine(workers_ai)["call"]
    assert check["status"] == expected
    assert says in check["detail"]
    assert remedy in check["remedy"]
    assert emulator.log.routes["run"] == 1


def test_an_html_page_instead_of_a_reply_ends_the_checks(workers_ai: Any, emulator: Emulator) -> None:
    emulator.faults.add(Fault.html(200))
    checks = examine(workers_ai)
    assert (checks["connection"]["status"], checks["call"]["status"]) == ("failed", "skipped")
    assert "login page" in checks["connection"]["remedy"]
    assert emulator.log.requests == 1


def refused(kind: type[httpx.HTTPError], cause: Exception) -> Any:
    def send(request: httpx.Request) -> httpx.Response:
        raise kind(str(cause)) from cause

    return httpx.MockTransport(send)


UNTRUSTED = ssl.SSLCertVerificationError(1, "certificate verify failed")
UNTRUSTED.verify_message = "self-signed certificate in certificate chain"


@pytest.mark.parametrize(
    ("transport", "detail", "remedy"),
    [
        (refused(httpx.ConnectError, UNTRUSTED), "is not trusted: self-signed certificate", "SSL_CERT_FILE"),
        (refused(httpx.ConnectError, socket.gaierror(-2, "Name or service not known")), "cannot be resolved", "DNS"),
        (refused(httpx.ConnectError, ConnectionRefusedError(111, "refused")), "refuses", "CLOUDFLARE_BASE_URL"),
        (refused(httpx.ProxyError, OSError("407 Proxy Authentication Required")), "the proxy rejects", "HTTPS_PROXY"),
        (refused(httpx.ConnectTimeout, TimeoutError()), "no connection", "firewall"),
        (refused(httpx.ReadTimeout, TimeoutError()), "does not answer", "proxy"),
        (refused(httpx.RemoteProtocolError, OSError("token-of-the-tests-0123456789")), "[redacted]", "network"),
    ],
    ids=["certificate", "dns", "refused", "proxy", "connect", "silence", "other"],
)
def test_connections_that_fail(
    workers_ai: Any, monkeypatch: pytest.MonkeyPatch, transport: Any, detail: str, remedy: str
) -> None:
    monkeypatch.setattr("workers_ai._transports.clients._client_options", lambda *_: {"transport": transport})
    checks = examine(workers_ai)
    assert detail in checks["connection"]["detail"]
    assert remedy in checks["connection"]["remedy"]
    assert {checks[name]["status"] for name in ("token", "models", "call")} == {"skipped"}


def test_https_to_a_plain_server_and_a_closed_port(workers_ai: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    with Emulator().serve() as url:
        monkeypatch.setenv("CLOUDFLARE_ACCOUNT_ID", "account")
        monkeypatch.setenv("CLOUDFLARE_API_TOKEN", "token-of-the-tests-0123456789")
        checks = examine(workers_ai, "--base-url", url.replace("http://", "https://"))
    assert "no TLS connection to 127.0.0.1" in checks["connection"]["detail"]
    checks = examine(workers_ai, "--base-url", url)
    assert "start `workers-ai-emulator`" in checks["connection"]["remedy"]


class InspectedTLS:
    """A network stream through a proxy that inspects TLS."""

    def get_extra_info(self, name: str) -> Any:
        return self if name == "ssl_object" else None

    def getpeercert(self) -> dict[str, Any]:
        issuer = ((("countryName", "NO"),), (("organizationName", "Inspector Ltd"), ("commonName", "Root")))
        return {"issuer": issuer, "notAfter": "Jan  5 00:00:00 2027 GMT"}

    def version(self) -> str:
        return "TLSv1.3"


def test_the_issuer_of_the_certificate_is_shown(
    workers_ai: Any, emulator: Emulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    def send(request: httpx.Request) -> httpx.Response:
        response = emulator.transport().handle_request(request)
        response.extensions["network_stream"] = InspectedTLS()
        return response

    transport = httpx.MockTransport(send)
    monkeypatch.setattr("workers_ai._transports.clients._client_options", lambda *_: {"transport": transport})
    detail = examine(workers_ai)["tls"]["detail"]
    assert detail == "TLSv1.3, certificate of Inspector Ltd until Jan  5 00:00:00 2027 GMT"


def test_a_clock_that_is_wrong(workers_ai: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    now = service.time.time()
    monkeypatch.setattr(service, "time", type("Clock", (), {"time": lambda: now - 4000, "monotonic": lambda: now}))
    check = examine(workers_ai)["clock"]
    assert check["status"] == "warning"
    assert "s behind the server's" in check["detail"]


def test_the_proxy_is_shown_without_its_password(workers_ai: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTPS_PROXY", "http://me:secret@proxy.example:3128")
    assert examine(workers_ai)["proxy"]["detail"] == "http://proxy.example:3128 for api.cloudflare.com"
    monkeypatch.setenv("NO_PROXY", "api.cloudflare.com")
    assert examine(workers_ai)["proxy"]["detail"] == "none"


def test_certificates_of_the_environment(workers_ai: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", "missing.pem")
    check = examine(workers_ai)["certificates"]
    assert (check["status"], check["detail"]) == ("failed", "SSL_CERT_FILE=missing.pem does not exist")
    monkeypatch.setenv("SSL_CERT_FILE", __file__)
    assert examine(workers_ai)["certificates"]["detail"] == f"{__file__} from SSL_CERT_FILE"


def test_dependencies_out_of_range_are_reported(workers_ai: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    version = metadata.version
    wrong = {"httpx": "0.27.2", "langchain-workers-ai": "0.0.9", "workers-ai": "0.0.9"}
    monkeypatch.setattr(local.metadata, "version", lambda name: wrong.get(name) or version(name))
    report = json.loads(workers_ai("doctor", "--json", status=1).stdout)
    failed = {check["detail"]: check["remedy"] for check in report["checks"] if check["status"] == "failed"}
    assert failed["workers-ai requires httpx <0.29,>=0.28; 0.27.2 is installed"] == "pip install 'httpx<0.29,>=0.28'"
    assert any(text.startswith("langchain-workers-ai requires workers-ai ==") for text in failed)


def test_a_gateway_is_tested_by_the_call(workers_ai: Any, emulator: Emulator) -> None:
    checks = examine(workers_ai, "--gateway", "mine")
    assert checks["gateway"]["detail"] == "mine from --gateway"
    assert emulator.log.entries[-1].headers["cf-aig-gateway-id"] == "mine"
    checks = examine(
        workers_ai, "--base-url", "https://gateway.ai.cloudflare.com/v1/0123456789abcdef0123456789abcdef/mine"
    )
    assert [checks[name]["status"] for name in ("token", "models", "call")] == ["skipped", "skipped", "ok"]
