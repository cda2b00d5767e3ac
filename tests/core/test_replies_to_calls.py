"""Calls without a reply, and calls with an invalid 2xx response."""

from __future__ import annotations

from typing import Any

import httpx
import pytest
from tests.support import every_row

from workers_ai import Client
from workers_ai import errors as e

HI = [{"role": "user", "content": "hi"}]
REQUEST = httpx.Request("POST", "https://api.cloudflare.com/client/v4/accounts/x/ai/run/m")

NO_REPLY = {
    "connecting": (httpx.ConnectTimeout, e.APITimeoutError, "did not answer in time while connecting", False),
    "a connection": (httpx.PoolTimeout, e.APITimeoutError, "while waiting for a connection", False),
    "sending": (httpx.WriteTimeout, e.APITimeoutError, "while sending", True),
    "reading": (httpx.ReadTimeout, e.APITimeoutError, "while waiting for the response", True),
    "refused": (httpx.ConnectError, e.APIConnectionError, "no response from api.cloudflare.com: text", False),
    "broken while sending": (httpx.WriteError, e.APIConnectionError, "no response from api.cloudflare.com: text", True),
    "broken while reading": (httpx.ReadError, e.APIConnectionError, "no response from api.cloudflare.com: text", True),
    "closed": (httpx.RemoteProtocolError, e.APIConnectionError, "no response from api.cloudflare.com: text", True),
}


@every_row(("failure", "error", "says", "delivered"), NO_REPLY.values())
def test_a_missing_reply_raises_with_host_and_whether_the_request_may_have_arrived(
    failure: type[httpx.RequestError], error: type[e.APIConnectionError], says: str, delivered: bool, face: Any
) -> None:
    tries = 0

    def fail(request: httpx.Request) -> httpx.Response:
        nonlocal tries
        tries += 1
        raise failure("text", request=REQUEST)

    with pytest.raises(error, match=says) as caught:
        face(fail).chat("@cf/a", HI)
    assert type(caught.value) is error
    assert (caught.value.delivered, caught.value.model, caught.value.attempts, tries) == (delivered, "@cf/a", 3, 3)


def test_a_proxy_with_an_impossible_port_is_a_connection_error(face: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTPS_PROXY", "http://127.0.0.1:99999")
    with pytest.raises(
        e.APIConnectionError, match=r"no response from api.cloudflare.com: .*Check .* the proxy settings"
    ):
        face(None, max_retries=0).chat("@cf/a", HI)


def test_a_closed_client_of_the_caller_is_in_the_error(account: dict[str, Any]) -> None:
    own = httpx.Client(transport=httpx.MockTransport(lambda request: httpx.Response(200)))
    own.close()
    for call in (Client(http_client=own, **account).chat, Client(http_client=own, **account).stream_chat):
        with pytest.raises(e.ConfigurationError, match="the HTTP client has been closed: pass an http_client"):
            list(call("@cf/a", HI))


def test_the_token_is_not_in_the_text_of_a_failure(face: Any) -> None:
    def fail(request: httpx.Request) -> httpx.Response:
        raise httpx.ConnectError(f"proxy said {request.headers['authorization']}", request=request)

    with pytest.raises(e.APIConnectionError) as caught:
        face(fail).chat("@cf/a", HI)
    assert "token-of-the-tests" not in str(caught.value) + repr(vars(caught.value))


@pytest.mark.parametrize(("tokens", "text", "finish"), [(7, "null", "stop"), (8, "", "length")])
def test_null_in_json_mode_is_an_answer_unless_reasoning_used_max_tokens(
    tokens: int, text: str, finish: str, face: Any
) -> None:
    usage = {"prompt_tokens": 1, "completion_tokens": tokens, "total_tokens": 1 + tokens}
    one = face(lambda request: httpx.Response(200, json={"result": {"response": None, "usage": usage}}))
    reply = one.chat("@cf/a", HI, api="run", response_format={"type": "json_object"}, max_tokens=8)
    assert (reply.text, reply.finish_reason) == (text, finish)


@every_row(
    ("content", "says"),
    [
        ("", "HTTP 200 with an empty body"),
        (" \n", "HTTP 200 with an empty body"),
        ("<html>hi</html>", "HTTP 200 with a body that is not JSON"),
        ('{"result": {"resp', "HTTP 200 with a body that is not JSON"),
    ],
)
@pytest.mark.parametrize("call", ["chat", "stream", "embed", "rerank"])
def test_an_invalid_2xx_response_raises(call: str, content: str, says: str, face: Any) -> None:
    arguments = {
        "chat": ("@cf/a", HI),
        "stream": ("@cf/a", HI),
        "embed": ("@cf/a", ["a"]),
        "rerank": ("@cf/a", "q", ["a"]),
    }
    one = face(lambda request: httpx.Response(200, headers={"cf-ray": "8a1-AMS"}, content=content))
    with pytest.raises(e.APIResponseValidationError, match=says) as caught:
        getattr(one, call)(*arguments[call])
    assert (caught.value.status_code, caught.value.request_id, caught.value.is_retryable) == (200, "8a1-AMS", False)
    assert caught.value.attempts == 1


@pytest.mark.parametrize("way", ["chat", "stream", "embed"])
def test_neurons_of_the_header_count_where_the_reply_has_no_usage(way: str, face: Any) -> None:
    def answer(request: httpx.Request) -> httpx.Response:
        headers = {"cf-ai-neurons": "1.25"}
        if way == "stream":
            headers["content-type"] = "text/event-stream"
            return httpx.Response(200, headers=headers, text='data: {"response":"ok"}\n\ndata: [DONE]\n\n')
        return httpx.Response(200, headers=headers, json={"result": {"response": "ok", "data": [[1.0]]}})

    one = face(answer)
    got = one.embed("@cf/a/b", ["a"]) if way == "embed" else getattr(one, way)("@cf/a/b", [{"content": "hi"}])
    usage = got[-1].usage if way == "stream" else got.usage
    assert (usage.neurons, usage.total_tokens) == (1.25, 0)
