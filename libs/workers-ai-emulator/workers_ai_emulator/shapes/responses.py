"""Convert requests in the Responses form to chat bodies, and answers to the Responses form.

Documented: https://developers.cloudflare.com/workers-ai/configuration/open-ai-compatibility/
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from workers_ai_emulator.shapes.answer import Answer
    from workers_ai_emulator.wire import Json


def chat_body(body: Json) -> Json:
    """Convert a Responses request to a chat body."""
    items = body["input"]
    listed = [{"role": "user", "content": items}] if isinstance(items, str) else items
    messages = [_message(item) for item in listed]
    if body.get("instructions"):
        messages.insert(0, {"role": "system", "content": body["instructions"]})
    chat: Json = {"messages": _joined(messages)}
    names = {"max_output_tokens": "max_completion_tokens", "temperature": "temperature", "top_p": "top_p"}
    chat |= {new: body[old] for old, new in names.items() if body.get(old) is not None}
    chat |= {key: body[key] for key in ("tool_choice", "parallel_tool_calls", "options") if key in body}
    if body.get("tools"):
        chat["tools"] = [{"type": "function", "function": _function(tool)} for tool in body["tools"]]
    if (body.get("reasoning") or {}).get("effort"):
        chat["reasoning_effort"] = body["reasoning"]["effort"]
    form = (body.get("text") or {}).get("format") or {}
    if form.get("type") in {"json_object", "json_schema"}:
        chat["response_format"] = {"type": form["type"], "json_schema": form.get("schema")}
    return chat


def response(answer: Answer, request: Json, new_id: str) -> Json:
    """Return an answer as a Responses object."""
    choice = answer.choices[0]
    output: list[Json] = []
    if choice.reasoning:
        thought = {"type": "reasoning_text", "text": choice.reasoning}
        output.append({"type": "reasoning", "id": f"rs_{new_id}", "summary": [], "content": [thought]})
    output += [
        {"type": "function_call", "id": f"fc_{call.id}", "call_id": call.id, "name": call.name, "status": "completed"}
        | {"arguments": call.arguments_text}
        for call in choice.tool_calls
    ]
    if choice.text or not choice.tool_calls:
        said = {"type": "output_text", "text": choice.text, "annotations": []}
        output.append(
            {"type": "message", "id": f"msg_{new_id}", "role": "assistant", "status": "completed", "content": [said]}
        )
    cut = choice.finish_reason == "length"
    return {
        "id": f"resp_{new_id}",
        "object": "response",
        "created_at": answer.created,
        "status": "incomplete" if cut else "completed",
        "model": answer.model,
        "output": output,
        "error": None,
        "incomplete_details": {"reason": "max_output_tokens"} if cut else None,
        "instructions": request.get("instructions"),
        "parallel_tool_calls": request.get("parallel_tool_calls", True),
        "tool_choice": request.get("tool_choice", "auto"),
        "tools": request.get("tools", []),
        "temperature": request.get("temperature"),
        "top_p": request.get("top_p"),
        "usage": {
            "input_tokens": answer.usage.prompt_tokens,
            "input_tokens_details": {"cached_tokens": answer.usage.cached_tokens},
            "output_tokens": answer.usage.completion_tokens,
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": answer.usage.prompt_tokens + answer.usage.completion_tokens,
            "neurons": answer.usage.neurons,
        },
    }


def _message(item: Json) -> Json:
    """Convert one item to a message. A reasoning item becomes an empty message."""
    if item.get("type") == "function_call":
        function = {"name": item["name"], "arguments": item["arguments"]}
        return {
            "role": "assistant",
            "content": "",
            "tool_calls": [{"id": item["call_id"], "type": "function", "function": function}],
        }
    if item.get("type") == "function_call_output":
        return {"role": "tool", "tool_call_id": item["call_id"], "content": str(item["output"])}
    content: Any = item.get("content") or ""
    if isinstance(content, list):
        content = "\n".join(str(part.get("text", "")) for part in content)
    return {"role": item.get("role", "assistant"), "content": content}


def _joined(messages: list[Json]) -> list[Json]:
    """Join consecutive calls into one assistant message, as in the chat form."""
    joined: list[Json] = []
    for message in messages:
        if joined and message.get("tool_calls") and joined[-1].get("tool_calls"):
            joined[-1]["tool_calls"] += message["tool_calls"]
        else:
            joined.append(message)
    return joined


def _function(tool: Json) -> Json:
    return {key: tool[key] for key in ("name", "description", "parameters") if tool.get(key) is not None}
