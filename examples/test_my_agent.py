"""Test your own agent without an account: script answers, cause failures, and read the sent requests.

    pytest test_my_agent.py

The fixture ``workers_ai_emulator_env`` comes with ``workers-ai-emulator``. It starts a local service and sets the
environment variables to it, so that the agent needs no changes for its tests.
"""

from __future__ import annotations

from typing import Any

import pytest
from langchain.agents import create_agent
from langchain_core.messages import AIMessage
from langchain_core.runnables import Runnable
from langchain_core.tools import tool

from langchain_workers_ai import ChatWorkersAI, QuotaExhaustedError, StreamInterruptedError
from workers_ai_emulator import Emulator, Fault

# The agent. In your project, import it.


@tool
def order_status(order: int) -> str:
    """Look up where an order is."""
    return f"Order {order} left the warehouse at 14:02."


def build_agent() -> Runnable[Any, Any]:
    """Return an agent that answers questions about orders."""
    model = ChatWorkersAI(model="@cf/meta/llama-3.3-70b-instruct-fp8-fast", on_busy="retry", temperature=0)
    return create_agent(model, [order_status], system_prompt="Answer questions about orders. Be brief.")


def ask(question: str) -> AIMessage:
    """Return the last message of the agent."""
    answer: AIMessage = build_agent().invoke({"messages": [("user", question)]})["messages"][-1]
    return answer


# The tests.


def test_the_agent_uses_the_tool(workers_ai_emulator_env: Emulator) -> None:
    """Script both turns of the model, then check the requests."""
    workers_ai_emulator_env.faults.add(Fault.call("order_status", order=17), Fault.say("It left at 14:02."))
    assert ask("Where is order 17?").text == "It left at 14:02."
    first, second = (entry.json for entry in workers_ai_emulator_env.log.entries)
    assert first["messages"][0] == {"role": "system", "content": "Answer questions about orders. Be brief."}
    assert [tool["function"]["name"] for tool in first["tools"]] == ["order_status"]
    assert second["messages"][-1]["content"] == "Order 17 left the warehouse at 14:02."


def test_the_agent_without_a_script(workers_ai_emulator_env: Emulator) -> None:
    """The emulator follows rules: it calls a tool that matches the question, and answers from its result."""
    assert "14:02" in ask("Use order_status for order 17: where is it?").text


@pytest.mark.parametrize("failure", [Fault.busy(), Fault.drop(), Fault.html(522)], ids=lambda fault: fault.kind)
def test_a_passing_failure_is_retried(workers_ai_emulator_env: Emulator, failure: Fault) -> None:
    """At capacity, a dropped connection, an error page: the second request succeeds."""
    workers_ai_emulator_env.faults.add(failure, Fault.say("Good morning."))
    assert ask("Hello").text == "Good morning."
    assert workers_ai_emulator_env.log.requests == 2


def test_an_exhausted_allocation_is_not_retried(workers_ai_emulator_env: Emulator) -> None:
    """Retries would be rejected until the reset. The error has the time of the reset."""
    workers_ai_emulator_env.limits.use_up_quota()
    with pytest.raises(QuotaExhaustedError) as raised:
        ask("Hello")
    assert raised.value.resets_at is not None
    assert workers_ai_emulator_env.log.requests == 1


def test_an_interrupted_stream_is_an_error(workers_ai_emulator_env: Emulator) -> None:
    """An interrupted answer never looks like a complete one. The error has the received text."""
    workers_ai_emulator_env.faults.add(Fault.say("The order is in Moss."), Fault.cut(after_events=3))
    stream = build_agent().stream({"messages": [("user", "Hello")]}, stream_mode="messages")
    with pytest.raises(StreamInterruptedError) as raised:
        list(stream)
    assert raised.value.partial == "The order"


def test_the_agent_costs_little(workers_ai_emulator_env: Emulator) -> None:
    """Usage has the form of the service, so that a test can check the cost."""
    usage = ask("Use order_status for order 17: where is it?").usage_metadata
    assert usage is not None
    assert usage["total_tokens"] < 300
