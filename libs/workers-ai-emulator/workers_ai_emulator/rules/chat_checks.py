"""Checks of chat requests.

Two generations of schemas are in use. Older models accept string contents and a few parameters; newer models
follow OpenAI. Sources: https://developers.cloudflare.com/workers-ai/models/ (input schemas),
https://github.com/cloudflare/ai/issues/279, https://github.com/QuantumNous/new-api/issues/4605,
https://github.com/we-promise/sure/pull/467, https://github.com/cloudflare/ai/pull/454.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from workers_ai_emulator.rules.tokens import count_tokens
from workers_ai_emulator.wire import ServiceError, kind_of, strict_json

if TYPE_CHECKING:
    from workers_ai_emulator.catalogue import Model
    from workers_ai_emulator.settings import Settings
    from workers_ai_emulator.wire import Json

_NUMBERS: dict[str, tuple[float, float]] = {
    "temperature": (0, 5),
    "top_p": (0, 2),
    "frequency_penalty": (-2, 2),
    "presence_penalty": (-2, 2),
}
_GLM_REQUIRED = (
    "1 validation error for ChatCompletionRequest: tool_choice: Input should be 'none', 'auto' or a named function"
)
_OLD_NUMBERS: dict[str, tuple[float, float]] = {
    "top_k": (1, 50),
    "seed": (1, 9_999_999_999),
    "repetition_penalty": (0, 2),
}


def check_chat(model: Model, body: Json, settings: Settings, *, compat: bool) -> None:
    """Check a chat body against the model's schema.

    Args:
        model: The model.
        body: The request body.
        settings: Settings of the service.
        compat: Whether the request was sent to the OpenAI-compatible route.

    Raises:
        ServiceError: With the service's code and, if recorded, its text.
    """
    if body.get("messages") is None and body.get("prompt") is None:
        raise _mismatch(model, "required properties at '/' are '%s'" % ("messages" if compat else "prompt"))
    if body.get("messages") is not None:
        check_messages(model, body["messages"])
    elif not isinstance(body["prompt"], str) or not body["prompt"]:
        raise _mismatch(model, f"Type mismatch of '/prompt', '{kind_of(body['prompt'])}' not in 'string'")
    _check_numbers(model, body)
    _check_support(model, body)
    _check_tools(model, body, settings)
    _check_format(model, body)
    if settings.schema_forms == "own":
        _check_schema_form(model, body, compat=compat)
    _check_window(model, body)


def check_messages(model: Model, messages: object) -> None:
    """Check messages against the model's schema."""
    if not isinstance(messages, list) or not messages:
        raise _mismatch(model, f"Type mismatch of '/messages', '{kind_of(messages)}' not in 'array'")
    faults = [fault for index, message in enumerate(messages) for fault in _message_faults(model, index, message)]
    if faults:
        raise _mismatch(model, ", ".join(faults))
    _check_answers(model, messages)
    if "qwen3.8" in model.id and any(m["role"] == "system" for m in messages[1:]):
        raise ServiceError(400, 8007, "System message must be at the beginning.")


def _message_faults(model: Model, index: int, message: object) -> list[str]:
    place = f"/messages/{index}"
    if not isinstance(message, dict):
        return [f"Type mismatch of '{place}', '{kind_of(message)}' not in 'object'"]
    if "role" not in message or (model.schema == "old" and "content" not in message):
        return [f"required properties at '{place}' are 'role,content'"]
    content = message.get("content")
    if isinstance(content, str):
        return []
    if isinstance(content, list) and not model.strings_only:
        kinds = _part_kinds(model, str(message["role"]))
        return [
            fault
            for number, part in enumerate(content)
            for fault in _part_faults(model, f"{place}/content/{number}", part, kinds)
        ]
    if content is None and model.schema == "new" and message["role"] in {"assistant", "tool"}:
        return []
    return [f"Type mismatch of '{place}/content', '{kind_of(content)}' not in 'string'"]


def _part_kinds(model: Model, role: str) -> set[str]:
    """Return the content parts that a role may use: only users may send images, audio and files."""
    if role == "user":
        return {"text", "image_url"} | ({"input_audio", "file"} if model.schema == "new" else set())
    return {"text", "refusal"} if role == "assistant" and model.schema == "new" else {"text"}


def _part_faults(model: Model, place: str, part: object, kinds: set[str]) -> list[str]:
    if not isinstance(part, dict) or part.get("type") not in kinds:
        return [f"Type mismatch of '{place}'"]
    if part["type"] != "image_url":
        return []
    if not model.vision:
        raise ServiceError(400, 8007, f"{model.id} is not a multimodal model")
    image = part.get("image_url")
    url = image.get("url") if isinstance(image, dict) else image
    return [] if str(url).startswith("data:") else [f"pattern mismatch of '{place}/image_url/url', must match '^data:'"]


def _check_answers(model: Model, messages: list[Json]) -> None:
    """Reject tool calls of earlier answers that have invalid arguments or no result."""
    open_calls: dict[str, int] = {}
    for index, message in enumerate(messages):
        for number, call in enumerate(message.get("tool_calls") or []):
            arguments = (call.get("function") or {}).get("arguments")
            if not isinstance(arguments, str):
                place = f"/messages/{index}/tool_calls/{number}/function/arguments"
                raise _mismatch(model, f"Type mismatch of '{place}', '{kind_of(arguments)}' not in 'string'")
            if not _is_json_object(arguments):
                raise ServiceError(400, 8007, "Assistant tool call function.arguments must be valid JSON.")
            open_calls[str(call.get("id"))] = index
        if message.get("role") == "tool":
            open_calls.pop(str(message.get("tool_call_id")), None)
    if open_calls:
        call_id, index = next(iter(open_calls.items()))
        raise _mismatch(model, f"tool call '{call_id}' of '/messages/{index}' has no answer")


def _is_json_object(text: str) -> bool:
    try:
        return isinstance(strict_json(text), dict)
    except (ValueError, RecursionError):
        return False


def _check_numbers(model: Model, body: Json) -> None:
    for name, (low, high) in (_NUMBERS | (_OLD_NUMBERS if model.schema == "old" else {})).items():
        value = body.get(name, low)
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise _mismatch(model, f"Type mismatch of '/{name}', '{kind_of(value)}' not in 'number'")
        if not low <= value <= high:
            raise _mismatch(model, f"'/{name}' must be between {low} and {high}")


def _check_support(model: Model, body: Json) -> None:
    if body.get("lora") and not model.lora:
        raise ServiceError(405, 5005, f"The model {model.id} does not support LoRA inference")
    if model.schema == "old" and "reasoning_effort" in body and body["reasoning_effort"] is None:
        raise _mismatch(model, "Type mismatch of '/reasoning_effort', 'null' not in 'string'")
    if "glm" in model.id and ("top_k" in body or "repetition_penalty" in body):
        raise ServiceError(400, 8001, "Invalid input")


def _check_tools(model: Model, body: Json, settings: Settings) -> None:
    tools = body.get("tools")
    choice = body.get("tool_choice")
    if choice == "any" or (isinstance(choice, str) and choice not in {"none", "auto", "required"}):
        raise ServiceError(400, 8001, "Invalid input")
    if choice == "required" and "glm-4.7-flash" in model.id and settings.glm_required == "reject":
        raise ServiceError(400, 8001, _GLM_REQUIRED)
    if not tools:
        return
    if not model.function_calling and settings.unsupported_tools == "reject":
        raise _mismatch(model, "additional property '/tools'")
    for index, tool in enumerate(tools):
        _check_tool(model, index, tool)


def _check_tool(model: Model, index: int, tool: object) -> None:
    function = tool.get("function", tool) if isinstance(tool, dict) else None
    if not isinstance(function, dict) or not isinstance(function.get("name"), str):
        raise _mismatch(model, f"required properties at '/tools/{index}' are 'name'")
    kinds = {"description": str, "parameters": dict}
    if any(key in function and not isinstance(function[key], kind) for key, kind in kinds.items()):
        raise ServiceError(400, 8001, "Invalid input")
    if model.schema != "old":
        return
    if "description" not in function:
        raise _mismatch(model, f"required properties at '/tools/{index}/function' are 'description'")
    parameters = function.get("parameters")
    if parameters is not None and not {"type", "properties"} <= set(parameters):
        raise _mismatch(model, f"required properties at '/tools/{index}/function/parameters' are 'type,properties'")


def _check_format(model: Model, body: Json) -> None:
    response_format = body.get("response_format")
    if response_format is None and "response_format" not in body:
        return
    if not isinstance(response_format, dict) or response_format.get("type") not in {
        "text",
        "json_object",
        "json_schema",
    }:
        raise _mismatch(model, f"Type mismatch of '/response_format', '{kind_of(response_format)}' not in 'object'")
    if response_format["type"] != "json_schema":
        return
    if model.json_mode == "refused":
        raise ServiceError(400, 5025, "This model doesn't support JSON Schema.")
    if not isinstance(response_format.get("json_schema"), dict):
        raise _mismatch(model, "required properties at '/response_format' are 'json_schema'")
    if body.get("stream") is True:
        raise ServiceError(400, 5023, "JSON Schema mode is not supported with stream mode.")


def _check_schema_form(model: Model, body: Json, *, compat: bool) -> None:
    schema = (body.get("response_format") or {}).get("json_schema")
    if schema is not None and (isinstance(schema.get("schema"), dict) and "name" in schema) != compat:
        raise _mismatch(model, "'/response_format/json_schema' does not fit")


def _check_window(model: Model, body: Json) -> None:
    if model.context_window is None:
        return
    output = body.get("max_completion_tokens") or body.get("max_tokens") or model.default_max_tokens or 0
    estimate = count_tokens(_text_of(body)) + output
    if estimate > model.context_window:
        raise ServiceError(
            413,
            5021,
            f"The estimated number of input and maximum output tokens ({estimate}) exceeded this model context window"
            f" limit ({model.context_window}).",
        )


def _text_of(body: Json) -> str:
    """Return the text of a body; images are not counted."""
    texts = [str(body.get("prompt") or ""), str(body.get("tools") or "")]
    for message in body.get("messages") or []:
        content = message.get("content")
        parts = content if isinstance(content, list) else [{"text": content or ""}]
        texts += [str(part.get("text", "")) for part in parts]
    return " ".join(texts)


def _mismatch(model: Model, detail: str) -> ServiceError:
    """Return error 5006, worded as for the older or the newer schemas."""
    if model.schema == "new":
        return ServiceError(400, 5006, f"Bad input: Error: anyOf at '/' not met, 0 matches: {detail}")
    return ServiceError(400, 5006, f"Bad input: Error: oneOf at '/' not met, 0 matches: {detail}")
