"""Requests: rules 1 to 14 and the reports of groups 1, 2, 5 and 8.

A comment at a row explains a decision against its rule. ``run`` is the native route, ``chat`` is chat completions.
"""

from __future__ import annotations

from shapes import HI, NATIVE, OPENAI, TOOLS, Sent, nested

MISTRAL = "@cf/mistralai/mistral-small-3.1-24b-instruct"
VISION = "@cf/meta/llama-4-scout-17b-16e-instruct"
PNG = "data:image/png;base64,iVBORw0KGgo="
ASKED = {"role": "user", "content": "Time in Oslo?"}
CALL = nested("clock", '{"city":"Oslo"}', "call_1")
ANSWERED = {"role": "tool", "tool_call_id": "call_1", "name": "clock", "content": "14:02"}


def turn(call: object = CALL, **message: object) -> dict[str, object]:
    """Return an assistant turn with a call."""
    return {"role": "assistant", "content": "", "tool_calls": [call], **message}


def user(*parts: object) -> tuple[dict[str, object], ...]:
    """Return a user message of parts."""
    return ({"role": "user", "content": list(parts)},)


def image(url: object) -> dict[str, object]:
    """Return an image part."""
    return {"type": "image_url", "image_url": url}


def text(value: str) -> dict[str, object]:
    """Return a text part."""
    return {"type": "text", "text": value}


SCHEMA = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
NAMED = {"type": "json_schema", "json_schema": {"name": "person", "schema": SCHEMA, "strict": True}}
BARE = {"type": "json_schema", "json_schema": SCHEMA}

MESSAGES = [
    *(
        Sent(
            f"content null: {role}",
            "rule 1, we-promise/sure#467",
            [{"role": role, "content": None}, *HI],
            has={"messages.0.content": ""},
        )
        for role in ("system", "user", "assistant")
    ),
    Sent(
        "content null: an assistant's call",
        "rule 1, we-promise/sure#467",
        [ASKED, turn(content=None), ANSWERED],
        has={"messages.1.content": ""},
    ),
    Sent(
        "content null: a tool's result",
        "rule 1",
        [ASKED, turn(), {**ANSWERED, "content": None}],
        has={"messages.2.content": ""},
    ),
    Sent(
        "content left out",
        "zeroclaw-labs/zeroclaw#9493",
        [ASKED, {"role": "assistant", "tool_calls": [CALL]}, ANSWERED],
        has={"messages.1.content": ""},
    ),
    Sent(
        "text parts become one text",
        "rule 2, anomalyco/opencode#30381",
        [{"role": "system", "content": [text("Be brief.")]}, *user(text("a"), text("b"))],
        has={"messages.0.content": "Be brief.", "messages.1.content": "a\nb"},
    ),
    Sent(
        "an assistant's parts are joined as they are",
        "rule 2",
        [*HI, {"role": "assistant", "content": [text("Hel"), text("lo")]}],
        has={"messages.1.content": "Hello"},
    ),
    Sent("parts that are plain texts", "rule 2", user("a", "b"), has={"messages.0.content": "a\nb"}),
    Sent("no parts", "rule 2", user(), has={"messages.0.content": ""}),
    Sent(
        "reasoning goes back beside the text",
        "rule 2, cloudflare/ai#451",
        [*HI, {"role": "assistant", "content": "4", "reasoning": "2+2"}, *HI],
        model=OPENAI,
        has={"messages.1.content": "4", "messages.1.reasoning": "2+2"},
    ),
    # The older schema has no field for it.
    Sent(
        "reasoning stays out of the older schema",
        "rule 2",
        [*HI, {"role": "assistant", "content": "4", "reasoning": "2+2"}],
        has={"messages.1.content": "4"},
        lacks=["messages.1.reasoning"],
    ),
    Sent(
        "a call goes back nested, its arguments as text",
        "rule 3, we-promise/sure#467",
        [ASKED, turn({"id": "call_1", "name": "clock", "arguments": {"city": "Oslo"}}), ANSWERED],
        has={"messages.1.tool_calls.0": nested("clock", '{"city": "Oslo"}', "call_1")},
    ),
    # Not supported: repeating the call as JSON in the text, as older packages do for Llama.
    Sent(
        "a call is not repeated in the text",
        "rule 3, langchain-cloudflare",
        [ASKED, turn(content="Let me see."), ANSWERED],
        has={"messages.1.content": "Let me see.", "messages.1.tool_calls.0": CALL},
    ),
    *(
        Sent(
            f"arguments {label} are sent as an empty object",
            "langchain-ai/langchain#34123",
            [
                ASKED,
                turn({"id": "call_1", "type": "function", "function": {"name": "now", "arguments": given}}),
                ANSWERED,
            ],
            has={"messages.1.tool_calls.0.function.arguments": "{}"},
        )
        for label, given in {"null": None, "empty": ""}.items()
    ),
    Sent(
        "arguments that are not JSON are wrapped",
        "glm trace: must be valid JSON",
        [ASKED, turn(nested("clock", '{"city": Os', "call_1")), ANSWERED],
        has={"messages.1.tool_calls.0.function.arguments": '{"invalid_arguments": "{\\"city\\": Os"}'},
    ),
    Sent(
        "a result that is an object is written once",
        "rule 4",
        [ASKED, turn(), {**ANSWERED, "content": {"time": "14:02"}}],
        has={"messages.2.content": '{"time": "14:02"}'},
    ),
    Sent(
        "a result that is a list is written once",
        "rule 4",
        [ASKED, turn(), {**ANSWERED, "content": [{"time": "14:02"}, 7]}],
        has={"messages.2.content": '[{"time": "14:02"}, 7]'},
    ),
    Sent(
        "a result that is a number",
        "rule 4",
        [ASKED, turn(), {**ANSWERED, "content": 7}],
        has={"messages.2.content": "7"},
    ),
    Sent(
        "a result of text parts",
        "rule 4",
        [ASKED, turn(), {**ANSWERED, "content": [text("14:02"), text("UTC+1")]}],
        has={"messages.2.content": "14:02\nUTC+1"},
    ),
    Sent(
        "a result keeps its name and id",
        "rule 5, cloudflare/ai#384",
        [ASKED, turn(), ANSWERED],
        has={"messages.2": ANSWERED},
    ),
    Sent(
        "no name, no key",
        "langchain-cloudflare",
        [ASKED, turn(), {"role": "tool", "tool_call_id": "call_1", "content": "x", "name": None}],
        lacks=["messages.2.name", "messages.0.tool_calls"],
    ),
    Sent(
        "results in any order keep their ids",
        "cloudflare/ai#384",
        [
            ASKED,
            {"role": "assistant", "content": "", "tool_calls": [nested("a", "{}", "c-A"), nested("b", "{}", "c-B")]},
            {"role": "tool", "tool_call_id": "c-B", "content": "b"},
            {"role": "tool", "tool_call_id": "c-A", "content": "a"},
        ],
        has={"messages.1.tool_calls.0.id": "c-A", "messages.2.tool_call_id": "c-B", "messages.3.tool_call_id": "c-A"},
    ),
    Sent(
        "an id that was marked as repeated goes back as the model wrote it",
        "rule 19, cloudflare/ai#526",
        [
            ASKED,
            turn(nested("search", "{}", "functions.search:0~turn2")),
            {"role": "tool", "tool_call_id": "functions.search:0~turn2", "content": "x"},
        ],
        has={"messages.1.tool_calls.0.id": "functions.search:0", "messages.2.tool_call_id": "functions.search:0"},
    ),
    Sent(
        "a call that was never answered gets a result",
        "wire trace: 5006 later",
        [ASKED, turn(), *HI],
        has={"messages.2.role": "tool", "messages.2.tool_call_id": "call_1", "messages.3.role": "user"},
    ),
    Sent(
        "one of two calls not answered",
        "wire trace: 5006 later",
        [
            ASKED,
            {"role": "assistant", "content": "", "tool_calls": [nested("a", "{}", "A1"), nested("b", "{}", "B1")]},
            {"role": "tool", "tool_call_id": "A1", "content": "a"},
        ],
        has={"messages.2.tool_call_id": "A1", "messages.3.tool_call_id": "B1"},
    ),
    Sent(
        "Mistral takes ids of nine letters and digits",
        "model schema",
        [ASKED, turn(nested("a", "{}", "abcDEF123")), {"role": "tool", "tool_call_id": "abcDEF123", "content": "x"}],
        model=MISTRAL,
        has={"messages.1.tool_calls.0.id": "abcDEF123", "messages.2.tool_call_id": "abcDEF123"},
    ),
    Sent(
        "developer is system in the older schema",
        "model schema",
        [{"role": "developer", "content": "Be brief."}, *HI],
        has={"messages.0.role": "system"},
    ),
    Sent(
        "developer stays in the newer schema",
        "model schema",
        [{"role": "developer", "content": "Be brief."}, *HI],
        model=OPENAI,
        has={"messages.0.role": "developer"},
    ),
]

IMAGES = [
    Sent(
        "an image stays an image beside its text",
        "rule 6, anomalyco/opencode#36850",
        user(text("What?"), image({"url": PNG})),
        model=VISION,
        has={"messages.0.content": [text("What?"), image({"url": PNG})]},
    ),
    Sent(
        "an image given as a text",
        "rule 6, cloudflare/ai#435",
        user(image(PNG)),
        model=VISION,
        has={"messages.0.content": [image({"url": PNG})]},
    ),
    Sent(
        "detail is kept",
        "rule 6",
        user(image({"url": PNG, "detail": "low"})),
        model=VISION,
        has={"messages.0.content.0.image_url.detail": "low"},
    ),
    Sent(
        "a media type in capitals",
        "rule 6, cloudflare/ai#563",
        user(image({"url": "DATA:IMAGE/PNG;base64,iVBORw0KGgo="})),
        model=VISION,
        has={"messages.0.content.0.image_url.url": "DATA:IMAGE/PNG;base64,iVBORw0KGgo="},
    ),
    Sent(
        "an image in one message leaves the others texts",
        "anomalyco/opencode#30381",
        [{"role": "system", "content": [text("Be brief.")]}, *user(image(PNG))],
        model=VISION,
        has={"messages.0.content": "Be brief."},
    ),
    Sent(
        "a link to an image is rejected",
        "rule 6, zaidmukaddam/scira#248",
        user(text("Who?"), image({"url": "https://example.org/cat.jpg"})),
        model=VISION,
        error="BadRequestError",
        says="Pass the bytes as base64, or as a data: URL with their media type",
    ),
    *(
        Sent(
            f"{label} is rejected",
            "rule 6, cloudflare/ai#563",
            user(part),
            model=VISION,
            error="BadRequestError",
            says="message 0",
        )
        for label, part in {
            "a PDF": {"type": "file", "file": {"file_data": "JVBERi0=", "filename": "a.pdf"}},
            "audio": {"type": "input_audio", "input_audio": {"data": "AAAA", "format": "wav"}},
            "a document as an image": image({"url": "data:application/pdf;base64,JVBERi0="}),
            "data without a media type": image({"url": "data:;base64,AAAA"}),
        }.items()
    ),
    Sent(
        "an image without a media type is known by its bytes",
        "issue 9: bare base64",
        user(image("iVBORw0KGgo=")),
        model=VISION,
        has={"messages.0.content.0.image_url.url": "data:image/png;base64,iVBORw0KGgo="},
    ),
    Sent(
        "a block of unknown form is rejected by name",
        "langchain-ai/langchain-aws#326",
        user(text("a"), {"guardContent": {}}),
        error="BadRequestError",
        says="unknown form with the keys ['guardContent']",
    ),
    Sent(
        "marks of another provider's cache are dropped",
        "langchain-ai/langchain-aws#499",
        user({**text("a"), "cache_control": {"type": "ephemeral"}}, {"cachePoint": {"type": "default"}}),
        has={"messages.0.content": "a"},
    ),
]

CHOICES = [
    Sent(
        "any is sent as required",
        "rule 7, cloudflare/ai#454",
        params={"tools": TOOLS, "tool_choice": "any"},
        has={"tool_choice": "required"},
    ),
    Sent(
        "true is sent as required",
        "rule 7",
        params={"tools": TOOLS, "tool_choice": True},
        has={"tool_choice": "required"},
    ),
    Sent(
        "required with one tool names it",
        "rule 8, cloudflare/ai#575",
        params={"tools": TOOLS[:1], "tool_choice": "required"},
        has={"tool_choice": {"type": "function", "function": {"name": "clock"}}},
    ),
    *(
        Sent(
            f"a tool named {label}",
            "rule 8",
            params={"tools": TOOLS, "tool_choice": choice},
            has={
                "tool_choice": {"type": "function", "function": {"name": "search"}},
                "tools.0.function.name": "clock",
                "tools.1.function.name": "search",
            },
        )
        for label, choice in {
            "by a dict": {"type": "function", "function": {"name": "search"}},
            "by a flat dict": {"type": "tool", "name": "search"},
            "by its name": "search",
        }.items()
    ),
    Sent("auto and none go out", "rule 7", params={"tools": TOOLS, "tool_choice": "auto"}, has={"tool_choice": "auto"}),
    Sent(
        "no choice, no key",
        "rule 9, cloudflare/ai#85",
        params={"tools": TOOLS},
        has={"tools.0.function.name": "clock"},
        lacks=["tool_choice", "parallel_tool_calls"],
    ),
    Sent(
        "a choice without tools is dropped",
        "rule 9",
        params={"tool_choice": "required", "tools": [], "parallel_tool_calls": False},
        lacks=["tool_choice", "tools", "parallel_tool_calls"],
    ),
    Sent(
        "a choice goes out to Mistral, too",
        "cloudflare/ai#404",
        params={"tools": TOOLS, "tool_choice": "required"},
        model=MISTRAL,
        has={"tool_choice": "required"},
    ),
    Sent(
        "parallel_tool_calls false is sent when set",
        "langchain-ai/langchain#25357",
        params={"tools": TOOLS, "parallel_tool_calls": False},
        has={"parallel_tool_calls": False},
    ),
    Sent(
        "strict only when set",
        "langchain-ai/langchain#25357",
        params={"tools": [{**TOOLS[0], "function": {**TOOLS[0]["function"], "strict": True}}, TOOLS[1]]},
        model=OPENAI,
        has={"tools.0.function.strict": True},
        lacks=["tools.1.function.strict"],
    ),
    Sent(
        "what is false is absent in the newer schema",
        "rule 9, cloudflare/ai#454",
        params={"tools": [{"type": "function", "function": {"name": "t", "description": False, "parameters": False}}]},
        model=OPENAI,
        has={"tools.0": {"type": "function", "function": {"name": "t"}}},
    ),
    Sent(
        "what is absent is completed in the older schema",
        "model schema: 5006",
        params={"tools": [{"type": "function", "function": {"name": "t", "description": None}}]},
        has={
            "tools.0": {
                "type": "function",
                "function": {"name": "t", "description": "t", "parameters": {"type": "object", "properties": {}}},
            }
        },
    ),
    Sent(
        "properties without description are completed in the older schema",
        "model schema: 5006",
        params={
            "tools": [
                {
                    "name": "t",
                    "description": "d",
                    "parameters": {"properties": {"a": {"type": "string"}, "b": {"type": "string", "title": "The b"}}},
                }
            ]
        },
        has={
            "tools.0.function.parameters.properties": {
                "a": {"type": "string", "description": "a"},
                "b": {"type": "string", "title": "The b", "description": "The b"},
            }
        },
    ),
    Sent(
        "references are put in their places",
        "vllm-project/vllm#15236",
        params={
            "tools": [
                {
                    "name": "t",
                    "description": "d",
                    "parameters": {
                        "type": "object",
                        "properties": {"c": {"$ref": "#/$defs/City", "description": "Where"}},
                        "$defs": {"City": {"type": "object", "properties": {}}},
                    },
                }
            ]
        },
        has={"tools.0.function.parameters.properties.c": {"type": "object", "properties": {}, "description": "Where"}},
        lacks=["tools.0.function.parameters.$defs"],
    ),
    # Not supported: removing tools if JSON output is requested (rule 9). Callers set both on purpose, and
    # agents with a response format send both.
    Sent(
        "tools and a response format go out together",
        "rule 9",
        params={"tools": TOOLS, "response_format": NAMED},
        has={"tools.0.function.name": "clock", "response_format.type": "json_schema"},
    ),
]

STRUCTURED = [
    # On the native route, name and description can only be in the schema's own title and description.
    *(
        Sent(
            f"a schema goes out bare on run, named on chat completions: given {label}",
            "rule 10, cloudflare/ai#559",
            params={"response_format": given},
            run={"response_format": {"type": "json_schema", "json_schema": {**title, **SCHEMA}}},
            chat={"response_format.json_schema.schema": SCHEMA, "response_format.json_schema.name": name},
        )
        for label, given, name, title in [
            ("named", NAMED, "person", {"title": "person"}),
            ("bare", BARE, "response", {}),
        ]
    ),
    Sent(
        "the title of a bare schema names it",
        "rule 10",
        params={"response_format": {"type": "json_schema", "json_schema": {**SCHEMA, "title": "Person"}}},
        chat={"response_format.json_schema.name": "Person"},
        run={"response_format.json_schema.title": "Person"},
    ),
    Sent(
        "strict of a schema",
        "rule 10",
        params={"response_format": NAMED},
        chat={"response_format.json_schema.strict": True},
        api=["chat_completions"],
    ),
    Sent(
        "strict of a schema, not set",
        "rule 10",
        params={"response_format": BARE},
        lacks=["response_format.json_schema.strict"],
    ),
    Sent(
        "JSON mode without a schema",
        "rule 10",
        params={"response_format": {"type": "json_object"}},
        has={"response_format": {"type": "json_object"}},
    ),
    *(
        Sent(
            f"response_format {given!r} is left out",
            "rule 9, cloudflare/ai#393",
            params={"response_format": given},
            lacks=["response_format"],
        )
        for given in (None, {})
    ),
    Sent(
        "a schema that is false is rejected",
        "cloudflare/ai#393",
        params={"response_format": {"type": "json_schema", "json_schema": False}},
        error="ConfigurationError",
        says="schema",
    ),
    Sent(
        "models that know guided_json get the schema by that name",
        "langchain-cloudflare 0.1.10",
        params={"response_format": NAMED},
        model=MISTRAL,
        api=["run"],
        has={"guided_json": {"title": "person", **SCHEMA}},
        lacks=["response_format"],
    ),
    Sent(
        "guided_json by hand",
        "langchain-cloudflare 0.1.10",
        params={"guided_json": SCHEMA},
        api=["run"],
        has={"guided_json": SCHEMA},
    ),
]

PARAMETERS = [
    Sent(
        "nothing set, nothing sent",
        "langchain-cloudflare",
        run={"": {"messages": [*HI]}},
        chat={"": {"model": NATIVE, "messages": [*HI]}},
    ),
    Sent(
        "all that is set is sent",
        "rule 12, cloudflare/ai#459",
        params={
            "temperature": 0,
            "top_p": 0.5,
            "max_tokens": 900,
            "seed": 7,
            "stop": ["x"],
            "frequency_penalty": 0.1,
            "presence_penalty": 0.2,
        },
        has={
            "temperature": 0,
            "top_p": 0.5,
            "max_tokens": 900,
            "seed": 7,
            "stop": ["x"],
            "frequency_penalty": 0.1,
            "presence_penalty": 0.2,
        },
    ),
    Sent(
        "what is null is not sent",
        "langchain-cloudflare",
        params={"temperature": None, "stop": None, "seed": None, "tools": None, "logprobs": None},
        lacks=["temperature", "stop", "seed", "tools", "logprobs", "stream"],
    ),
    Sent(
        "cache marks among the tools are dropped",
        "B137",
        params={"tools": [*TOOLS, {"cachePoint": {"type": "default"}}]},
        model=OPENAI,
        has={"tools": list(TOOLS)},
    ),
    Sent("one stop text is a list of one", "rule 12", params={"stop": "END"}, has={"stop": ["END"]}),
    Sent("no stop texts", "langchain-cloudflare", params={"stop": []}, lacks=["stop"]),
    # Not supported: replacing efforts that a model does not list (rule 11). The service validates them.
    Sent(
        "reasoning settings are in the body",
        "rule 11, cloudflare/ai#501",
        params={"reasoning_effort": "minimal", "chat_template_kwargs": {"enable_thinking": False}},
        model=OPENAI,
        has={"reasoning_effort": "minimal", "chat_template_kwargs": {"enable_thinking": False}},
    ),
    Sent(
        "an effort that is null is sent as null",
        "rule 11, cloudflare/ai#503",
        params={"reasoning_effort": None},
        model=OPENAI,
        has={"reasoning_effort": None},
    ),
    *(
        Sent(
            f"an effort that is null is not sent to {model}",
            "the older schema has no null",
            params={"reasoning_effort": None},
            model=model,
            lacks=["reasoning_effort", "reasoning"],
        )
        for model in ("@cf/meta/llama-3.3-70b-instruct-fp8-fast", "@cf/openai/gpt-oss-120b", "@cf/unknown/model")
    ),
    Sent(
        "extra fields go out as they are",
        "langchain-cloudflare 0.1.10",
        params={"extra_body": {"clear_thinking": True, "n": None}},
        has={"clear_thinking": True, "n": None},
    ),
    *(
        Sent(
            f"{name} chooses the native route",
            "model schema",
            params={name: value},
            api=[""],
            has={name: value},
            path={"": f"/ai/run/{NATIVE}"},
        )
        for name, value in {"top_k": 5, "repetition_penalty": 1.1, "lora": "my-adapter", "guided_json": SCHEMA}.items()
    ),
    Sent(
        "a parameter on the wrong route is rejected",
        "model schema",
        params={"top_k": 5},
        api=["chat_completions"],
        error="ConfigurationError",
        says="top_k exists only on api='run'",
    ),
    Sent(
        "a raw prompt",
        "LoRA page",
        params={"raw": True, "lora": "a"},
        api=["", "run"],
        has={"prompt": "hi", "raw": True, "lora": "a"},
        lacks=["messages"],
    ),
    Sent(
        "a raw prompt of two messages is rejected",
        "LoRA page",
        [*HI, *HI],
        params={"raw": True},
        api=["run"],
        error="BadRequestError",
        says="single text message",
    ),
    *(
        Sent(
            f"a busy service rejects: on_busy={on_busy}",
            "reject-if-busy page",
            params={"extra_body": {"options": {"tags": ["a"]}}},
            settings={"on_busy": on_busy},
            has={"options": {"tags": ["a"], "rejectIfBusy": True}},
            lacks=["rejectIfBusy"],
        )
        for on_busy in ("retry", "raise")
    ),
    Sent("a busy service holds", "reject-if-busy page", lacks=["options"]),
    Sent(
        "rejected by this call alone",
        "reject-if-busy page",
        params={"on_busy": "raise"},
        has={"options": {"rejectIfBusy": True}},
    ),
]

ROUTES = [
    Sent(
        "path of a model",
        "rule 13",
        path={"run": f"/ai/run/{NATIVE}", "chat_completions": "/ai/v1/chat/completions"},
        chat={"model": NATIVE},
    ),
    Sent(
        "a Hugging Face model",
        "cloudflare/ai#596",
        model="@hf/google/gemma-7b-it",
        path={"run": "/ai/run/@hf/google/gemma-7b-it"},
    ),
    Sent("letters a path cannot carry", "rule 13", model="@cf/a/ü", path={"run": "/ai/run/@cf/a/%C3%BC"}),
    Sent(
        "a third-party model on run goes over the shared route",
        "cloudflare/ai#599",
        model="openai/gpt-5",
        api=["run"],
        params={"on_busy": "raise"},
        path={"run": "/ai/run"},
        has={"": {"model": "openai/gpt-5", "input": {"messages": [*HI]}, "options": {"rejectIfBusy": True}}},
        sends_headers={"cf-aig-gateway-id": "default"},
    ),
    Sent(
        "a gateway of one's own for it",
        "cloudflare/ai#599",
        model="openai/gpt-5",
        api=["run"],
        settings={"gateway": "gw"},
        path={"run": "/ai/run"},
        sends_headers={"cf-aig-gateway-id": "gw"},
    ),
    Sent(
        "a third-party model on chat completions",
        "cloudflare/ai#596",
        model="openai/gpt-5",
        api=["chat_completions"],
        has={"model": "openai/gpt-5"},
    ),
    Sent(
        "a dynamic route",
        "cloudflare/ai#596",
        model="dynamic/my-route",
        api=["chat_completions"],
        has={"model": "dynamic/my-route"},
    ),
    Sent(
        "a dynamic route on run is rejected",
        "langchain-cloudflare",
        model="dynamic/my-route",
        api=["run"],
        error="ConfigurationError",
        says="api='chat_completions'",
    ),
    Sent("a session", "rule 14", params={"session_id": "thread-1"}, sends_headers={"x-session-affinity": "thread-1"}),
    Sent(
        "a gateway",
        "rule 14, cloudflare/ai#403",
        settings={"gateway": "gw", "default_headers": {"x-team": "search"}},
        sends_headers={
            "cf-aig-gateway-id": "gw",
            "x-team": "search",
            "authorization": "Bearer token-of-the-tests-0123456789",
        },
    ),
    Sent(
        "the gateway's own host",
        "rule 13, cloudflare/ai#398",
        settings={"base_url": "https://gateway.ai.cloudflare.com/v1/acct/gw/"},
        path={
            "run": f"/v1/acct/gw/workers-ai/run/{NATIVE}",
            "chat_completions": "/v1/acct/gw/workers-ai/v1/chat/completions",
        },
    ),
]

SENT = [*MESSAGES, *IMAGES, *CHOICES, *STRUCTURED, *PARAMETERS, *ROUTES]
