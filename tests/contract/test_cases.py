"""The cases on the emulator in the process, on a socket, and on recordings of the real service."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from cases import CASES, Case
from record import record
from recording import CASSETTES, EmulatedReplyError, find_problems, not_in_the_cassette, use_cassette
from vcr import patch

from workers_ai import Client
from workers_ai_emulator import Emulator

RECORDED = sorted((CASSETTES / "live").glob("*.yaml"))


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    """Return the URL of an emulator on a socket."""
    with Emulator().serve() as base_url:
        yield base_url


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_on_the_emulator_in_the_process(case: Case, face: Any) -> None:
    case.holds(case.ask(face(Emulator().handle)))


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_on_a_socket(case: Case, face: Any, url: str) -> None:
    case.holds(case.ask(face(None, base_url=url)))


def replayed(path: Path, face: Any) -> None:
    """Check that a recording passes its case and is replayed completely."""
    case = CASES[path.stem]
    with use_cassette(path) as cassette:
        case.holds(case.ask(face(not_in_the_cassette)))
        assert cassette.all_played, path.stem


def test_recordings_of_the_real_service(face: Any) -> None:
    for path in RECORDED:
        assert find_problems(path) == []
        replayed(path, face)


# --- the recorder, with an emulator that looks like the service ---


class ServiceDouble(httpx.BaseTransport):
    """The emulator without its header, with headers of Cloudflare's edge."""

    def __init__(self, **settings: Any) -> None:
        self.inner = Emulator(**settings).transport()

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        reply = self.inner.handle_request(request)
        del reply.headers["x-workers-ai-emulator"]
        reply.headers["cf-ray"] = "8f1c2d3e4f5a6b7c-OSL"
        return reply


@pytest.fixture
def clients(account: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Return a function that creates clients with this transport in place of the network."""
    real = httpx.HTTPTransport.handle_request

    def make(transport: httpx.BaseTransport) -> Client:
        monkeypatch.setattr(
            patch, "_HttpxHttpTransport_handle_request", lambda _, request: transport.handle_request(request)
        )
        return Client(**account, max_retries=0)

    yield make
    assert httpx.HTTPTransport.handle_request is real


@pytest.mark.parametrize("name", ["chat-run-gemma-4-26b-a4b-it", "forced-call-stream", "queue", "unknown-model"])
def test_a_case_is_recorded_and_replays(name: str, clients: Any, face: Any, tmp_path: Path) -> None:
    assert record(name, clients(ServiceDouble()), tmp_path) == ""
    (path,) = tmp_path.iterdir()
    assert find_problems(path) == []
    replayed(path, face)


def test_an_answer_that_fails_its_check_is_not_recorded(clients: Any, tmp_path: Path) -> None:
    problem = record("chat-run-gemma-4-26b-a4b-it", clients(ServiceDouble(neurons_per_day=0)), tmp_path)
    assert "4006" in problem
    assert list(tmp_path.iterdir()) == []


def test_the_recorder_rejects_the_emulator(clients: Any, tmp_path: Path) -> None:
    with pytest.raises(EmulatedReplyError):
        record("chat-run-gemma-4-26b-a4b-it", clients(Emulator().transport()), tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_an_invalid_recording_is_detected() -> None:
    assert find_problems(CASSETTES / "documented" / "run_chat.yaml") == ["run_chat: no cf-ray"]
