"""``workers-ai probe``: the questions match the emulator's switches, and every position of every switch is detected."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml
from typer.testing import CliRunner

import workers_ai
from workers_ai import Settings
from workers_ai.cli._app import app
from workers_ai.cli._probe.calls import Call
from workers_ai.cli._probe.questions import QUESTIONS, max_requests, select, total_cost_usd
from workers_ai.cli._probe.report import Report
from workers_ai.cli._probe.run import run
from workers_ai.cli._probe.session import MAX_REQUESTS, ProbeStoppedError, Session
from workers_ai.cli._probe.state import read_state
from workers_ai.errors import ConfigurationError
from workers_ai_emulator import SWITCHES, Emulator, Fault, Switch

BY_NAME = {question.name: question for question in QUESTIONS}


@pytest.fixture
def settings() -> Settings:
    return Settings.resolve(account_id="0123456789abcdef0123456789abcdef", api_token="secret-token")


def session_on(emulator: Emulator, settings: Settings, jobs: dict[str, str] | None = None) -> Session:
    return Session(
        settings, jobs, http_client=httpx.Client(transport=emulator.transport()), wait=emulator.clock.advance
    )


def probe(emulator: Emulator, settings: Settings, folder: Path, *names: str, **options: Any) -> Report:
    state = read_state(folder / "state.json", settings)
    return run(select(names), session_on(emulator, settings, state.jobs), state, settings=settings, **options)


def test_every_switch_is_a_question_with_the_same_words_and_positions() -> None:
    asked = {one.name: (one.text, one.positions) for one in QUESTIONS if not one.where}

    assert asked == {switch.name: (switch.question, switch.positions) for switch in SWITCHES}
    assert len(BY_NAME) == len(QUESTIONS)


def test_every_other_question_has_the_file_with_the_assumption() -> None:
    files = [question.where.split()[0] for question in QUESTIONS if question.where]

    assert [file for file in files if not (Path(workers_ai.__file__).parents[1] / file).is_file()] == []


def test_a_run_is_cheap() -> None:
    assert max_requests(QUESTIONS) <= MAX_REQUESTS == 60
    assert total_cost_usd(QUESTIONS) < 0.05


def test_every_choice_agrees_with_the_emulator(settings: Settings, tmp_path: Path) -> None:
    report = probe(Emulator(), settings, tmp_path)

    assert {one.question.name: one.answer_text for one in report.findings if one.status != "agrees"} == {}
    assert report.sent <= MAX_REQUESTS


@pytest.mark.parametrize("switch", SWITCHES, ids=lambda switch: switch.name)
def test_each_position_of_each_switch_is_noticed(switch: Switch, settings: Settings, tmp_path: Path) -> None:
    for number, position in enumerate(switch.positions):
        emulator, folder = Emulator(), tmp_path / str(number)
        folder.mkdir()
        switch.set(emulator, position)

        (finding,) = probe(emulator, settings, folder, switch.name).findings

        assert (finding.open_because, finding.answer) == (None, position)
        assert finding.status == ("agrees" if position == switch.default else "differs")
        assert switch.name in finding.change


def test_with_all_switches_moved_at_once_each_is_noticed(settings: Settings, tmp_path: Path) -> None:
    emulator = Emulator()
    moved = [switch for switch in SWITCHES if switch.name not in ("json_mode_status", "bad_item")]
    for switch in moved:
        switch.set(emulator, switch.positions[-1])

    report = probe(emulator, settings, tmp_path)

    found = {one.question.name: one.answer for one in report.findings if one.status == "differs"}
    assert found == {switch.name: switch.positions[-1] for switch in moved}
    for change in report.changes:
        assert change in report.markdown()


def test_an_interrupted_run_keeps_its_answers_and_continues(
    settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    emulator, sent = Emulator(), Session.send

    def interrupted(self: Session, call: Call) -> Any:
        if self.sent >= 8:
            raise KeyboardInterrupt
        return sent(self, call)

    with monkeypatch.context() as patch:
        patch.setattr(Session, "send", interrupted)
        first = probe(emulator, settings, tmp_path)
    kept = json.loads((tmp_path / "state.json").read_text())
    second = probe(emulator, settings, tmp_path)

    assert 0 < len(first.of_status("agrees")) < len(QUESTIONS)
    assert {one.open_because for one in first.of_status("open")} == {"not tested: interrupted"}
    assert len(kept["answers"]) == len(first.of_status("agrees"))
    assert len(second.of_status("agrees")) == len(QUESTIONS)
    assert first.sent + second.sent <= MAX_REQUESTS
    assert "secret-token" not in (tmp_path / "state.json").read_text()
    assert probe(emulator, settings, tmp_path).sent == 0


def test_a_batch_that_is_not_done_is_collected_by_the_next_run(settings: Settings, tmp_path: Path) -> None:
    emulator = Emulator()
    emulator.queue.settings.progress = "never"
    (first,) = probe(emulator, settings, tmp_path, "error_key").findings
    emulator.queue.settings.progress = "at_once"
    (second,) = probe(emulator, settings, tmp_path, "error_key").findings

    assert "still in the queue" in str(first.open_because)
    assert second.answer == "error"
    assert emulator.queue.submitted == 1


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        (Fault.error(403, 10000, "Authentication error", times=None, route="submit"), "403"),
        (Fault.error(429, 3040, "Capacity temporarily exceeded", times=None, route="submit"), "3040"),
        (Fault.reply({"success": True, "result": []}, times=None, route="submit"), "without a result object"),
        (Fault.error(500, None, "Internal error", times=None, route="submit"), "500"),
    ],
    ids=["not-allowed", "at-capacity", "unknown-shape", "internal-error"],
)
def test_a_question_without_an_answer_stays_open(fault: Fault, reason: str, settings: Settings, tmp_path: Path) -> None:
    emulator = Emulator()
    emulator.faults.add(fault)
    report = probe(emulator, settings, tmp_path)

    left = {one.question.name: str(one.open_because) for one in report.of_status("open")}
    assert {"submit_status", "results_for", "error_key"} <= set(left)
    assert reason in left["submit_status"]
    assert len(left) < 15
    assert not set(left) & set(json.loads((tmp_path / "state.json").read_text())["answers"])


@pytest.mark.parametrize(("status", "code"), [(401, 10000), (429, 4006)], ids=["bad-token", "no-quota"])
def test_an_error_of_the_whole_account_ends_the_run(status: int, code: int, settings: Settings, tmp_path: Path) -> None:
    emulator = Emulator()
    emulator.faults.add(Fault.error(status, code, "no", times=None))
    report = probe(emulator, settings, tmp_path)

    assert report.sent == 1
    assert len(report.of_status("open")) == len(QUESTIONS)
    assert f"HTTP {status}" in str(report.findings[0].open_because)


def test_no_run_sends_more_than_its_limit(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    session = session_on(Emulator(), settings)
    session.sent = MAX_REQUESTS
    with pytest.raises(ProbeStoppedError, match="60 requests"):
        session.send(Call("run/@cf/baai/bge-m3", {"text": ["a"]}, "@cf/baai/bge-m3"))


def test_a_state_of_another_account_is_rejected(settings: Settings, tmp_path: Path) -> None:
    probe(Emulator(), settings, tmp_path, "unit_vectors")
    other = Settings.resolve(account_id="another", api_token="secret-token")

    with pytest.raises(ConfigurationError, match="another account"):
        read_state(tmp_path / "state.json", other)
    assert read_state(tmp_path / "state.json", other, anew=True).answers == {}


def test_a_cassette_has_no_secret_and_no_id(settings: Settings, tmp_path: Path) -> None:
    emulator = Emulator()

    def live(request: httpx.Request) -> httpx.Response:
        response = emulator.handle(request)
        del response.headers["x-workers-ai-emulator"]
        response.headers["set-cookie"] = "session=secret"
        return response

    state = read_state(tmp_path / "state.json", settings)
    session = Session(
        settings,
        live_only=True,
        http_client=httpx.Client(transport=httpx.MockTransport(live)),
        wait=emulator.clock.advance,
    )
    run(select(["error_key"]), session, state, settings=settings, cassettes=tmp_path / "live")

    text = (tmp_path / "live" / "error_key.yaml").read_text()
    submitted, *polls = yaml.safe_load(text)["interactions"]
    stand_in = submitted["response"]["body"]["json"]["result"]["request_id"]
    assert not {"secret", settings.account_id, "set-cookie"} & set(
        filter(text.__contains__, ("secret", settings.account_id, "set-cookie"))
    )
    assert stand_in.startswith("00000000-0000-4000-8000-")
    assert [one["request"]["body"]["json"] for one in polls] == [{"request_id": stand_in}] * len(polls)
    assert polls[-1]["response"]["body"]["json"]["result"]["responses"]


@pytest.fixture
def command(workers_ai_emulator_env: Emulator, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Emulator:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("workers_ai.cli._probe.session.PAUSES_S", (0.0, 0.0))
    return workers_ai_emulator_env


def test_the_command_reports_and_returns_its_status(command: Emulator) -> None:
    runner = CliRunner()
    first = runner.invoke(app, ["probe", "--no-record", "--markdown", "report.md"])
    command.settings.unit_vectors = False
    second = runner.invoke(app, ["probe", "--no-record", "--only", "unit_vectors", "--anew"])
    unknown = runner.invoke(app, ["probe", "--only", "no_such_question"])

    assert first.exit_code == 0, first.output
    assert f"{len(QUESTIONS)} agrees, 0 differs, 0 open" in first.output
    assert all(f"`{question.name}`" in Path("report.md").read_text() for question in QUESTIONS)
    assert second.exit_code == 3
    assert "emulator switch `unit_vectors`: set False in place of True" in second.output
    assert unknown.exit_code == 2
    assert "unit_vectors" in unknown.stderr


def test_the_command_records_nothing_of_the_emulator(command: Emulator) -> None:
    result = CliRunner().invoke(app, ["probe"])

    assert result.exit_code == 1
    assert "--no-record" in result.stderr
    assert not Path("cassettes").exists()


def test_a_dry_run_needs_no_account(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("CLOUDFLARE_ACCOUNT_ID", "CLOUDFLARE_API_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    runner = CliRunner(env={"COLUMNS": "200"})
    plan, without_account = runner.invoke(app, ["probe", "--dry-run"]), runner.invoke(app, ["probe"])

    assert plan.exit_code == 0
    assert all(question.name in plan.output for question in QUESTIONS)
    assert f"at most {max_requests(QUESTIONS)} requests" in plan.output
    assert without_account.exit_code == 1
    assert f"{len(QUESTIONS)} questions are open" in without_account.stderr
    assert list(tmp_path.iterdir()) == []
