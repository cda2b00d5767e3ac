"""The rules of the fake model."""

from __future__ import annotations

import json
import operator
import os
from typing import TYPE_CHECKING, Any

import jsonschema
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.emulator.conftest import GEMMA

from workers_ai_emulator.catalogue import models
from workers_ai_emulator.fake_model.model import complete
from workers_ai_emulator.fake_model.request import ChatRequest, Tool, Turn
from workers_ai_emulator.fake_model.schemas.instance import Instance
from workers_ai_emulator.fake_model.schemas.values import Source
from workers_ai_emulator.rules.tokens import content_stems

if TYPE_CHECKING:
    from tests.emulator.conftest import Api

EXAMPLES = int(os.environ.get("WORKERS_AI_FUZZ_EXAMPLES", "10"))
CONTEXT = """The json module encodes Python objects. The csv module reads and writes tabular data.
Sockets live in the socket module."""


def tool(
    name: str, description: str = "A tool", required: list[str] | None = None, /, **properties: Any
) -> dict[str, Any]:
    parameters = {
        "type": "object",
        "properties": properties,
        "required": list(properties) if required is None else required,
    }
    return {"type": "function", "function": {"name": name, "description": description, "parameters": parameters}}


WEATHER = tool("get_weather", "Get the weather at a place", location={"type": "string"})
ADDER = tool("adder", "Takes two integers and returns their sum", a={"type": "integer"}, b={"type": "integer"})
MULTIPLY = tool("multiply", "Multiply two numbers", a={"type": "number"}, b={"type": "number"})
PERSON = {"name": {"type": "string"}, "age": {"type": "integer"}}
TRIP = {"city": {"type": "string"}, "days": {"type": "integer", "default": 3}}
OPERATORS = {"adder": operator.add, "multiply": operator.mul, "divide": operator.truediv}
MAGIC = tool("magic_function", "Apply magic", input={"type": "integer", "exclusiveMinimum": -9, "exclusiveMaximum": 9})


def say(api: Api, question: str, system: str = "", **body: Any) -> dict[str, Any]:
    messages = [{"role": "system", "content": system}] if system else []
    return dict(
        api.chat(GEMMA, [*messages, {"role": "user", "content": question}], **body).json()["choices"][0]["message"]
    )


def calls(api: Api, question: str, tools: list[Any], **body: Any) -> list[tuple[str, Any]]:
    tool_calls = say(api, question, tools=tools, **body).get("tool_calls", [])
    return [(call["function"]["name"], json.loads(call["function"]["arguments"])) for call in tool_calls]


def instance(api: Api, question: str, schema: dict[str, Any]) -> Any:
    body = {"response_format": {"type": "json_schema", "json_schema": schema}}
    value = json.loads(say(api, question, **body)["content"])
    jsonschema.validate(value, schema)
    return value


@pytest.mark.parametrize(
    ("question", "system", "answer"),
    [
        (
            "Which module reads tabular data?",
            f"Answer from the context.\n\nContext: {CONTEXT}",
            "The csv module reads and writes",
        ),
        (
            f"Use the following context.\nQuestion: What encodes objects?\nContext: {CONTEXT}\nAnswer:",
            "",
            "The json module encodes",
        ),
        (
            f"Context information is below.\n-----\n{CONTEXT}\n-----\nGiven the context, answer the query."
            "\nQuery: Where do sockets live?\nAnswer: ",
            "",
            "Sockets live in the socket module.",
        ),
        (f"{CONTEXT}\n\nWhich module encodes objects?", "", "The json module encodes Python objects."),
    ],
)
def test_answers_come_from_the_context(api: Api, question: str, system: str, answer: str) -> None:
    assert say(api, question, system)["content"].startswith(answer)


def test_answers_without_or_outside_the_context(api: Api) -> None:
    assert "could not find an answer" in say(api, "Which planet is largest?", CONTEXT)["content"]
    assert "no context to answer this from" in say(api, "Which planet is largest?")["content"]


def test_answers_use_earlier_turns(api: Api) -> None:
    messages = [
        {"role": "user", "content": "My name is Bob. I like fish."},
        {"role": "assistant", "content": "Nice to meet you!"},
        {"role": "user", "content": "What is my name?"},
    ]

    assert api.chat(GEMMA, messages).json()["choices"][0]["message"]["content"] == "Your name is Bob."


def test_images_are_counted(api: Api) -> None:
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,aGk="}}
    messages = [{"role": "user", "content": [{"type": "text", "text": "Describe it."}, image]}]

    assert api.chat(GEMMA, messages).json()["choices"][0]["message"]["content"].startswith("I see 1 image.")


@pytest.mark.parametrize(
    ("question", "expected"),
    [
        ("What is the weather in San Francisco, CA?", [("get_weather", {"location": "San Francisco, CA"})]),
        ("Oslo weather?", [("get_weather", {"location": "Oslo"})]),
        (
            "How is the weather in Oslo and Rome?",
            [("get_weather", {"location": "Oslo"}), ("get_weather", {"location": "Rome"})],
        ),
        ("What is 3 + 4?", [("adder", {"a": 3, "b": 4})]),
        ("What is 12 times 7.5?", [("multiply", {"a": 12, "b": 7.5})]),
        (
            "What is 12 times 7, and how is the weather in Oslo?",
            [("multiply", {"a": 12, "b": 7}), ("get_weather", {"location": "Oslo"})],
        ),
        ("Call magic_function(3).", [("magic_function", {"input": 3})]),
        ("What is 3 * 12? Also, what is 11 + 49?", [("multiply", {"a": 3, "b": 12}), ("adder", {"a": 11, "b": 49})]),
        ("Do I need an umbrella in Oslo?", [("get_weather", {"location": "Oslo"})]),
        ("what is the weather in sf", [("get_weather", {"location": "sf"})]),
        ("Hello!", []),
        ("Tell me about Python.", []),
    ],
)
def test_a_matching_question_calls_the_tool(api: Api, question: str, expected: list[Any]) -> None:
    assert expected == calls(api, question, [WEATHER, ADDER, MULTIPLY, MAGIC])


SEARCH = tool("retrieve_context", "Retrieve information to help answer a query.", query={"type": "string"})
GUIDE = "You have access to a tool that retrieves context from a blog post. Use the tool to help answer user queries."


@pytest.mark.parametrize(
    ("question", "system", "query"),
    [
        ("What is task decomposition?", "", "task decomposition"),
        ("What is task decomposition?", GUIDE, "task decomposition"),
        ("Who won the race in Oslo?", "", "won the race in Oslo"),
        ("Please look up reward hacking", "", "reward hacking"),
        ("Hi, my name is Bob.", "", None),
        ("What is my name?", "", None),
        ("Thanks!", "", None),
        ("What is task decomposition?", "Task decomposition splits a task into steps.", None),
    ],
)
def test_a_search_tool_is_called_if_the_context_has_no_answer(
    api: Api, question: str, system: str, query: str | None
) -> None:
    message = say(api, question, system, tools=[SEARCH, WEATHER])
    arguments = [json.loads(call["function"]["arguments"]) for call in message.get("tool_calls", [])]

    assert arguments == ([] if query is None else [{"query": query}])


def test_dependent_steps_wait_for_their_operands(api: Api) -> None:
    messages: list[dict[str, Any]] = [{"role": "user", "content": "What is (121 * 3) + 42? Divide the result by 5."}]
    divide = tool("divide", "Divide two numbers", a={"type": "number"}, b={"type": "number"})
    called = []
    for _ in range(4):
        message = api.chat(GEMMA, messages, tools=[ADDER, MULTIPLY, divide]).json()["choices"][0]["message"]
        messages.append(message)
        for call in message.get("tool_calls", []):
            name, numbers = call["function"]["name"], json.loads(call["function"]["arguments"])
            called.append((name, numbers["a"], numbers["b"]))
            result = {"adder": operator.add, "multiply": operator.mul, "divide": operator.truediv}[name](
                *numbers.values()
            )
            messages.append({"role": "tool", "tool_call_id": call["id"], "content": str(result)})

    assert called == [("multiply", 121, 3), ("adder", 363, 42), ("divide", 405, 5)]
    assert messages[-1]["content"].endswith("81.0")


def test_required_ends_with_the_form(api: Api) -> None:
    form = tool("Forecast", "The answer", city={"type": "string"}, response={"type": "string"})
    messages: list[dict[str, Any]] = [{"role": "user", "content": "What is the weather in Oslo?"}]
    called = []
    for _ in range(2):
        body = {"tools": [WEATHER, form], "tool_choice": "required"}
        message = api.chat(GEMMA, messages, **body).json()["choices"][0]["message"]
        messages.append(message)
        (call,) = message["tool_calls"]
        called.append((call["function"]["name"], json.loads(call["function"]["arguments"])))
        messages.append({"role": "tool", "tool_call_id": call["id"], "content": "It is sunny."})

    assert called[0] == ("get_weather", {"location": "Oslo"})
    assert called[1] == ("Forecast", {"city": "Oslo", "response": "The result of get_weather is: It is sunny."})


def test_tool_choice_forces_and_forbids_calls(api: Api) -> None:
    both = [MAGIC, WEATHER]

    assert calls(api, "Hello!", both, tool_choice="required") == [("magic_function", {"input": 1})]
    named = {"type": "function", "function": {"name": "get_weather"}}
    assert [name for name, _ in calls(api, "Hello!", both, tool_choice=named)] == ["get_weather"]
    assert calls(api, "What is the weather in Oslo?", both, tool_choice="none") == []


def test_then_in_a_request_makes_calls_sequential(api: Api) -> None:
    question = "What is 12 times 7, and how is the weather in Oslo?"
    then = "What is 12 times 7? Then tell me the weather in Oslo."

    assert len(calls(api, question, [WEATHER, MULTIPLY], parallel_tool_calls=False)) == 1
    assert len(calls(api, then, [WEATHER, MULTIPLY])) == 1


def test_an_agent_ends(api: Api) -> None:
    messages: list[dict[str, Any]] = [{"role": "user", "content": "What is 2 + 3, then the weather in Oslo?"}]
    results = {"adder": "5", "get_weather": "It is sunny."}
    called = []
    for _ in range(5):
        message = api.chat(GEMMA, messages, tools=[WEATHER, ADDER]).json()["choices"][0]["message"]
        messages.append(message)
        for call in message.get("tool_calls", []):
            called.append(call["function"]["name"])
            messages.append({"role": "tool", "tool_call_id": call["id"], "content": results[called[-1]]})
        if not message.get("tool_calls"):
            break

    assert called == ["adder", "get_weather"]
    assert messages[-1]["content"] == "The result of adder is: 5\nThe result of get_weather is: It is sunny."


def test_a_long_tool_result_is_reduced_to_the_question(api: Api) -> None:
    call = {"id": "c", "type": "function", "function": {"name": "search", "arguments": "{}"}}
    pages = "\n".join(f"Page {number} speaks of nothing in particular." for number in range(40))
    messages = [
        {"role": "user", "content": "Which module handles sockets?"},
        {"role": "assistant", "content": "", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c", "content": f"{pages}\nThe socket module handles sockets."},
    ]
    answer = api.chat(GEMMA, messages).json()["choices"][0]["message"]["content"]

    assert answer == "The result of search is: The socket module handles sockets."


@pytest.mark.parametrize(
    ("question", "properties", "required", "expected"),
    [
        ("Customer '你好啊集团' (Hello)", {"name": {"type": "string"}}, None, {"name": "你好啊集团"}),
        ("name: Bob Stone, age: 7", PERSON, None, {"name": "Bob Stone", "age": 7}),
        ("Ann is 41 years old", PERSON, None, {"name": "Ann", "age": 41}),
        ("Paint it blue", {"color": {"enum": ["red", "blue"]}}, None, {"color": "blue"}),
        ("Mail ann@example.org", {"to": {"type": "string", "format": "email"}}, None, {"to": "ann@example.org"}),
        ("On 2026-05-17 please", {"day": {"type": "string", "format": "date"}}, None, {"day": "2026-05-17"}),
        ("Find cats", {"query": {"type": "string"}}, None, {"query": "cats"}),
        ("Find 'big cats' now", {"query": {"type": "string"}}, None, {"query": "big cats"}),
        ("Sum 1, 2 and 3", {"values": {"type": "array", "items": {"type": "integer"}}}, None, {"values": [1, 2, 3]}),
        ("Order XK-42", {"sku": {"type": "string", "pattern": "^[A-Z]{2}-\\d+$"}}, None, {"sku": "XK-42"}),
        ("Go to Oslo", TRIP, ["city"], {"city": "Oslo"}),
        ("Go to Oslo, days: 5", TRIP, ["city"], {"city": "Oslo", "days": 5}),
    ],
)  # fmt: skip
def test_arguments_are_taken_from_the_prompt(
    api: Api, question: str, properties: dict[str, Any], required: list[str] | None, expected: dict[str, Any]
) -> None:
    form = tool("do_it", "Does it", required, **properties)

    assert [("do_it", expected)] == calls(api, question, [form], tool_choice="required")


PROFILE = {
    "name": "Maria Garcia",
    "email": "maria@corp.example",
    "phone": "+34 600 123 456",
    "city": "Madrid",
    "age": 34,
    "company": "Acme Labs",
    "start_date": "May 17, 2026",
    "website": "https://corp.example/maria",
    "salary": "$4,500",
    "manager_id": "E-204",
    "favorite_color": "green",
}
SENTENCE = (
    "Hi, I'm Maria Garcia from Madrid, 34 years old. Write to maria@corp.example or call +34 600 123 456. "
    "I work at Acme Labs since May 17, 2026 (https://corp.example/maria) for $4,500. "
    "My manager is E-204 and I like green."
)


@settings(max_examples=EXAMPLES, deadline=None)
@given(st.permutations(list(PROFILE)))
def test_fields_are_extracted_by_kind_in_any_order(order: list[str]) -> None:
    """Values do not depend on the order of the properties."""
    properties = {name: {"type": "integer" if name == "age" else "string"} for name in order}
    schema = {"type": "object", "properties": properties, "required": order}

    assert Instance(schema, Source(SENTENCE), sparse=False).build() == PROFILE


PROMPTS = """What is Rome?|(((1+2|9**9**9|1/0 + 2**99999|{"a": 1}|```json|Question:|Context:|Answer: |---------
> Tool Name: x|Action: add|Action Input: {|<User Question>|ANSWER: <number>|(1) a|(2) b|YES or NO|[[A]]|return JSON
Give 3 keywords.|Summarize this:|Translate to French|classify as a or b|standalone question|it * that
Doc: 1, Relevance: 2"""
PIECES = st.sampled_from(PROMPTS.replace("\n", "|").split("|")).map(lambda piece: f"{piece}\n")


@settings(max_examples=2 * EXAMPLES, deadline=None)
@given(st.lists(PIECES | st.text(max_size=12), max_size=8), st.sampled_from(["text", "tools", "json"]))
def test_any_prompt_has_an_answer(pieces: list[str], wanted: str) -> None:
    """The fake model answers any prompt without an error."""
    request = ChatRequest([Turn("system", pieces[0] if pieces else ""), Turn("user", "".join(pieces))])
    request.wants_json = wanted == "json"
    if wanted == "tools":
        request.tools = [
            Tool(one["function"]["name"], "", one["function"]["parameters"]) for one in (WEATHER, ADDER, SEARCH)
        ]
        request.tool_choice = "required"
    choice = complete(models()[GEMMA], request, lambda name, number: f"{name}{number}")

    assert choice.text or choice.tool_calls


@pytest.mark.parametrize("question", ["Which planet is the windiest?", "Zzyzx qwerty plugh", "How is Fred's flubber?"])
def test_unknown_questions_are_not_echoed(api: Api, question: str) -> None:
    assert not content_stems(question) & content_stems(say(api, question)["content"])


@pytest.mark.parametrize(
    ("prompt", "answer"),
    [
        ("Answer with YES or NO.\nInformation: Glaciers are ice.\nContext: Glaciers are moving ice.\nAnswer:", "YES"),
        ("Answer with either YES or NO.\nInformation: Glaciers are green.\nContext: Glaciers are ice.\nAnswer:", "NO"),
        ("Classify the text into neutral, negative or positive. Text: The food was great. Sentiment:", "positive"),
        ("Translate 'I love programming.' into Italian", "Amo programmare."),
        ("Extract the emails from this text: write to a@b.example or c@d.example", "a@b.example, c@d.example"),
        ("(1) apples, pears\n(2) ships, boats\nquestion: 'Which ships?'\nformat: 'ANSWER: <number>'", "ANSWER: 2"),
        ("Fjords are deep. Fjords are long. Give 1 unique keywords for this document. Keywords: ", "Fjords"),
        ("Summarize in one sentence: Fjords are deep. Fjords are long and deep. Cats purr.", "Fjords are"),
        ("What is 2 + 2?", "2 + 2 = 4."),
        ("List 2 colors", "1. red\n2. green"),
    ],
)  # fmt: skip
def test_prompts_of_known_intents_are_answered_in_their_form(api: Api, prompt: str, answer: str) -> None:
    assert say(api, prompt)["content"].strip().startswith(answer.rstrip("."))


NESTED = {
    "$defs": {"City": {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}},
    "type": "object",
    "properties": {
        "city": {"$ref": "#/$defs/City"},
        "stops": {"type": "array", "items": {"$ref": "#/$defs/City"}, "minItems": 2, "maxItems": 3},
        "mood": {"enum": ["a", "b"]},
        "kind": {"const": "trip"},
        "note": {"anyOf": [{"type": "string"}, {"type": "null"}], "default": None},
        "when": {"anyOf": [{"type": "integer"}, {"type": "string"}]},
        "price": {"type": "number", "minimum": 5, "multipleOf": 0.5},
        "short": {"type": "string", "maxLength": 3},
        "long": {"type": "string", "minLength": 50},
        "ready": {"type": "boolean"},
        "nothing": {"type": "null"},
        "pair": {"allOf": [{"$ref": "#/$defs/City"}, {"properties": {"n": {"type": "integer"}}, "required": ["n"]}]},
        "either": {"type": ["null", "integer"]},
    },
    "required": [
        "city",
        "stops",
        "mood",
        "kind",
        "when",
        "price",
        "short",
        "long",
        "ready",
        "nothing",
        "pair",
        "either",
    ],
}


def test_instances_fit_their_schemas(api: Api) -> None:
    value = instance(api, "Plan a trip to Oslo on day 14 in mood b", NESTED)

    assert (value["city"]["name"], value["mood"], value["when"], value["kind"]) == ("Oslo", "b", 14, "trip")


TREE = {
    "$ref": "#/$defs/Node",
    "$defs": {
        "Node": {
            "type": "object",
            "properties": {
                "value": {"type": "integer"},
                "next": {"anyOf": [{"$ref": "#/$defs/Node"}, {"type": "null"}]},
            },
            "required": ["value", "next"],
        }
    },
}


def test_a_recursive_schema_ends(api: Api) -> None:
    assert isinstance(instance(api, "Count to 3", TREE)["value"], int)


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "string", "pattern": "^zzz[0-9]{40}$"},
        {"type": "integer", "minimum": 5, "maximum": 4},
        False,
    ],
)
def test_an_impossible_schema_returns_the_documented_error(api: Api, schema: Any) -> None:
    wanted = {"type": "object", "properties": {"x": schema}, "required": ["x"]}
    reply = api.chat(GEMMA, "Hello", response_format={"type": "json_schema", "json_schema": wanted})

    assert reply.status_code == 400
    assert "JSON Mode couldn't be met" in reply.json()["errors"][0]["message"]


@pytest.mark.parametrize(
    ("question", "keys"),
    [
        ("A joke about cats. Return a JSON with 'setup' and 'punchline' keys.", {"setup", "punchline"}),
        ("Answer as JSON with the keys title, author and year.", {"title", "author", "year"}),
        ('Answer like {"name": "x", "tags": ["y"]}.', {"name", "tags"}),
        ('Schema: {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}', {"n"}),
        ("Answer in JSON.", {"answer"}),
    ],
)
def test_json_without_a_schema_has_the_keys_of_the_prompt(api: Api, question: str, keys: set[str]) -> None:
    message = say(api, question, response_format={"type": "json_object"})

    assert keys == set(json.loads(message["content"]))


def test_a_model_that_ignores_json_mode_answers_in_prose(api: Api) -> None:
    wanted = {"response_format": {"type": "json_object"}}
    reply = api.run(
        "@cf/meta/llama-3.1-8b-instruct-fast", {"messages": [{"role": "user", "content": "Hello"}], **wanted}
    )

    assert reply.json()["result"]["response"] == "Hello! How can I help you today?"


def test_the_same_question_has_the_same_answer(api: Api) -> None:
    assert say(api, "Why?", CONTEXT, seed=1) == say(api, "Why?", CONTEXT, seed=2, temperature=1)


def test_wrapped_lines_are_one_sentence(api: Api) -> None:
    text = (
        "It gives an iterator over the lines of the file object that was\nopened before. The file is closed at the end."
    )

    answer = say(api, "What gives an iterator over lines?", f"Context:\n{text}\n")["content"]
    assert answer == "It gives an iterator over the lines of the file object that was opened before."


def test_a_content_guard_returns_a_verdict(api: Api) -> None:
    guard = "@cf/meta/llama-guard-3-8b"
    body = {"messages": [{"role": "user", "content": "Hello"}]}

    assert api.run(guard, body).json()["result"]["response"] == "safe"
    wanted = {**body, "response_format": {"type": "json_object"}}
    assert api.run(guard, wanted).json()["result"]["response"] == {"safe": True, "categories": []}
