"""The command, the fixtures and the upstream."""

from __future__ import annotations

import importlib.metadata
import json
import pathlib
import re
import signal
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import httpx
import pytest
from tests.emulator.conftest import BGE, GEMMA, LLAMA, code_of, events_of, user

from workers_ai_emulator import Emulator, QueueSettings, Upstream
from workers_ai_emulator.cli.command import argument_parser, build, main

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.emulator.conftest import Api

pytest_plugins = ["pytester"]


def test_the_command_serves_until_it_is_stopped(tmp_path: pathlib.Path) -> None:
    port_file = tmp_path / "port"
    command = [
        sys.executable,
        "-m",
        "workers_ai_emulator",
        "--port",
        "0",
        "--port-file",
        str(port_file),
        "--slots",
        "3",
    ]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        lines = [process.stdout.readline() for _ in range(4)]
        url = lines[1].removeprefix("export CLOUDFLARE_BASE_URL=").strip()
        reply = httpx.post(f"{url}/accounts/a/ai/run/{BGE}", json={"text": "a"}, headers={"authorization": "Bearer t"})
        state = httpx.get(url.replace("/client/v4", "/__emulator__/state")).json()
        port = port_file.read_text()
        process.send_signal(signal.SIGTERM)
        status = process.wait(timeout=60)

    assert f"Workers AI emulator (not Cloudflare) at {url}\n" == lines[0]
    assert url == f"http://127.0.0.1:{port}/client/v4"
    assert all(re.match(r"export CLOUDFLARE_(ACCOUNT_ID|API_TOKEN)=\S+\n", line) for line in lines[2:])
    assert (reply.status_code, state["capacity"]["slots"], status) == (200, 3, 0)


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (["--host", "0.0.0.0"], "add --allow-remote"),
        (["--host", "example.org"], "add --allow-remote"),
        (["--quota-code", "1"], "invalid choice"),
    ],
)
def test_the_command_rejects_invalid_arguments(
    arguments: list[str], error: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(arguments)

    assert error in capsys.readouterr().err


def test_a_port_in_use_prints_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    with Emulator().serve() as url:
        status = main(["--port", str(httpx.URL(url).port)])
    printed = capsys.readouterr().err

    assert status == 1
    assert len(printed.splitlines()) == 1
    assert "cannot listen on 127.0.0.1" in printed


def test_arguments_become_settings() -> None:
    line = (
        "--latency 0.5 --max-wait 9 --neurons-per-day 10 --quota-code 3036 --enforce-rpm --free-plan --batch-seconds 30"
    )
    emulator = build(argument_parser().parse_args(line.split()))

    assert (emulator.settings.latency_s, emulator.settings.paid_plan) == (0.5, False)
    assert (
        emulator.capacity.max_wait_s,
        emulator.limits.neurons_per_day,
        emulator.limits.quota_code,
        emulator.limits.enforce_rpm,
    ) == (9, 10, 3036, True)
    assert (emulator.queue.settings.progress, emulator.queue.settings.seconds) == ("seconds", 30)
    assert build(argument_parser().parse_args(["--batch-polls", "7"])).queue.settings.polls == 7
    assert build(argument_parser().parse_args(["--upstream", "http://127.0.0.1:1/v1"])).service.upstream is not None


def test_an_unknown_setting_raises() -> None:
    with pytest.raises(TypeError, match="latency"):
        Emulator(latency=1)
    with pytest.raises(ValueError, match="choose one of"):
        Emulator(unsupported_tools="drop")
    with pytest.raises(ValueError, match="choose one of"):
        QueueSettings(progress="later")


def test_the_plugin_is_found_by_its_entry_point() -> None:
    (found,) = importlib.metadata.entry_points(group="pytest11", name="workers_ai_emulator")

    assert found.value == "workers_ai_emulator.pytest_plugin"


def test_the_fixtures_return_an_emulator(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    pytester.makepyfile(
        """
        import httpx

        HEADERS = {"authorization": "Bearer t"}
        PATH = "/accounts/a/ai/run/@cf/baai/bge-m3"

        def test_inside(workers_ai_emulator):
            assert workers_ai_emulator.log.requests == 0
            with httpx.Client(transport=workers_ai_emulator.transport(), headers=HEADERS) as http:
                url = "https://api.cloudflare.com/client/v4" + PATH
                assert http.post(url, json={"text": "a"}).status_code == 200

        def test_environment(workers_ai_emulator_env):
            import os

            assert workers_ai_emulator_env.base_url == os.environ["CLOUDFLARE_BASE_URL"]
            assert os.environ["CLOUDFLARE_ACCOUNT_ID"] and os.environ["CLOUDFLARE_API_TOKEN"]

        def test_served(workers_ai_emulator, workers_ai_emulator_url):
            assert httpx.post(workers_ai_emulator_url + PATH, json={"text": "a"}, headers=HEADERS).status_code == 200
            assert workers_ai_emulator.log.requests == 1
        """
    )
    done = pytester.runpytest_inprocess("-p", "workers_ai_emulator.pytest_plugin", "-p", "no:cacheprovider", "-q")

    done.assert_outcomes(passed=3)


def test_the_plugin_imports_the_emulator_on_first_use() -> None:
    code = "import pytest, sys; import workers_ai_emulator.pytest_plugin; print('httpx' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert done.stdout.strip() == "False"


CALL = {"id": "c1", "type": "function", "function": {"name": "clock", "arguments": '{"city": "Oslo"}'}}


@pytest.fixture
def received() -> list[Any]:
    return []


@pytest.fixture
def upstream_api(make_api: Callable[..., Api], received: list[Any]) -> Api:
    def answer(request: httpx.Request) -> httpx.Response:
        body = json.loads(request.content)
        assert request.headers["authorization"] == "Bearer secret-key"
        received.append((request.url.path, body))
        if request.url.path.endswith("/embeddings"):
            rows = [{"index": index, "embedding": [float(len(text)), 1.0]} for index, text in enumerate(body["input"])]
            return httpx.Response(200, json={"data": rows[::-1]})
        text = body["messages"][-1]["content"]
        if text in {"refuse", "fail"}:
            status = 422 if text == "refuse" else 503
            return httpx.Response(status, text="upstream says no to secret-key", headers={"retry-after": "7"})
        if text == "prose":
            return httpx.Response(200, text="no JSON")
        if text == "gone":
            raise httpx.ConnectError("nobody there")
        message: dict[str, Any] = {"role": "assistant", "content": f"upstream: {text}"}
        if body.get("tools"):
            message = {"role": "assistant", "content": None, "reasoning": "hm", "tool_calls": [CALL]}
        if body.get("response_format"):
            message = {"role": "assistant", "content": '{"a": 1}'}
        return httpx.Response(200, json={"choices": [{"message": message, "finish_reason": "stop"}]})

    upstream = Upstream(
        "http://127.0.0.1:11434/v1", "local", "local-vectors", httpx.MockTransport(answer), api_key="secret-key"
    )
    return make_api(upstream=upstream)


def test_upstream_answers_have_the_form_of_the_model(upstream_api: Api, received: list[Any]) -> None:
    native = upstream_api.run(LLAMA, user("hi")).json()["result"]
    newer = upstream_api.run(GEMMA, user("hi")).json()["result"]
    pieces = events_of(upstream_api.run(LLAMA, {**user("hi"), "stream": True}))
    called = upstream_api.chat(GEMMA, "hi", tools=[{"type": "function", "function": {"name": "clock"}}]).json()
    parsed = upstream_api.run(LLAMA, {**user("hi"), "response_format": {"type": "json_object"}}).json()["result"]

    assert "upstream: hi" == native["response"] == newer["choices"][0]["message"]["content"]
    assert "".join(piece["response"] for piece in pieces[:-1]) == "upstream: hi"
    assert called["choices"][0]["message"]["tool_calls"] == [CALL]
    assert called["choices"][0]["message"]["reasoning_content"] == "hm"
    assert parsed["response"] == {"a": 1}
    assert (received[0][0], received[0][1]["model"]) == ("/v1/chat/completions", "local")


def test_upstream_vectors_are_in_the_order_of_the_texts(upstream_api: Api, received: list[Any]) -> None:
    assert upstream_api.embed(["a", "bb"]).json()["result"]["data"] == [[1.0, 1.0], [2.0, 1.0]]
    assert received[0][1]["model"] == "local-vectors"


@pytest.mark.parametrize(
    ("text", "expected"),
    [("refuse", (422, 8007)), ("fail", (503, 8008)), ("gone", (502, 8008)), ("prose", (502, 8008))],
)
def test_a_failing_upstream_is_an_error_response(upstream_api: Api, text: str, expected: tuple[int, int]) -> None:
    reply = upstream_api.chat(GEMMA, text)

    assert expected == code_of(reply)
    assert "secret-key" not in reply.text
    assert reply.headers.get("retry-after") == ("7" if text in {"refuse", "fail"} else None)
