"""Streams that match no published schema but occur: variants of the rows of ``streamed_replies``."""

from __future__ import annotations

from shapes import Call, Shape, Want, chunk, sse
from streamed_replies import CLOCK, HELLO, calls, usage

BUSY = {"code": 3040, "message": "busy"}


def after_a(name: str, *events: object, stream: bytes | None = None) -> Shape:
    """Return a stream of one letter that ends with an error 3040."""
    want = Want(error="CapacityError", code=3040, partial="a")
    return Shape(name, "peers, gap", want, events=[chunk(content="a"), *events], stream=stream)


def piece(**call: object) -> dict[str, object]:
    """Return one event with one piece of a call."""
    return calls(call)


ODD_STREAMS = [
    # --- errors beside other fields, and under other names ---
    after_a("an error beside an empty text", {"response": "", "error": BUSY}),
    after_a("errors beside an empty text", {"response": "", "errors": [BUSY], "success": False}),
    after_a("an error beside a choice", {**chunk("error", content=""), "error": BUSY}),
    after_a("an error of vLLM", {"object": "error", "type": "x", **BUSY}),
    after_a("an error inside an error", {"error": {"errors": [BUSY]}}),
    after_a("an error that is text", b"3040: busy"),
    after_a(
        "an event named error",
        stream=sse([chunk(content="a")], done=False)
        + b'event: error\ndata: {"code":3040,"message":"busy"}\n\ndata: [DONE]\n\n',
    ),
    after_a(
        "a text in an event named error",
        stream=sse([chunk(content="a")], done=False) + b"event: error\ndata: 3040: busy\n\ndata: [DONE]\n\n",
    ),
    Shape(
        "an error before the first piece is tried again",
        "cloudflare/ai#452",
        Want(error="CapacityError", code=3040),
        events=[chunk(role="assistant"), {"errors": [BUSY]}],
        requests=3,
    ),
    Shape(
        "an error of OpenAI's types before the first piece is tried again",
        "OpenAI's error codes",
        Want(error="InternalServerError"),
        events=[{"error": {"type": "server_error", "code": None, "message": "It broke."}}],
        requests=3,
    ),
    Shape(
        "an error in place of the events",
        "cloudflare/ai#452",
        Want(error="CapacityError", code=3040),
        stream=b'{"success":false,"errors":[{"code":3040,"message":"busy"}]}',
        requests=3,
    ),
    Shape(
        "two events without an empty line between them",
        "rule 23",
        Want("Hello"),
        stream=b'data: {"response":"Hel"}\ndata: {"response":"lo"}\ndata: [DONE]\n',
    ),
    Shape(
        "objects without a field name",
        "rule 23",
        Want("Hello"),
        stream=b'{"response":"Hel"}\n{"response":"lo"}\n[DONE]\n',
    ),
    # --- media types ---
    Shape(
        "media type in capitals",
        "cloudflare/ai#396",
        Want("Hello"),
        events=HELLO,
        headers={"content-type": "Text/Event-Stream"},
    ),
    Shape(
        "events as plain text", "cloudflare/ai#396", Want("Hello"), events=HELLO, headers={"content-type": "text/plain"}
    ),
    Shape(
        "events as JSON", "cloudflare/ai#396", Want("Hello"), events=HELLO, headers={"content-type": "application/json"}
    ),
    Shape(
        "a whole answer as events",
        "cloudflare/ai#396",
        Want("Hello"),
        stream=b'{"choices":[{"message":{"content":"Hello"},"finish_reason":"stop"}]}',
    ),
    # --- usage ---
    Shape(
        "increments on the native route",
        "cloudflare/ai#651",
        Want("abc", usage=(10, 3, 13)),
        events=[
            {"response": "a", "usage": usage(10, 1)},
            {"response": "b", "usage": usage(0, 1)},
            {"response": "c", "usage": usage(0, 1)},
        ],
    ),
    Shape(
        "an empty record at the end",
        "cloudflare/ai#651",
        Want("a", usage=(10, 2, 12)),
        events=[{"response": "a", "usage": usage(10, 2)}, {"response": "", "usage": usage(0, 0)}],
    ),
    Shape(
        "neurons of the increments",
        "cloudflare/ai#651",
        Want("a", usage=(14, 2, 16), neurons=0.75),
        events=[
            chunk(None, usage(14, 0, neurons=0.5), content=""),
            chunk(None, usage(0, 2, neurons=0.25), content="a"),
            chunk("stop"),
            {"response": "", "usage": usage(14, 2)},
        ],
    ),
    Shape(
        "neurons of a header",
        "wire trace",
        Want("a", usage=(3, 1, 4), neurons=1.5),
        events=[{"response": "a"}, {"response": "", "usage": usage(3, 1)}],
        headers={"cf-ai-neurons": "1.5"},
    ),
    Shape("invalid usage", "wire trace", Want("a"), events=[{"response": "a", "usage": "none"}]),
    Shape(
        "usage that is not a number",
        "wire trace",
        Want("a", usage=(0, 2, 2)),
        events=[b'{"response":"a","usage":{"prompt_tokens":1e999,"completion_tokens":2}}'],
    ),
    # --- calls ---
    Shape(
        "arguments before the name, without an index",
        "rule 26",
        Want(calls=CLOCK, finish="tool_calls"),
        events=[
            piece(function={"arguments": '{"city":'}),
            piece(id="c1", function={"name": "clock", "arguments": '"Oslo"}'}),
            chunk("tool_calls"),
        ],
    ),
    Shape(
        "the id before the name, without an index",
        "rule 26",
        Want(calls=CLOCK, finish="tool_calls"),
        events=[
            piece(id="c1", type="function"),
            piece(function={"name": "clock", "arguments": ""}),
            piece(function={"arguments": '{"city":"Oslo"}'}),
            chunk("tool_calls"),
        ],
    ),
    Shape(
        "the older form of a call",
        "rule 13",
        Want(calls=(Call("clock", {"city": "Oslo"}),), finish="tool_calls"),
        events=[
            chunk(function_call={"name": "clock", "arguments": '{"city":'}),
            chunk(function_call={"arguments": '"Oslo"}'}),
            chunk("function_call"),
        ],
    ),
    Shape(
        "one call that is not a list",
        "rule 13",
        Want(calls=CLOCK, finish="tool_calls"),
        events=[
            chunk(tool_calls={"id": "c1", "function": {"name": "clock", "arguments": '{"city":"Oslo"}'}}),
            chunk("tool_calls"),
        ],
    ),
    # --- letters ---
    Shape(
        "half of a surrogate pair in each of two events",
        "lobehub/lobehub#18805",
        Want("a😀b"),
        events=[
            rb'{"choices":[{"index":0,"delta":{"content":"a\ud83d"}}]}',
            rb'{"choices":[{"index":0,"delta":{"content":"\ude00b"},"finish_reason":"stop"}]}',
        ],
    ),
    Shape("a lone surrogate", "lobehub/lobehub#18805", Want("a\ufffd"), events=[rb'{"response":"a\ud83d"}']),
    Shape("a byte that is no letter", "lobehub/lobehub#18805", Want("a\ufffdb"), events=[b'{"response":"a\xffb"}']),
    # --- fields of another type ---
    Shape("choices that are not a list", "wire trace", Want("a"), events=[{"response": "a"}, {"choices": 5}]),
    Shape(
        "a delta that is not an object",
        "wire trace",
        Want("a"),
        events=[chunk(content="a"), {"choices": [{"index": 0, "delta": "x", "finish_reason": "stop"}]}],
    ),
    Shape(
        "an index that is text",
        "wire trace",
        Want("a"),
        events=[{"choices": [{"index": "0", "delta": {"content": "a"}, "finish_reason": "stop"}]}],
    ),
    # --- answers that are not complete ---
    Shape(
        "a call that was never begun",
        "B130",
        Want(calls=(Call("clock", "", "c1"),), finish="length"),
        events=[piece(index=0, id="c1", function={"name": "clock", "arguments": ""}), chunk("length")],
    ),
    Shape(
        "a call that a filter stopped",
        "B130",
        Want(calls=(Call("clock", '{"city', "c1"),), finish="content_filter"),
        events=[piece(index=0, id="c1", function={"name": "clock", "arguments": '{"city'}), chunk("content_filter")],
    ),
    Shape(
        "a whole call in an answer without end",
        "B130",
        Want(calls=CLOCK, finish="length"),
        events=[piece(index=0, id="c1", function={"name": "clock", "arguments": '{"city":"Oslo"}'}), chunk("length")],
    ),
    Shape(
        "a reason of the service's own",
        "B130",
        Want("a", finish="sensitive"),
        events=[chunk(content="a"), chunk("sensitive")],
    ),
    Shape(
        "a damaged event",
        "hermes",
        Want(error="StreamInterruptedError", partial="a"),
        events=[chunk(content="a"), b'{"choices":[{"delta":{"con', chunk(content="b"), chunk("stop")],
    ),
    Shape(
        "damage after the end mark",
        "hermes",
        Want("a"),
        stream=sse([chunk(content="a")]) + b'data: {"choices"\n\ndata: {"error":{"code":3040,"message":"busy"}}\n\n',
    ),
    # --- names of calls ---
    *(
        Shape(
            f"calls by {label}",
            "B146",
            Want(calls=(Call("clock", {"city": "Oslo"}), Call("search", {"query": "x"})), finish="tool_calls"),
            events=[
                piece(**first, function={"name": "clock", "arguments": ""}),
                piece(**second, function={"name": "search", "arguments": ""}),
                piece(**first, function={"arguments": '{"city":'}),
                piece(**second, function={"arguments": '{"query":"x"}'}),
                piece(**first, function={"arguments": '"Oslo"}'}),
                chunk("tool_calls"),
            ],
        )
        for label, first, second in [
            ("text", {"index": "0"}, {"index": "1"}),
            ("fractions", {"index": 0.0}, {"index": 1.0}),
            ("words", {"index": "a"}, {"index": "b"}),
            ("ids", {"id": "a"}, {"id": "b"}),
        ]
    ),
    Shape(
        "calls by their place",
        "B146",
        Want(calls=(Call("clock", {"city": "Oslo"}), Call("search", {"query": "x"})), finish="tool_calls"),
        events=[
            calls({"function": {"name": "clock"}}, {"function": {"name": "search"}}),
            calls({"function": {"arguments": '{"city":"Oslo"}'}}, {"function": {"arguments": '{"query":"x"}'}}),
            chunk("tool_calls"),
        ],
    ),
    *(
        Shape(
            f"arguments {label}",
            "B148",
            Want(calls=(Call("clock", wanted, "c1"),), finish="tool_calls"),
            events=[
                piece(index=0, id="c1", function={"name": "clock", "arguments": first}),
                *(piece(index=0, function={"arguments": text}) for text in rest),
                chunk("tool_calls"),
            ],
        )
        for label, wanted, first, *rest in [
            ("repeated", {"c": "x"}, "", '{"c":"x"}', '{"c":"x"}'),
            ("repeated with spaces", {"c": "x"}, '{"c":', '"x"}', '{"c": "x"}'),
            ("cumulative", {"c": "x"}, '{"c":', '{"c":"x"', '{"c":"x"}'),
            ("that only look cumulative", {"c": {"c": 1}}, '{"c":', '{"c":1', "}}"),
            ("after an empty object", {"c": "x"}, "{}", '{"c":', '"x"}'),
            ("before an empty object", {"c": "x"}, '{"c":', '"x"}', "{}"),
        ]
    ),
    Shape(
        "a last message that repeats the answer",
        "B148",
        Want("Hello, you"),
        events=[
            *(chunk(content=text) for text in ("Hel", "lo")),
            {"choices": [{"index": 0, "message": {"content": "Hello, you"}, "finish_reason": "stop"}]},
        ],
    ),
    Shape(
        "two calls of one index and no id",
        "B148",
        Want(calls=(Call("clock", {"c": 1}), Call("clock", {"c": 2})), finish="tool_calls"),
        events=[
            piece(index=0, function={"name": "clock", "arguments": '{"c":1}'}),
            piece(index=0, function={"name": "clock", "arguments": '{"c":2}'}),
            chunk("tool_calls"),
        ],
    ),
    Shape(
        "half of a surrogate pair in each of two pieces of arguments",
        "lobehub/lobehub#18805",
        Want(calls=(Call("clock", {"c": "😀"}, "c1"),), finish="tool_calls"),
        events=[
            rb'{"choices":[{"delta":{"tool_calls":[{"index":0,"id":"c1","function":{"name":"clock","arguments":"{\"c\":\"\ud83d"}}]}}]}',
            rb'{"choices":[{"delta":{"tool_calls":[{"index":0,"function":{"arguments":"\ude00\"}"}}]}}]}',
            chunk("tool_calls"),
        ],
    ),
    Shape(
        "half of a surrogate pair in each of two pieces of reasoning",
        "lobehub/lobehub#18805",
        Want("a", "😀"),
        events=[
            rb'{"choices":[{"delta":{"reasoning":"\ud83d"}}]}',
            rb'{"choices":[{"delta":{"reasoning":"\ude00"}}]}',
            chunk("stop", content="a"),
        ],
    ),
    # --- both families at once (llama-3.3), and an answer among the reasoning (nemotron) ---
    Shape(
        "a hybrid's calls beside the choices",
        "captures 7.3",
        Want(calls=(Call("clock", {"city": "Oslo"}),), finish="tool_calls"),
        events=[
            {**chunk(content=""), "response": "", "tool_calls": []},
            {
                **chunk("stop", content=""),
                "response": None,
                "tool_calls": [{"name": "clock", "arguments": {"city": "Oslo"}}],
            },
        ],
    ),
    Shape(
        "a hybrid's calls in both places",
        "captures 7.3",
        Want(calls=CLOCK, finish="tool_calls"),
        events=[
            piece(index=0, id="c1", function={"name": "clock", "arguments": '{"city":"Oslo"}'}),
            {**chunk("stop"), "tool_calls": [{"name": "clock", "arguments": {"city": "Oslo"}}]},
        ],
    ),
    Shape(
        "a hybrid's text beside the choices",
        "captures 7.3",
        Want("Hello"),
        events=[{**chunk(content=None), "response": "Hel"}, {**chunk("stop"), "response": "lo"}],
    ),
    Shape(
        "a hybrid's text in both places",
        "captures 4",
        Want("Hello"),
        events=[{**chunk(content="Hel"), "response": "Hel"}, {**chunk("stop", content="lo"), "response": "lo"}],
    ),
    Shape(
        "an answer among the reasoning",
        "captures 7.2",
        Want("Hi you", "Hi you"),
        events=[chunk(reasoning="Hi"), chunk(reasoning=" you"), chunk("stop", content="")],
    ),
    Shape(
        "an answer among the reasoning, with thinking off",
        "captures 7.2",
        Want("Hi you", finish="length"),
        events=[chunk(reasoning="Hi"), chunk(reasoning=" you"), chunk("length", content="")],
        params={"chat_template_kwargs": {"enable_thinking": False}},
    ),
    Shape(
        "a thought although thinking is off",
        "captures 3.3",
        Want("Hi", "hm"),
        events=[chunk(reasoning="h"), chunk(reasoning="m"), chunk(content="Hi"), chunk("stop")],
        params={"reasoning_effort": "none"},
    ),
    # --- parts ---
    Shape(
        "thoughts and references in parts",
        "B136",
        Want("4", "hm"),
        events=[
            chunk(content=[{"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]}]),
            chunk(content=[{"type": "reference", "reference_ids": [1]}]),
            chunk("stop", content=[{"type": "text", "text": "4"}, {"type": "new", "value": 1}]),
        ],
    ),
    # --- usage ---
    *(
        Shape(
            f"usage: {label}",
            "captures 7.8",
            Want("a", usage=(57, 28, 85)),
            events=[
                {**chunk("stop", content="a"), "usage": usage(*first)},
                *({"choices": [], "usage": usage(*one)} for one in rest),
            ],
        )
        for label, first, *rest in [
            ("one increment, tail, zeros", (0, 1), (57, 28), (0, 0)),
            ("increments, tail, zeros", (0, 28), (57, 28), (0, 0)),
            ("tail, zeros", (57, 28), (0, 0)),
            ("zeros, tail", (0, 0), (57, 28)),
            ("prompt, increment, tail, zeros", (57, 0), (0, 28), (57, 28), (0, 0)),
        ]
    ),
    Shape(
        "details of a record before the tail",
        "captures 7.8",
        Want("a", usage=(57, 28, 85), cached=5),
        events=[
            {**chunk("stop", content="a"), "usage": usage(57, 28, prompt_tokens_details={"cached_tokens": 5})},
            {"response": "", "usage": usage(57, 28)},
        ],
    ),
]
