"""Answers that end early: no call of them runs, no object is created from them, and the error has the reason."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
from llama_index.core.agent.workflow import FunctionAgent
from llama_index.core.base.llms.types import ChatMessage
from llama_index.core.prompts import PromptTemplate
from llama_index.core.tools import FunctionTool
from pydantic import BaseModel
from tests.llama_index.conftest import tool_call
from tests.support import every_row

from workers_ai.errors import APIResponseValidationError

if TYPE_CHECKING:
    from collections.abc import Callable

    from llama_index.llms.workers_ai import WorkersAI
    from tests.llama_index.conftest import Script
    from tests.support import Caller

    Make = Callable[..., WorkersAI]

pytestmark = pytest.mark.filterwarnings("ignore::pydantic.warnings.PydanticDeprecationWarning")

ENDS = pytest.mark.parametrize("finish", ["length", "content_filter"])
ARGUMENTS = pytest.mark.parametrize("arguments", ["", '{"path": "/t'])
USER = [ChatMessage(role="user", content="Tidy up")]


class Options(BaseModel):
    """Options, all with defaults."""

    path: str = "*"


@pytest.fixture
def deleted() -> list[str]:
    """Return the paths that the tool has deleted."""
    return []


@pytest.fixture
def delete(deleted: list[str]) -> FunctionTool:
    def delete(path: str = "*") -> str:
        """Delete files."""
        deleted.append(path)
        return "gone"

    return FunctionTool.from_defaults(delete)


def cut(script: Script, name: str, arguments: str, finish: str, *, streamed: bool) -> None:
    if streamed:
        script.deltas({"tool_calls": [tool_call(name, arguments, index=0)]}, finish=finish)
    else:
        script.completion({"content": "", "tool_calls": [tool_call(name, arguments)]}, finish=finish)


@ENDS
@ARGUMENTS
def test_predict_and_call_runs_no_truncated_call(
    llm: Make, script: Script, call: Caller, delete: FunctionTool, deleted: list[str], arguments: str, finish: str
) -> None:
    cut(script, "delete", arguments, finish, streamed=False)
    with pytest.raises(APIResponseValidationError):
        call(llm(), "predict_and_call", [delete], user_msg="Tidy up")
    assert deleted == []


@ENDS
@ARGUMENTS
@pytest.mark.parametrize("streaming", [True, False])
def test_agent_runs_no_truncated_call(
    llm: Make, script: Script, delete: FunctionTool, deleted: list[str], arguments: str, finish: str, streaming: bool
) -> None:
    cut(script, "delete", arguments, finish, streamed=streaming)

    async def run() -> Any:
        return await FunctionAgent(llm=llm(), tools=[delete], streaming=streaming).run("Tidy up")

    with pytest.raises(APIResponseValidationError):
        asyncio.run(run())
    assert deleted == []


@ENDS
@ARGUMENTS
@pytest.mark.parametrize("form", ["structured_predict", "stream_structured_predict"])
def test_truncated_answer_is_not_an_object_of_defaults(
    llm: Make, script: Script, call: Caller, form: str, arguments: str, finish: str
) -> None:
    cut(script, "Options", arguments, finish, streamed=form.startswith("stream"))
    with pytest.raises(APIResponseValidationError):
        call(llm(), form, Options, PromptTemplate("x"))


@pytest.mark.parametrize("use_schema", [True, False])
@pytest.mark.parametrize("form", ["structured_predict", "stream_structured_predict"])
@every_row(
    ("finish", "says"),
    [("length", "increase max_tokens"), ("content_filter", "a content filter stopped"), ("odd", "finish reason 'odd'")],
)
def test_an_empty_structured_answer_includes_the_reason(
    llm: Make, script: Script, call: Caller, form: str, finish: str, says: str, use_schema: bool
) -> None:
    if form.startswith("stream") and not use_schema:
        script.deltas({"content": ""}, finish=finish)
    else:
        script.completion({"content": ""}, finish=finish)
    with pytest.raises(APIResponseValidationError, match=says):
        call(llm(should_use_structured_outputs=use_schema), form, Options, PromptTemplate("x"))


@pytest.mark.parametrize("form", ["chat_with_tools", "stream_chat_with_tools"])
@pytest.mark.parametrize("finish", ["length", "content_filter", "odd_reason"])
def test_finish_reason_is_kept(
    llm: Make, script: Script, call: Caller, delete: FunctionTool, form: str, finish: str
) -> None:
    cut(script, "delete", '{"path": "/tmp"}', finish, streamed=form.startswith("stream"))
    found = call(llm(), form, [delete], chat_history=USER)
    last = found[-1] if isinstance(found, list) else found
    assert (last.raw["finish_reason"], last.additional_kwargs["finish_reason"]) == (finish, finish)


@pytest.mark.parametrize("form", ["chat", "stream_chat", "complete", "stream_complete"])
def test_object_written_in_the_reasoning_is_parsed(llm: Make, script: Script, call: Caller, form: str) -> None:
    if form.startswith("stream"):
        script.deltas({"reasoning": "It leaves "}, {"reasoning": "at 14:02."})
    else:
        script.completion({"content": None, "reasoning": "It leaves at 14:02."})
    found = call(llm(model="@cf/qwen/qwen3.8-27b"), form, USER if "chat" in form else "When?")
    last = found[-1] if isinstance(found, list) else found
    assert (last.text if "complete" in form else last.message.content) == "It leaves at 14:02."
