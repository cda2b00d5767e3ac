"""Outlines of input and output schemas, limited to the fields that the emulator checks."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from workers_ai_emulator.catalogue import Model
    from workers_ai_emulator.wire import Json

_NUMBERS = ("max_tokens", "temperature", "top_p", "seed", "frequency_penalty", "presence_penalty")


def input_schema(model: Model) -> Json:
    """Return an outline of a model's input schema."""
    if model.task == "Text Embeddings":
        return _embedding_input(model)
    if model.task == "Text Classification":
        contexts = {"type": "array", "items": {"type": "object", "properties": {"text": {"type": "string"}}}}
        query = {"type": "string", "minLength": 1}
        properties: Json = {"query": query, "contexts": contexts, "top_k": {"type": "integer", "minimum": 1}}
        return {"type": "object", "properties": properties, "required": ["query", "contexts"]}
    content: Json = {"type": "string"} if model.strings_only else {"type": ["string", "array", "null"]}
    message: Json = {
        "type": "object",
        "properties": {"role": {"type": "string"}, "content": content},
        "required": ["role", "content"] if model.schema == "old" else ["role"],
    }
    common: Json = {name: {"type": "number"} for name in _NUMBERS} | {"stream": {"type": "boolean"}}
    common["tools"] = {"type": "array", "items": {"type": "object"}}
    common["response_format"] = {"type": "object"}
    prompt = {"type": "object", "properties": {"prompt": {"type": "string"}, **common}, "required": ["prompt"]}
    messages = {"messages": {"type": "array", "items": message}, **common}
    chat = {"type": "object", "properties": messages, "required": ["messages"]}
    return {"type": "object", "oneOf": [prompt, chat]}


def output_schema(model: Model) -> Json:
    """Return an outline of a model's output schema."""
    number = {"type": "number"}
    if model.task == "Text Embeddings":
        rows = {"type": "array", "items": {"type": "array", "items": number}}
        return {"type": "object", "properties": {"shape": {"type": "array", "items": number}, "data": rows}}
    if model.task == "Text Classification":
        row = {"type": "object", "properties": {"id": {"type": "integer"}, "score": number}}
        return {"type": "object", "properties": {"response": {"type": "array", "items": row}}}
    if model.family in {"openai", "hybrid"}:
        return {"type": "object", "properties": {"choices": {"type": "array"}, "usage": {"type": "object"}}}
    return {"type": "object", "properties": {"response": {"type": "string"}, "usage": {"type": "object"}}}


def _embedding_input(model: Model) -> Json:
    text = {"type": "string", "minLength": 1}
    texts: Json = {"type": "array", "items": text}
    if model.max_items is not None:
        texts["maxItems"] = model.max_items
    return {"type": "object", "properties": {"text": {"oneOf": [text, texts]}}, "required": ["text"]}
