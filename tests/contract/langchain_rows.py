"""Run the rows of this suite through LangChain classes of this project and of other packages, with the same checks.

The checks cover what LangChain users see: text, reasoning, calls, finish reason and usage of the message, or whether an
error is raised if there is no answer. The class of an error, neurons, and the partial text of an interrupted stream are
not compared, because only this project has them.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import reduce
from itertools import zip_longest
from operator import add
from typing import Any, Final, NamedTuple

import httpx
from langchain_core.messages import HumanMessage, convert_to_messages
from readers import disagreements, of_message
from shapes import ABSENT, NATIVE, Call, Refused, Sent, Shape, Want, at, envelope, openai
from streamed_replies import STREAMS
from whole_replies import WHOLE

__all__ = ["MAKERS", "REPLIES", "Maker", "read_with", "expressible", "find_differences", "refused", "sent"]

ACCOUNT: Final = "0123456789abcdef0123456789abcdef"
BASE: Final = "https://api.cloudflare.com/client/v4"
HI: Final = [HumanMessage("hi")]

OWN_KEYWORDS: Final = {"extra_body", "on_busy", "session_id"}
"""Parameters of this project's core that no other class has by the same name."""

Handler = Callable[[httpx.Request], httpx.Response]


class Maker(NamedTuple):
    """A class to compare: a function that creates it for a route, and its routes."""

    make: Callable[[str, str, Handler], Any]
    routes: Sequence[str]


def _ours(model: str, route: str, handler: Handler) -> Any:
    from langchain_workers_ai import ChatWorkersAI
    from workers_ai import RetryPolicy

    transport = httpx.MockTransport(handler)
    return ChatWorkersAI(
        model=model,
        api=route,
        account_id=ACCOUNT,
        api_token="token",
        http_client=httpx.Client(transport=transport),
        http_async_client=httpx.AsyncClient(transport=transport),
        retry=RetryPolicy(max_retries=2, base_s=0.0),
    )


def _langchain_cloudflare(model: str, route: str, handler: Handler) -> Any:
    from langchain_cloudflare import ChatCloudflareWorkersAI

    api = "openai_compatible" if route == "chat_completions" else "workers_ai"
    llm = ChatCloudflareWorkersAI(model=model, account_id=ACCOUNT, api_token="token", endpoint_format=api)
    transport = httpx.MockTransport(handler)
    llm.client = httpx.Client(base_url=BASE, transport=transport)
    llm.async_client = httpx.AsyncClient(base_url=BASE, transport=transport)
    return llm


def _langchain_openai(model: str, route: str, handler: Handler) -> Any:
    from langchain_openai import ChatOpenAI

    transport = httpx.MockTransport(handler)
    return ChatOpenAI(
        model=model,
        base_url=f"{BASE}/accounts/{ACCOUNT}/ai/v1",
        api_key="token",
        stream_usage=True,
        http_client=httpx.Client(transport=transport),
        http_async_client=httpx.AsyncClient(transport=transport),
    )


MAKERS: Final = {
    "langchain-workers-ai": Maker(_ours, ("run", "chat_completions")),
    "langchain-cloudflare": Maker(_langchain_cloudflare, ("run", "chat_completions")),
    "langchain-openai": Maker(_langchain_openai, ("chat_completions",)),
}

REPLIES: Final = {
    "whole": [(shape, False) for shape in WHOLE],
    "whole, asked to stream": [(shape, True) for shape in WHOLE],
    "streamed": [(shape, True) for shape in STREAMS],
}


def _bound(llm: Any, params: dict[str, Any]) -> Any:
    """Return the model with the parameters of a row, as LangChain keywords."""
    if tools := params.pop("tools", None):
        choice = params.pop("tool_choice", None)
        choice = "any" if choice == "required" else choice
        llm = llm.bind_tools(list(tools), **({"tool_choice": choice} if choice else {}))
    return llm.bind(**params) if params else llm


async def _astream(llm: Any) -> list[Any]:
    return [chunk async for chunk in llm.astream(HI)]


def _message(llm: Any, mode: str, *, stream: bool) -> Any:
    if not stream:
        return llm.invoke(HI) if mode == "sync" else asyncio.run(llm.ainvoke(HI))
    return reduce(add, list(llm.stream(HI)) if mode == "sync" else asyncio.run(_astream(llm)))


def read_with(maker: Maker, shape: Shape, route: str, mode: str, *, stream: bool) -> Want:
    """Return the value that a class reads from a reply; for an error, the name of its class."""

    def answer(request: httpx.Request) -> httpx.Response:
        if shape.streamed:
            headers = {"content-type": "text/event-stream; charset=utf-8", **shape.headers}
            return httpx.Response(200, headers=headers, content=shape.stream_bytes())
        headers = {"content-type": "application/json", **shape.headers}
        return httpx.Response(200, headers=headers, content=shape.whole_body(route))

    try:
        llm = _bound(maker.make(shape.model, route, answer), dict(shape.params))
        return of_message(_message(llm, mode, stream=stream))
    except Exception as exc:  # noqa: BLE001 - any exception counts as an error
        return Want(error=type(exc).__name__)


def find_differences(want: Want, got: Want) -> list[str]:
    """Return the differences from the expected value."""
    if want.error or got.error:
        return [] if want.error and got.error else ["raised" if got.error else "no error"]
    got = replace(got, calls=tuple(_unclosed(call, one) for call, one in zip_longest(got.calls, want.calls) if call))
    fields = ["text", "calls", "finish"]
    fields += ["reasoning"] if want.reasoning else []
    fields += ["usage"] if want.usage else []
    fields += ["cached"] if want.cached is not None else []
    return disagreements(want, got, fields)


def _unclosed(call: Call, wanted: Call | None) -> Call:
    """Return an invalid call without the suffix that prevents LangChain from completing its arguments."""
    broken = wanted is not None and isinstance(wanted.args, str) and isinstance(call.args, str)
    return replace(call, args=wanted.args) if wanted and broken and call.args.startswith(wanted.args) else call


def expressible(row: Sent) -> bool:
    """Return whether a request can be expressed in LangChain: only messages and parameters."""
    if row.settings or row.sends_headers or row.path or not row.api[0] or OWN_KEYWORDS & row.params.keys():
        return False
    objects = [one for one in row.messages if one["role"] == "tool" and not isinstance(one["content"], str | None)]
    if any("text" not in str(one["content"]) for one in objects):  # LangChain converts them to text itself
        return False
    try:
        convert_to_messages([dict(message) for message in row.messages])
    except (TypeError, ValueError):
        return False
    return True


def sent(maker: Maker, row: Sent, route: str, mode: str) -> list[str]:
    """Return the differences of a class's request from the expected request."""
    bodies: list[Any] = []

    def answer(request: httpx.Request) -> httpx.Response:
        bodies.append(json.loads(request.content))
        return httpx.Response(200, json=envelope({"response": "{}"}) if route == "run" else openai("{}"))

    messages = convert_to_messages([dict(message) for message in row.messages])
    try:
        llm = _bound(maker.make(row.model, route, answer), dict(row.params))
        llm.invoke(messages) if mode == "sync" else asyncio.run(llm.ainvoke(messages))
    except Exception as exc:  # noqa: BLE001 - any class is accepted
        return [] if row.error and not bodies else [f"raised {type(exc).__name__}"]
    if row.error:
        return ["sent, and not refused"]
    wanted = {**row.has, **(row.run if route == "run" else row.chat)}
    found = {path: at(bodies[0], path) for path in wanted}
    wrong = [f"{path} is {found[path]!r}" for path in wanted if parsed(found[path]) != parsed(wanted[path])]
    return wrong + [f"{path} is there" for path in row.lacks if at(bodies[0], path) is not ABSENT]


def parsed(value: Any) -> Any:
    """Return a value with its JSON texts parsed, so that white space does not matter."""
    if isinstance(value, Mapping):
        return {key: parsed(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [parsed(one) for one in value]
    if isinstance(value, str) and value.startswith("{"):
        try:
            return json.loads(value)
        except ValueError:
            return value
    return value


def refused(maker: Maker, row: Refused, route: str) -> list[str]:
    """Return the faults of an error: not raised, unexpected requests, or a message without the expected words."""
    sent: list[httpx.Request] = []

    def refuse(request: httpx.Request) -> httpx.Response:
        sent.append(request)
        content = row.body if isinstance(row.body, str) else json.dumps(row.body)
        return httpx.Response(row.status, headers={"content-type": "application/json", **row.headers}, content=content)

    llm = maker.make(NATIVE, route, refuse)
    try:
        llm.invoke(HI)
    except Exception as exc:  # noqa: BLE001 - any class is accepted
        code = row.body["errors"] if isinstance(row.body, dict) and "errors" in row.body else []
        code = str(code[0].get("code") or "") if isinstance(code, list) and code else ""
        wrong = [f"{len(sent)} requests instead of {row.requests}"] if len(sent) != row.requests else []
        return wrong + (["no code"] if code not in str(exc) else [])
    return ["no error"]
