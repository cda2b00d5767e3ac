"""Whole replies: rules 16 to 22 and the reports of groups 3, 5 and 6.

Each is read on both routes, and once more as the answer to a stream request, which some models answer with plain JSON
(rule 29, cloudflare/ai#396). Not supported: sending the request a second time without ``stream``, as rule 29 does;
the answer was received and paid for.
"""

from __future__ import annotations

from shapes import OPENAI, Call, Shape, Want, envelope, forced, nested, openai

OSLO = {"city": "Oslo"}
SCHEMA = {"type": "json_schema", "json_schema": {"type": "object", "properties": {"name": {"type": "string"}}}}
JSON_MODE = {"response_format": {"type": "json_object"}}
USAGE = {"prompt_tokens": 10, "completion_tokens": 2, "total_tokens": 12}

WHOLE = [
    # --- families and envelopes ---
    Shape("native text", "rule 16", Want("Hello"), {"response": "Hello"}),
    Shape("openai text", "rule 16", Want("Hello"), openai("Hello")),
    Shape("both families: openai wins", "rule 16", Want("openai"), {**openai("openai"), "response": "native"}),
    Shape("native without envelope", "rule 16", Want("Hello"), body={"response": "Hello"}),
    Shape("openai inside the envelope", "rule 16", Want("Hello"), body=envelope(openai("Hello"))),
    Shape("envelope without messages", "rule 16", Want("Hello"), body={"result": {"response": "Hello"}}),
    Shape("third-party envelope twice", "rule 16", Want("Hello"), body=envelope({"result": openai("Hello")})),
    Shape("result is a text", "rule 16", Want("Hello"), body=envelope("Hello")),
    Shape(
        "text completion",
        "rule 16",
        Want("Hello"),
        {"object": "text_completion", "choices": [{"index": 0, "text": "Hello", "finish_reason": "stop"}]},
    ),
    # --- types of `response` and `content` ---
    Shape("response is a number", "rule 17, cloudflare/ai#302", Want("42"), {"response": 42}),
    Shape("response is zero", "rule 17", Want("0"), {"response": 0}),
    Shape("response is a fraction", "rule 17", Want("0.5"), {"response": 0.5}),
    Shape("response is null", "rule 17", Want(""), {"response": None}),
    Shape("response is empty", "rule 17", Want(""), {"response": ""}),
    Shape(
        "response is an object",
        "rule 17, cloudflare/workers-sdk#12398",
        Want('{"name": "Zoë", "age": 41}'),
        {"response": {"name": "Zoë", "age": 41}},
        params=JSON_MODE,
    ),
    Shape("response is a list", "rule 17", Want('[1, "a"]'), {"response": [1, "a"]}, params=JSON_MODE),
    Shape("response is true", "rule 17", Want("true"), {"response": True}, params=JSON_MODE),
    Shape("response is null in JSON mode", "rule 17", Want("null"), {"response": None}, params=JSON_MODE),
    Shape("content is an object", "rule 17, gap", Want('{"name": "Ann"}'), openai({"name": "Ann"}), params=JSON_MODE),
    Shape("content is a number", "decolua/9router#1645", Want("2026"), openai(2026)),
    Shape("content is null", "run-llama/llama_index#11289", Want(""), openai(None)),
    Shape(
        "content is a list of parts",
        "rule 17",
        Want("Hello you"),
        openai([{"type": "text", "text": "Hello "}, {"type": "text", "text": "you"}]),
    ),
    Shape(
        "endless text in a field is kept as it came",
        "cloudflare/langchain-cloudflare@9437e4c",
        Want('{"a":"' + "A-1-" * 5000),
        {"response": '{"a":"' + "A-1-" * 5000},
        params=JSON_MODE,
    ),
    # Not supported: splitting at a lone </think>. The text is not split (cloudflare/workers-ai-provider#16).
    Shape(
        "closing think tag without its opening one",
        "cloudflare/workers-ai-provider#16",
        Want("count legs\n</think>\n\nFour."),
        {"response": "count legs\n</think>\n\nFour."},
    ),
    # --- tool calls ---
    Shape(
        "flat call",
        "rule 18",
        Want(calls=(Call("clock", OSLO),), finish="tool_calls"),
        {"response": None, "tool_calls": [{"name": "clock", "arguments": OSLO}]},
    ),
    Shape(
        "flat call, no response",
        "cloudflare/ai#258",
        Want(calls=(Call("clock", OSLO),), finish="tool_calls"),
        {"tool_calls": [{"name": "clock", "arguments": OSLO}]},
    ),
    Shape(
        "flat call, arguments as text",
        "rule 18",
        Want(calls=(Call("clock", OSLO),), finish="tool_calls"),
        {"tool_calls": [{"name": "clock", "arguments": '{"city":"Oslo"}'}]},
    ),
    Shape(
        "nested call, arguments as an object",
        "rule 18, langchain-openai",
        Want(calls=(Call("clock", OSLO, "c1"),), finish="tool_calls"),
        openai(None, "tool_calls", tool_calls=[nested("clock", OSLO, "c1")]),
    ),
    Shape(
        "nested call, arguments as text",
        "rule 18",
        Want(calls=(Call("clock", OSLO, "c1"),), finish="tool_calls"),
        openai("", "tool_calls", tool_calls=[nested("clock", '{"city":"Oslo"}', "c1")]),
    ),
    Shape(
        "call without an id",
        "rule 18",
        Want(calls=(Call("clock", OSLO),), finish="tool_calls"),
        openai("", "tool_calls", tool_calls=[nested("clock", '{"city":"Oslo"}')]),
    ),
    *(
        Shape(
            f"call without arguments: {label}",
            "rule 18, langchain-ai/langchain#34123",
            Want(calls=(Call("now", {}, "c1"),), finish="tool_calls"),
            openai("", "tool_calls", tool_calls=[{"id": "c1", "function": {"name": "now", **given}}]),
        )
        for label, given in {
            "empty": {"arguments": ""},
            "null": {"arguments": None},
            "the text null": {"arguments": "null"},
            "absent": {},
            "blank": {"arguments": " \n"},
        }.items()
    ),
    Shape("tool_calls is null", "langchain-cloudflare", Want("Hello"), openai("Hello", tool_calls=None)),
    Shape("tool_calls is empty", "rule 18", Want("Hello"), {"response": "Hello", "tool_calls": []}),
    Shape(
        "calls that call nothing",
        "rule 18",
        Want("Hello"),
        {"response": "Hello", "tool_calls": [{}, None, {"function": {}}]},
    ),
    Shape(
        "old function_call",
        "rule 18",
        Want(calls=(Call("clock", OSLO),), finish="tool_calls"),
        openai("", "function_call", function_call={"name": "clock", "arguments": '{"city":"Oslo"}'}),
    ),
    Shape(
        "arguments that are not JSON are passed on",
        "rule 18",
        Want(calls=(Call("clock", '{"city": Oslo'),), finish="tool_calls"),
        openai("", "tool_calls", tool_calls=[nested("clock", '{"city": Oslo', "c1")]),
    ),
    Shape(
        "a control token for a value is passed on",
        "cloudflare/workers-sdk#13333",
        Want(calls=(Call("refund", {"orderRef": '<|"|', "cents": 950}, "c1"),), finish="tool_calls"),
        openai("", "tool_calls", tool_calls=[nested("refund", '{"orderRef": "<|\\"|", "cents": 950}', "c1")]),
    ),
    Shape(
        "several calls",
        "rule 18",
        Want(calls=(Call("clock", OSLO, "a"), Call("search", {"query": "x"}, "b")), finish="tool_calls"),
        openai("", "tool_calls", tool_calls=[nested("clock", OSLO, "a"), nested("search", {"query": "x"}, "b")]),
    ),
    Shape(
        "two calls share an id",
        "cloudflare/ai#424",
        Want(calls=(Call("a", {}, "x1"), Call("b", {})), finish="tool_calls"),
        openai("", "tool_calls", tool_calls=[nested("a", "{}", "x1"), nested("b", "{}", "x1")]),
    ),
    Shape(
        "text beside calls",
        "cloudflare/ai#258",
        Want("Let me see.", calls=(Call("clock", OSLO, "c1"),), finish="tool_calls"),
        openai("Let me see.", "tool_calls", tool_calls=[nested("clock", OSLO, "c1")]),
    ),
    Shape(
        "reasoning beside calls",
        "langchain-cloudflare 0.3.0",
        Want("", "need the clock", (Call("clock", {}, "c1"),), "tool_calls"),
        openai(None, "tool_calls", reasoning_content="need the clock", tool_calls=[nested("clock", "{}", "c1")]),
    ),
    # --- a forced call leaked as text ---
    *(
        Shape(
            f"leaked call: {label}",
            "rule 20, cloudflare/ai#574",
            Want(calls=(Call("clock", OSLO),), finish="tool_calls"),
            openai(text, tool_calls=[]),
            params=forced("clock", "search"),
        )
        for label, text in {
            "name and arguments": '{"name": "clock", "arguments": {"city": "Oslo"}}',
            "name and parameters": '{"name": "clock", "parameters": {"city": "Oslo"}}',
            "arguments as text": '{"name": "clock", "arguments": "{\\"city\\": \\"Oslo\\"}"}',
            "beside the name": '{"name": "clock", "city": "Oslo"}',
            "in a list": '[{"name": "clock", "arguments": {"city": "Oslo"}}]',
            "nested": '{"type": "function", "function": {"name": "clock", "arguments": {"city": "Oslo"}}}',
        }.items()
    ),
    Shape(
        "leaked arguments of the one forced tool",
        "rule 20",
        Want(calls=(Call("clock", OSLO),), finish="tool_calls"),
        openai('{"city": "Oslo"}'),
        params=forced("clock"),
    ),
    Shape(
        "leaked on a native model",
        "rule 20",
        Want(calls=(Call("clock", OSLO),), finish="tool_calls"),
        {"response": '{"name": "clock", "arguments": {"city": "Oslo"}}'},
        params=forced("clock"),
    ),
    *(
        Shape(f"left alone: {label}", "rule 20", Want(text), openai(text), params=params)
        for label, text, params in [
            ("nothing forced", '{"name": "clock", "arguments": {"city": "Oslo"}}', {"tools": forced("clock")["tools"]}),
            ("no tools", '{"name": "clock", "arguments": {"city": "Oslo"}}', {}),
            ("unknown name", '{"name": "other", "arguments": {"city": "Oslo"}}', forced("clock", "search")),
            ("prose", "It is noon in Oslo.", forced("clock")),
            ("prose around it", 'Here: {"name": "clock", "arguments": {"city": "Oslo"}}', forced("clock")),
            ("role leak", 'assistant<|channel|>commentary {"city": "Oslo"}', forced("clock")),
            ("arguments of none", '{"town": "Oslo"}', forced("clock")),
            ("one of the list unknown", '[{"name": "clock", "arguments": {}}, {"name": "x"}]', forced("clock")),
        ]
    ),
    Shape(
        "real calls outrank a leaked one",
        "rule 20",
        Want('{"name": "clock", "arguments": {}}', calls=(Call("clock", OSLO, "c1"),), finish="tool_calls"),
        openai('{"name": "clock", "arguments": {}}', tool_calls=[nested("clock", OSLO, "c1")]),
        params=forced("clock"),
    ),
    # --- finish reasons ---
    *(
        Shape(f"finish reason {sent!r}", "rule 21", Want("Hi", finish=read), openai("Hi", sent))
        for sent, read in {
            "stop": "stop",
            "length": "length",
            "model_length": "length",
            "content_filter": "content_filter",
            "error": "error",
            "eos": "eos",
            "other": "other",
            None: "stop",
            7: "stop",
            "tool_calls": "stop",
        }.items()
    ),
    Shape(
        "calls with finish reason stop",
        "rule 21, gap",
        Want(calls=(Call("clock", OSLO, "c1"),), finish="tool_calls"),
        openai("", "stop", tool_calls=[nested("clock", OSLO, "c1")]),
    ),
    Shape(
        "a call cut by max_tokens",
        "rule 21, gap",
        Want(calls=(Call("clock", '{"city": "Os', "c1"),), finish="length"),
        openai("", "length", tool_calls=[nested("clock", '{"city": "Os', "c1")]),
    ),
    Shape(
        "a whole call at max_tokens",
        "B130",
        Want(calls=(Call("clock", OSLO, "c1"),), finish="length"),
        openai("", "length", tool_calls=[nested("clock", OSLO, "c1")]),
    ),
    Shape(
        "choice outranks the top",
        "rule 21",
        Want("Hi", finish="length"),
        {**openai("Hi", "length"), "finish_reason": "stop"},
    ),
    Shape(
        "native answer as long as max_tokens",
        "langchain-cloudflare",
        Want("Hi", finish="length", usage=(10, 2, 12)),
        {"response": "Hi", "usage": USAGE},
        params={"max_tokens": 2},
    ),
    Shape(
        "native answer shorter than max_tokens",
        "rule 21",
        Want("Hi", usage=(10, 2, 12)),
        {"response": "Hi", "usage": USAGE},
        params={"max_tokens": 3},
    ),
    # --- usage ---
    Shape("usage missing", "rule 22", Want("Hi"), {"response": "Hi"}),
    Shape("usage null", "rule 22", Want("Hi"), {"response": "Hi", "usage": None}),
    Shape(
        "usage in part", "rule 22", Want("Hi", usage=(10, 0, 10)), {"response": "Hi", "usage": {"prompt_tokens": 10}}
    ),
    Shape(
        "usage with nulls",
        "rule 22",
        Want("Hi", usage=(10, 0, 10)),
        {"response": "Hi", "usage": {"prompt_tokens": 10, "completion_tokens": None, "prompt_tokens_details": None}},
    ),
    Shape(
        "usage by its other names",
        "rule 22",
        Want("Hi", usage=(3, 4, 7)),
        {"response": "Hi", "usage": {"input_tokens": 3, "output_tokens": 4}},
    ),
    Shape(
        "cached tokens",
        "rule 22",
        Want("Hi", usage=(10, 2, 12), cached=8),
        openai("Hi", usage={**USAGE, "prompt_tokens_details": {"cached_tokens": 8}}),
    ),
    Shape(
        "no cached tokens is a value",
        "rule 22",
        Want("Hi", usage=(10, 2, 12), cached=0),
        openai("Hi", usage={**USAGE, "prompt_tokens_details": {"cached_tokens": 0}}),
    ),
    Shape(
        "neurons",
        "langchain-cloudflare 0.3.7",
        Want("Hi", usage=(10, 2, 12), neurons=0.918182),
        openai("Hi", usage={**USAGE, "neurons": 0.918182}),
    ),
    Shape(
        "neurons in a header",
        "prompt caching page",
        Want("Hi", usage=(10, 2, 12), neurons=1.98),
        openai("Hi", usage=USAGE),
        headers={"cf-ai-neurons": "1.98"},
    ),
    # --- reasoning and refusals ---
    *(
        Shape(
            f"reasoning under {name}", "rule 2, rule 25", Want("4", "2+2"), openai("4", **{name: "2+2"}), model=OPENAI
        )
        for name in ("reasoning_content", "reasoning")
    ),
    Shape(
        "reasoning under both names",
        "rule 25",
        Want("4", "2+2"),
        openai("4", reasoning="2+2", reasoning_content="2+2"),
        model=OPENAI,
    ),
    Shape(
        "thinking ate the budget",
        "cloudflare/workers-sdk#13239",
        Want("", "First I ...", finish="length"),
        openai(None, "length", reasoning_content="First I ..."),
        model=OPENAI,
    ),
    Shape("refusal", "OpenAI schema", Want("", refusal="I cannot."), openai(None, refusal="I cannot."), model=OPENAI),
    Shape("refusal null", "OpenAI schema", Want("Yes"), openai("Yes", refusal=None), model=OPENAI),
    # --- invalid 2xx responses ---
    *(
        Shape(f"no answer: {label}", "rule 17, gap", Want(error="APIResponseValidationError"), body=body)
        for label, body in {
            "result null": {"result": None, "success": True, "errors": [], "messages": []},
            "result empty": envelope({}),
            "choices empty": envelope({"choices": []}),
            "choices null": envelope({"choices": None}),
            "a list of invalid choices": envelope({"choices": ["x"]}),
            "queued": envelope({"status": "queued", "request_id": "r-1", "model": "m"}),
            "embeddings": {"object": "list", "data": [{"object": "embedding", "embedding": [0.1]}]},
            "classification": envelope([{"label": "a", "score": 1.0}]),
            "html": b"<html><title>Sign in</title></html>",
            "nothing": b" ",
        }.items()
    ),
    # --- answers that are not complete ---
    *(
        Shape(
            f"a call that was never begun, {reason}",
            "B130",
            Want(calls=(Call("clock", "", "c1"),), finish=reason),
            openai(None, reason, tool_calls=[nested("clock", "", "c1")]),
        )
        for reason in ("length", "content_filter", "error", "abort")
    ),
    Shape(
        "a native call that was never begun, at the bound",
        "B130",
        Want(calls=(Call("clock", ""),), finish="length", usage=(10, 2, 12)),
        {"response": None, "tool_calls": [{"name": "clock", "arguments": None}], "usage": USAGE},
        params={"max_tokens": 2},
    ),
    # --- parts ---
    Shape(
        "thoughts in parts",
        "B136",
        Want("4", "hm"),
        openai([{"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]}, {"type": "text", "text": "4"}]),
    ),
    Shape(
        "a part of unknown type",
        "B136",
        Want("a"),
        openai([{"type": "text", "text": "a"}, {"type": "reference", "reference_ids": [1]}, {"type": "new"}]),
    ),
    Shape(
        "parts with and without a type",
        "gap",
        Want("ab", "hm"),
        openai([{"type": "text", "text": "a"}, {"text": "b"}, {"text": "hm", "thought": True}, {}]),
    ),
    *(
        Shape(
            f"a call among the parts: {next(iter(part))} {part.get('type')}",
            "gap",
            Want("a", calls=(Call("clock", OSLO, call_id),), finish="tool_calls"),
            openai([{"type": "text", "text": "a"}, part]),
        )
        for call_id, part in (
            ("c1", {"type": "tool_use", "id": "c1", "name": "clock", "input": OSLO}),
            ("c1", {"type": "function_call", "call_id": "c1", "name": "clock", "arguments": '{"city":"Oslo"}'}),
            ("c1", {"type": "tool_call", "id": "c1", "name": "clock", "args": OSLO}),
            ("c1", {"type": "function", "id": "c1", "function": {"name": "clock", "arguments": OSLO}}),
            ("c1", {"toolUse": {"toolUseId": "c1", "name": "clock", "input": OSLO}}),
            (None, {"functionCall": {"name": "clock", "args": OSLO}}),
        )
    ),
    Shape(
        "arguments encoded twice",
        "gap",
        Want(calls=(Call("clock", OSLO, "c1"),), finish="tool_calls"),
        openai(None, tool_calls=[nested("clock", '"{\\"city\\": \\"Oslo\\"}"', "c1")]),
    ),
    Shape("no parts", "gap", Want(""), openai([])),
    Shape("a list of data", "B136", Want('[{"type": "cat"}]'), openai([{"type": "cat"}]), params=JSON_MODE),
    # --- both families at once (llama-3.3) ---
    Shape(
        "a hybrid's calls beside the choices",
        "captures 7.3",
        Want(calls=(Call("clock", OSLO),), finish="tool_calls"),
        {**openai(""), "response": None, "tool_calls": [{"name": "clock", "arguments": OSLO}]},
    ),
    Shape("a hybrid's text beside the choices", "captures 7.3", Want("hello"), {**openai(None), "response": "hello"}),
    Shape(
        "JSON mode that could not be met, as a success",
        "captures 7.7",
        Want(error="StructuredOutputError"),
        body={"success": False, "errors": [{"message": "AiError: JSON Mode couldn't be met"}], "result": {}},
    ),
    Shape("an answer among the reasoning", "captures 7.2", Want("Hi"), openai("", reasoning="Hi")),
]
