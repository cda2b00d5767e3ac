"""Streamed replies: rules 23 to 29 and the reports of group 4.

Each is read on both routes, in one piece and byte by byte. Not supported: closing every call as soon as the next one
begins (rule 26); pieces are yielded in order, and frameworks close calls at the one last piece.
"""

from __future__ import annotations

from shapes import OPENAI, Call, Shape, Want, chunk, envelope, forced, nested, sse

OSLO = {"city": "Oslo"}
CLOCK = (Call("clock", OSLO, "c1"),)
HELLO = [{"response": "Hel"}, {"response": "lo"}]
NULL_CALL = {"index": 0, "id": None, "type": None, "function": {"name": None, "arguments": None}}


def usage(given: int, made: int, **more: object) -> dict[str, object]:
    """Return a usage record."""
    return {"prompt_tokens": given, "completion_tokens": made, "total_tokens": given + made, **more}


def calls(*pieces: dict[str, object]) -> dict[str, object]:
    """Return one event with these pieces of calls."""
    return chunk(tool_calls=list(pieces))


STREAMS = [
    # --- bytes ---
    Shape("native", "rule 24", Want("Hello"), events=HELLO),
    Shape(
        "openai",
        "rule 24",
        Want("Hello"),
        events=[chunk(role="assistant", content=""), chunk(content="Hel"), chunk(content="lo"), chunk("stop")],
    ),
    Shape(
        "padding",
        "wire trace",
        Want("Hello"),
        events=[{"response": "Hel", "p": "abcdef"}, {"response": "lo", "p": "a"}],
    ),
    Shape(
        "no space after the colon",
        "rule 23, jtsang4/claude-to-chatgpt#27",
        Want("Hello"),
        stream=b'data:{"response":"Hel"}\n\ndata:{"response":"lo"}\n\ndata:[DONE]\n\n',
    ),
    Shape("CRLF", "jtsang4/claude-to-chatgpt#27", Want("Hello"), stream=sse(HELLO).replace(b"\n", b"\r\n")),
    Shape(
        "comments and other fields",
        "jtsang4/claude-to-chatgpt#27",
        Want("Hello"),
        stream=b": ping\n\nevent: message\nid: 1\n" + sse(HELLO),
    ),
    Shape(
        "an event over two data lines",
        "jtsang4/claude-to-chatgpt#27",
        Want("b"),
        stream=b'data: {"response":\ndata: "b"}\n\ndata: [DONE]\n\n',
    ),
    Shape("no final newline", "rule 23", Want("Hello"), stream=sse(HELLO).rstrip(b"\n")),
    Shape("an end mark without its field name", "rule 23", Want("Hello"), stream=sse(HELLO, done=False) + b"[DONE]\n"),
    Shape("an event that is not JSON is skipped", "rule 23", Want("Hello"), events=[HELLO[0], b"hello", HELLO[1]]),
    Shape(
        "four-byte letters",
        "lobehub/lobehub#18805",
        Want("你好 🦊"),
        events=[{"response": "你好"}, {"response": " 🦊"}],
    ),
    Shape(
        "four-byte letters, not escaped", "lobehub/lobehub#18805", Want("你🦊"), events=['{"response":"你🦊"}'.encode()]
    ),
    Shape("two end marks", "decolua/9router#1645", Want("Hello"), events=[*HELLO, b"[DONE]"]),
    Shape("events in the envelope", "rule 16", Want("Hello"), events=[envelope(event) for event in HELLO]),
    Shape(
        "openai events in the envelope",
        "rule 16",
        Want("Hello"),
        events=[envelope(chunk(content="Hello")), envelope(chunk("stop"))],
    ),
    Shape(
        "arguments encoded twice",
        "gap",
        Want(calls=CLOCK, finish="tool_calls"),
        events=[
            calls({"index": 0, "id": "c1", "function": {"name": "clock", "arguments": '"{\\"city\\"'}}),
            calls({"index": 0, "function": {"arguments": ': \\"Oslo\\"}"'}}),
            chunk("tool_calls"),
        ],
    ),
    Shape(
        "parts of all kinds in deltas",
        "gap",
        Want("ab", "hm", calls=CLOCK, finish="tool_calls"),
        events=[
            chunk(content=[{"type": "thinking", "thinking": "hm"}, {"type": "text", "text": "a"}, {}]),
            chunk(content=[{"text": "b"}]),
            chunk(content=[{"type": "tool_use", "id": "c1", "name": "clock", "input": OSLO}]),
            chunk("tool_calls", content=[]),
        ],
    ),
    Shape(
        "a last message with a call among its parts",
        "gap",
        Want("ab", calls=CLOCK, finish="tool_calls"),
        events=[
            chunk(content="a"),
            {
                "choices": [
                    {
                        "finish_reason": "stop",
                        "message": {
                            "content": [
                                {"type": "text", "text": "ab"},
                                {"type": "tool_use", "id": "c1", "name": "clock", "input": OSLO},
                            ]
                        },
                    }
                ]
            },
        ],
    ),
    # --- text ---
    Shape(
        "response is a number",
        "cloudflare/ai#302",
        Want("Year 2026"),
        events=[{"response": "Year "}, {"response": 2026}],
    ),
    Shape("response is zero", "cloudflare/ai#302", Want("10"), events=[{"response": 1}, {"response": 0}]),
    Shape(
        "content is a number",
        "decolua/9router#1645",
        Want(
            "Year 2026",
        ),
        events=[chunk(content="Year "), chunk(content=2026), chunk("stop")],
    ),
    Shape(
        "response absent, null or beside nothing",
        "cloudflare/ai#63",
        Want("a", usage=(3, 1, 4)),
        events=[{"response": "a"}, {"tool_calls": []}, {"p": "xyz"}, {}, {"response": None, "usage": usage(3, 1)}],
    ),
    Shape(
        "content null at the end",
        "run-llama/llama_index#11289",
        Want("a"),
        events=[chunk(content="a"), chunk("stop", content=None)],
    ),
    Shape(
        "delta null or absent",
        "rule 24",
        Want("a"),
        events=[
            chunk(content="a"),
            {"choices": [{"index": 0, "delta": None}]},
            {"choices": [{"finish_reason": "stop"}]},
        ],
    ),
    Shape(
        "no index",
        "vercel/ai#4031",
        Want("**a"),
        events=[
            {"id": "id-1", "choices": [{"delta": {"content": "**"}}]},
            {"id": "id-1", "choices": [{"delta": {"content": "a"}}]},
        ],
    ),
    Shape(
        "text after a finish reason",
        "decolua/9router#1645",
        Want("Hello"),
        events=[chunk("stop", content="Hel"), chunk("stop", content="lo")],
    ),
    Shape(
        "second choice is left out",
        "OpenAI schema",
        Want("a"),
        events=[chunk(content="a"), {"choices": [{"index": 1, "delta": {"content": "b"}}]}, chunk("stop")],
    ),
    Shape(
        "text completion",
        "rule 16",
        Want("ab"),
        events=[
            {"choices": [{"index": 0, "text": "a"}]},
            {"choices": [{"index": 0, "text": "b", "finish_reason": "stop"}]},
        ],
    ),
    Shape(
        "content as parts",
        "rule 17",
        Want("ab"),
        events=[chunk(content=[{"type": "text", "text": "ab"}]), chunk("stop")],
    ),
    Shape("nothing but the end mark", "cloudflare/langchain-cloudflare@9437e4c", Want(""), stream=b"data: [DONE]\n\n"),
    Shape(
        "finish reason without end mark",
        "rule 28",
        Want("Hello"),
        events=[chunk(content="Hello"), chunk("stop")],
        done=False,
    ),
    Shape(
        "native finish reason without end mark",
        "rule 28",
        Want("Hello", finish="length"),
        events=[{"response": "Hello"}, {"finish_reason": "length"}],
        done=False,
    ),
    Shape(
        "native, as long as max_tokens",
        "rule 21",
        Want("Hello", finish="length", usage=(3, 2, 5)),
        events=[*HELLO, {"response": "", "usage": usage(3, 2)}],
        params={"max_tokens": 2},
    ),
    Shape(
        "cut by length",
        "langchain-cloudflare",
        Want("Hello", finish="length"),
        events=[chunk(content="Hello"), chunk("length")],
    ),
    # --- reasoning ---
    *(
        Shape(
            f"reasoning under {name}",
            "rule 25, cloudflare/ai#455",
            Want("4", "2+2"),
            events=[chunk(**{name: "2+"}), chunk(**{name: "2"}), chunk(content="4"), chunk("stop")],
            model=OPENAI,
        )
        for name in ("reasoning_content", "reasoning")
    ),
    Shape(
        "reasoning under both names",
        "rule 25",
        Want("4", "2+2"),
        events=[
            chunk(reasoning="2+2", reasoning_content="2+2"),
            chunk(content="4", reasoning_content=None),
            chunk("stop"),
        ],
        model=OPENAI,
    ),
    Shape(
        "reasoning ate the budget",
        "cloudflare/workers-sdk#13239",
        Want("", "2+2", finish="length"),
        events=[chunk(content="", reasoning_content="2+2"), chunk("length", reasoning_content=None)],
        model=OPENAI,
    ),
    Shape(
        "refusal",
        "OpenAI schema",
        Want(refusal="I cannot."),
        events=[chunk(refusal="I "), chunk(refusal="cannot."), chunk("stop")],
        model=OPENAI,
    ),
    # --- tool calls ---
    Shape(
        "call in pieces",
        "rule 26, langchain-cloudflare",
        Want(calls=CLOCK, finish="tool_calls"),
        events=[
            calls(nested("clock", "", "c1", index=0)),
            calls(nested(None, '{"city"', index=0)),
            calls(nested(None, ':"Oslo"}', index=0)),
            chunk("tool_calls"),
        ],
    ),
    Shape(
        "call in one piece",
        "rule 26",
        Want(calls=CLOCK, finish="tool_calls"),
        events=[calls(nested("clock", '{"city":"Oslo"}', "c1", index=0)), chunk("tool_calls")],
    ),
    Shape(
        "a call cut by max_tokens",
        "rule 21, gap",
        Want(calls=(Call("clock", '{"city":"Os', "c1"),), finish="length"),
        events=[
            calls(nested("clock", "", "c1", index=0)),
            calls(nested(None, '{"city":"Os', index=0)),
            chunk("length"),
        ],
    ),
    Shape(
        "blank arguments",
        "rule 26",
        Want(calls=(Call("now", {}, "c1"),), finish="tool_calls"),
        events=[calls(nested("now", " ", "c1", index=0)), chunk("tool_calls")],
    ),
    Shape(
        "call without index",
        "rule 26",
        Want(calls=CLOCK, finish="tool_calls"),
        events=[calls(nested("clock", '{"city":', "c1")), calls(nested(None, '"Oslo"}')), chunk("tool_calls")],
    ),
    Shape(
        "flat native call",
        "rule 26, langchain-cloudflare",
        Want(calls=(Call("clock", OSLO),), finish="tool_calls"),
        events=[{"response": "", "tool_calls": [{"name": "clock", "arguments": OSLO}]}],
    ),
    Shape(
        "native call in pieces",
        "rule 26",
        Want(calls=CLOCK, finish="tool_calls"),
        events=[
            {"tool_calls": [{"id": "c1", "type": "function", "index": 0, "function": {"name": "clock"}}]},
            {"tool_calls": [{"index": 0, "function": {"arguments": '{"city":'}}]},
            {"tool_calls": [{"index": 0, "function": {"arguments": '"Oslo"}'}}]},
            {"tool_calls": [{"id": None, "type": None, "index": 0, "function": {"name": None, "arguments": ""}}]},
            {"finish_reason": "tool_calls"},
        ],
    ),
    Shape(
        "arguments before the name",
        "cloudflare/ai#523",
        Want(calls=CLOCK, finish="tool_calls"),
        events=[
            calls(nested(None, '{"city":', index=0)),
            calls(nested("clock", '"Oslo"}', "c1", index=0)),
            chunk("tool_calls"),
        ],
    ),
    Shape(
        "closing piece full of nulls",
        "cloudflare/ai#393",
        Want(calls=CLOCK, finish="tool_calls"),
        events=[calls(nested("clock", '{"city":"Oslo"}', "c1", index=0)), calls(NULL_CALL), chunk("tool_calls")],
    ),
    Shape(
        "only a closing piece",
        "cloudflare/ai#494",
        Want("Hi"),
        events=[chunk(content="Hi"), calls(NULL_CALL), chunk("stop")],
    ),
    Shape(
        "arguments as an object",
        "rule 26",
        Want(calls=CLOCK, finish="tool_calls"),
        events=[calls(nested("clock", OSLO, "c1", index=0)), chunk("tool_calls")],
    ),
    Shape(
        "name and id in every piece",
        "rule 26",
        Want(calls=CLOCK, finish="tool_calls"),
        events=[
            calls(nested("clock", '{"city":', "c1", index=0)),
            calls(nested("clock", '"Oslo"}', "c1", index=0)),
            chunk("tool_calls"),
        ],
    ),
    Shape(
        "two calls, one after the other",
        "cloudflare/ai#494",
        Want(calls=(*CLOCK, Call("search", {"query": "x"}, "c2")), finish="tool_calls"),
        events=[
            calls(nested("clock", '{"city":"Oslo"}', "c1", index=0)),
            calls(nested("search", '{"query":', "c2", index=1)),
            calls(nested(None, '"x"}', index=1)),
            chunk("tool_calls"),
        ],
    ),
    Shape(
        "two calls, pieces mixed",
        "rule 26",
        Want(calls=(*CLOCK, Call("search", {"query": "x"}, "c2")), finish="tool_calls"),
        events=[
            calls(nested("clock", '{"city":', "c1", index=0), nested("search", '{"query":', "c2", index=1)),
            calls(nested(None, '"Oslo"}', index=0), nested(None, '"x"}', index=1)),
            chunk("tool_calls"),
        ],
    ),
    Shape(
        "two calls share an id",
        "cloudflare/ai#424",
        Want(calls=(Call("a", {}, "x1"), Call("b", {})), finish="tool_calls"),
        events=[calls(nested("a", "{}", "x1", index=0), nested("b", "{}", "x1", index=1)), chunk("tool_calls")],
    ),
    Shape(
        "two whole calls share an index",
        "rule 26",
        Want(calls=(*CLOCK, Call("search", {"query": "x"}, "c2")), finish="tool_calls"),
        events=[
            calls(nested("clock", '{"city":"Oslo"}', "c1", index=0)),
            calls(nested("search", '{"query":"x"}', "c2", index=0)),
            chunk("tool_calls"),
        ],
    ),
    Shape(
        "two calls of one tool without index",
        "rule 26",
        Want(calls=(*CLOCK, Call("clock", {"city": "Rome"}, "c2")), finish="tool_calls"),
        events=[
            calls(nested("clock", '{"city":"Oslo"}', "c1"), nested("clock", '{"city":"Rome"}', "c2")),
            chunk("tool_calls"),
        ],
    ),
    Shape(
        "two flat calls of one tool, nothing to tell them apart by",
        "rule 26",
        Want(calls=(Call("clock", OSLO), Call("clock", {"city": "Rome"})), finish="tool_calls"),
        events=[
            {"tool_calls": [{"name": "clock", "arguments": OSLO}, {"name": "clock", "arguments": {"city": "Rome"}}]}
        ],
    ),
    *(
        Shape(
            f"call without arguments: {label}",
            "langchain-ai/langchain#34123",
            Want(calls=(Call("now", {}, "c1"),), finish="tool_calls"),
            events=[calls({"index": 0, "id": "c1", "function": {"name": "now", **given}}), chunk("tool_calls")],
        )
        for label, given in {
            "empty": {"arguments": ""},
            "null": {"arguments": None},
            "the text null": {"arguments": "null"},
            "absent": {},
        }.items()
    ),
    Shape(
        "text before a call",
        "vercel/ai#6861",
        Want("Let me see.", calls=CLOCK, finish="tool_calls"),
        events=[
            chunk(content="Let me see."),
            calls(nested("clock", '{"city":"Oslo"}', "c1", index=0)),
            chunk("tool_calls"),
        ],
    ),
    Shape(
        "call with finish reason stop",
        "rule 21",
        Want(calls=CLOCK, finish="tool_calls"),
        events=[calls(nested("clock", '{"city":"Oslo"}', "c1", index=0)), chunk("stop")],
    ),
    Shape(
        "finish reason tool_calls without a call",
        "rule 21",
        Want("Hi"),
        events=[chunk(content="Hi"), chunk("tool_calls")],
    ),
    # --- a forced call leaked as text ---
    Shape(
        "leaked call",
        "rule 27, cloudflare/ai#574",
        Want(calls=(Call("clock", OSLO),), finish="tool_calls"),
        events=[chunk(content='{"name": "clo'), chunk(content='ck", "arguments": {"city": "Oslo"}}'), chunk("stop")],
        params=forced("clock", "search"),
    ),
    Shape(
        "leaked call on a native model",
        "rule 27",
        Want(calls=(Call("clock", OSLO),), finish="tool_calls"),
        events=[{"response": '{"city": '}, {"response": '"Oslo"}'}],
        params=forced("clock"),
    ),
    Shape(
        "forced, but prose",
        "rule 27",
        Want("It is noon."),
        events=[chunk(content="It is "), chunk(content="noon."), chunk("stop")],
        params=forced("clock"),
    ),
    Shape(
        "forced, and called",
        "rule 27",
        Want("Now.", calls=CLOCK, finish="tool_calls"),
        events=[chunk(content="Now."), calls(nested("clock", '{"city":"Oslo"}', "c1", index=0)), chunk("tool_calls")],
        params=forced("clock"),
    ),
    Shape(
        "JSON, but nothing forced",
        "rule 27",
        Want('{"city": "Oslo"}'),
        events=[chunk(content='{"city": "Oslo"}'), chunk("stop")],
        params={"tools": forced("clock")["tools"]},
    ),
    # --- usage ---
    Shape(
        "one record at the end",
        "langchain-ai/langchain-litellm#115",
        Want("a", usage=(10, 2, 12)),
        events=[chunk(content="a"), chunk("stop"), {"choices": [], "usage": usage(10, 2)}],
    ),
    Shape(
        "one record on the finish event",
        "rule 22",
        Want("a", usage=(10, 2, 12)),
        events=[chunk(content="a"), chunk("stop", usage(10, 2))],
    ),
    Shape(
        "running totals",
        "langchain-ai/langchain#30429",
        Want("ab", usage=(10, 2, 12)),
        events=[
            chunk(None, usage(10, 1), content="a"),
            chunk(None, usage(10, 2), content="b"),
            chunk("stop", usage(10, 2)),
        ],
    ),
    Shape(
        "running totals and totals at the end",
        "vLLM trace of 2025",
        Want("ab", usage=(13, 3, 16)),
        events=[
            chunk(None, usage(13, 1), content="a"),
            chunk(None, usage(13, 2), content="b"),
            chunk("stop", usage(13, 3)),
            {"choices": [], "usage": usage(13, 3)},
        ],
    ),
    Shape(
        "an increment among running totals",
        "cloudflare/ai#651",
        Want("ab", usage=(10, 2, 12)),
        events=[
            chunk(None, usage(10, 0), content="a"),
            chunk(None, usage(0, 1), content="b"),
            chunk("stop"),
            {"choices": [], "usage": usage(10, 2)},
        ],
    ),
    Shape(
        "increments",
        "trace of 2026-10",
        Want("abc", usage=(14, 4, 18), neurons=1.0),
        events=[
            chunk(None, usage(14, 0, neurons=0.5), content="", role="assistant"),
            chunk(None, usage(0, 2, neurons=0.25), content="ab"),
            chunk(None, usage(0, 1, neurons=0.125), content="c"),
            chunk("stop", usage(0, 0, neurons=0.0)),
            {"choices": [], "usage": usage(0, 1, neurons=0.125)},
        ],
    ),
    Shape(
        "increments and the native closing event",
        "trace of 2026-10",
        Want("ab", usage=(14, 3, 17), cached=64, neurons=0.918182),
        events=[
            chunk(None, usage(14, 0, neurons=0.5), content="", role="assistant"),
            chunk(None, usage(0, 2, neurons=0.4), content="ab"),
            chunk("stop", usage(0, 0)),
            {"choices": [], "usage": usage(0, 1)},
            {"response": "", "usage": usage(14, 3, neurons=0.918182, prompt_tokens_details={"cached_tokens": 64})},
        ],
    ),
    Shape(
        "native usage",
        "wire trace",
        Want("Hello", usage=(755, 10, 765), neurons=1.5),
        events=[*HELLO, {"response": ""}, {"response": "", "usage": usage(755, 10, neurons=1.5)}],
    ),
    # --- broken streams ---
    Shape(
        "cut",
        "cloudflare/ai#393",
        Want(error="StreamInterruptedError", partial="The answer is"),
        events=[chunk(content="The answer is")],
        done=False,
    ),
    Shape("native, cut", "rule 28", Want(error="StreamInterruptedError", partial="Hello"), events=HELLO, done=False),
    Shape(
        "cut inside an event",
        "rule 28",
        Want(error="StreamInterruptedError", partial="Hel"),
        stream=sse(HELLO[:1], done=False) + b'data: {"respon',
    ),
    # Rule 28 accepts an empty stream. Without an end mark, it cannot be known whether the answer is complete.
    Shape("no byte at all", "rule 28", Want(error="StreamInterruptedError"), stream=b"", requests=3),
    Shape(
        "usage without an end",
        "rule 28",
        Want(error="StreamInterruptedError", partial="a"),
        events=[chunk(content="a"), {"choices": [], "usage": usage(1, 1)}],
        done=False,
    ),
    Shape(
        "error frame",
        "peers, gap",
        Want(error="CapacityError", code=3040, partial="Hel"),
        events=[HELLO[0], {"errors": [{"code": 3040, "message": "AiError: busy"}], "success": False}],
    ),
    Shape(
        "error frame first",
        "peers, gap",
        Want(error="QuotaExhaustedError", code=4006),
        events=[{"errors": [{"code": 4006, "message": "used up"}]}],
    ),
    Shape(
        "error frame of the gateway",
        "peers, gap",
        Want(error="RateLimitError", code=2018, partial="a"),
        events=[chunk(content="a"), {"error": [{"code": 2018, "message": "Wholesale Rate limited"}]}],
    ),
    Shape(
        "error frame of the binding",
        "peers, gap",
        Want(error="InternalServerError", code=3043, partial="a"),
        events=[chunk(content="a"), {"internalCode": 3043, "httpCode": 500, "name": "AiError", "message": "internal"}],
    ),
    Shape(
        "OpenAI error frame",
        "peers, gap",
        Want(error="StreamInterruptedError", partial="a"),
        events=[chunk(content="a"), {"error": {"message": "boom", "type": "server_error"}}],
    ),
    Shape(
        "OpenAI error frame with a status",
        "peers, gap",
        Want(error="BadRequestError", partial="a"),
        events=[chunk(content="a"), {"error": {"message": "This is wrong", "code": 400}}],
    ),
    Shape(
        "error frame with an empty list of choices",
        "peers, gap",
        Want(error="CapacityError", code=3040, partial="a"),
        events=[chunk(content="a"), {"choices": [], "error": {"code": 3040, "message": "busy"}}],
    ),
    Shape(
        "error frame of an unknown code",
        "peers, gap",
        Want(error="StreamInterruptedError", code=99999, partial="a"),
        events=[chunk(content="a"), {"errors": [{"code": 99999, "message": "odd"}]}],
    ),
]
