"""Examples of LangGraph's documentation, rewritten, with another model. Each docstring is the URL of the page."""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Annotated, Any, Literal

from langchain_core.documents import Document
from langchain_core.messages import AIMessage, AnyMessage, HumanMessage, SystemMessage, ToolMessage
from langchain_core.tools import tool
from langchain_core.vectorstores import InMemoryVectorStore
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.func import entrypoint, task
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition
from langgraph.store.memory import InMemoryStore
from langgraph.types import Command, Send, interrupt
from pydantic import BaseModel, Field
from tests.tutorials.conftest import AGENTS_POST
from typing_extensions import TypedDict

if TYPE_CHECKING:
    from langchain_workers_ai import ChatWorkersAI, WorkersAIEmbeddings


@tool
def add(a: int, b: int) -> int:
    """Adds `a` and `b`."""
    return a + b


@tool
def multiply(a: int, b: int) -> int:
    """Multiply `a` and `b`."""
    return a * b


@tool
def divide(a: int, b: int) -> float:
    """Divide `a` and `b`."""
    return a / b


MATH = [add, multiply, divide]


def calls_of(messages: list[Any]) -> list[tuple[str, dict[str, Any]]]:
    """Return the tool calls in some messages."""
    return [(call["name"], call["args"]) for one in messages if isinstance(one, AIMessage) for call in one.tool_calls]


def test_quickstart_calculator(model: ChatWorkersAI) -> None:
    """https://docs.langchain.com/oss/python/langgraph/quickstart"""

    class State(TypedDict):
        messages: Annotated[list[AnyMessage], operator.add]
        llm_calls: int

    bound = model.bind_tools(MATH)
    by_name = {one.name: one for one in MATH}

    def llm_call(state: Any) -> dict[str, Any]:
        system = SystemMessage("You are a helpful assistant tasked with performing arithmetic on a set of inputs.")
        return {"messages": [bound.invoke([system, *state["messages"]])], "llm_calls": state.get("llm_calls", 0) + 1}

    def tool_node(state: Any) -> dict[str, Any]:
        calls: Any = state["messages"][-1]
        return {"messages": [by_name[call["name"]].invoke(call) for call in calls.tool_calls]}

    def go_on(state: Any) -> str:
        last: Any = state["messages"][-1]
        return "tool_node" if last.tool_calls else END

    builder = StateGraph(State)
    builder.add_node("llm_call", llm_call)
    builder.add_node("tool_node", tool_node)
    builder.add_edge(START, "llm_call")
    builder.add_conditional_edges("llm_call", go_on, ["tool_node", END])
    builder.add_edge("tool_node", "llm_call")
    agent: Any = builder.compile()
    state = agent.invoke({"messages": [HumanMessage("Add 3 and 4.")]})
    assert calls_of(state["messages"]) == [("add", {"a": 3, "b": 4})]
    assert state["messages"][-1].text.endswith("7")
    assert state["llm_calls"] == 2

    steps = agent.invoke({"messages": [HumanMessage("Add 3 and 4. Multiply the output by 2. Divide the output by 5")]})
    assert [name for name, _ in calls_of(steps["messages"])] == ["add", "multiply", "divide"]
    assert steps["messages"][-1].text.endswith("2.8")


def test_quickstart_functional(model: ChatWorkersAI) -> None:
    """https://docs.langchain.com/oss/python/langgraph/quickstart"""
    bound = model.bind_tools(MATH)
    by_name = {one.name: one for one in MATH}

    @task
    def call_llm(messages: list[Any]) -> Any:
        return bound.invoke(messages)

    @task
    def call_tool(call: Any) -> Any:
        return by_name[call["name"]].invoke(call)

    @entrypoint()
    def agent(messages: list[Any]) -> list[Any]:
        answer = call_llm(messages).result()
        while answer.tool_calls:
            pending = [call_tool(call) for call in answer.tool_calls]
            messages = [*messages, answer, *(one.result() for one in pending)]
            answer = call_llm(messages).result()
        return [*messages, answer]

    messages = agent.invoke([HumanMessage("What is 7 times 6?")])
    assert calls_of(messages) == [("multiply", {"a": 7, "b": 6})]
    assert messages[-1].text.endswith("42")


def test_augmented_llm(model: ChatWorkersAI) -> None:
    """https://docs.langchain.com/oss/python/langgraph/workflows-agents"""

    class SearchQuery(BaseModel):
        search_query: str = Field(description="Query that is optimized web search.")
        justification: str = Field(description="Why this query is relevant to the user's request.")

    found: Any = model.with_structured_output(SearchQuery).invoke(
        "How does Calcium CT score relate to high cholesterol?"
    )
    assert "Calcium CT score" in found.search_query
    assert not found.search_query.endswith("?")
    assert calls_of([model.bind_tools([multiply]).invoke("What is 2 times 3?")]) == [("multiply", {"a": 2, "b": 3})]


def test_prompt_chaining(model: ChatWorkersAI) -> None:
    """https://docs.langchain.com/oss/python/langgraph/workflows-agents"""

    class State(TypedDict, total=False):
        topic: str
        joke: str
        improved_joke: str
        final_joke: str

    builder = StateGraph(State)
    builder.add_node(
        "generate", lambda state: {"joke": model.invoke(f"Write a short joke about {state['topic']}").text}
    )
    builder.add_node(
        "improve",
        lambda state: {
            "improved_joke": model.invoke(f"Make this joke funnier by adding wordplay: {state['joke']}").text
        },
    )
    builder.add_node(
        "polish",
        lambda state: {
            "final_joke": model.invoke(f"Add a surprising twist to this joke: {state['improved_joke']}").text
        },
    )
    builder.add_edge(START, "generate")
    builder.add_conditional_edges(
        "generate",
        lambda state: "Pass" if "?" in state["joke"] or "!" in state["joke"] else "Fail",
        {"Pass": "improve", "Fail": END},
    )
    builder.add_edge("improve", "polish")
    builder.add_edge("polish", END)
    state = builder.compile().invoke({"topic": "cats"})
    assert "cats" in state["joke"]
    assert state["joke"] in state["improved_joke"]
    assert len(state["final_joke"]) > len(state["improved_joke"]) > len(state["joke"])


def test_parallel_writing(model: ChatWorkersAI) -> None:
    """https://docs.langchain.com/oss/python/langgraph/workflows-agents"""

    class State(TypedDict, total=False):
        topic: str
        joke: str
        story: str
        poem: str
        all: str

    def write(genre: str) -> Any:
        return lambda state: {genre: model.invoke(f"Write a {genre} about {state['topic']}").text}

    builder = StateGraph(State)
    for genre in ("joke", "story", "poem"):
        builder.add_node(f"write_{genre}", write(genre))
        builder.add_edge(START, f"write_{genre}")
        builder.add_edge(f"write_{genre}", "combine")
    builder.add_node("combine", lambda state: {"all": "\n".join(state[genre] for genre in ("joke", "story", "poem"))})
    builder.add_edge("combine", END)
    text = builder.compile().invoke({"topic": "cats"})["all"]
    assert ["cross the road" in text, "Once upon a time" in text, text.lower().count("cats") >= 3] == [True, True, True]


def test_routing(model: ChatWorkersAI) -> None:
    """https://docs.langchain.com/oss/python/langgraph/workflows-agents"""

    class Route(BaseModel):
        step: Literal["poem", "story", "joke"] = Field(description="The next step in the routing process")

    router: Any = model.with_structured_output(Route)
    system = SystemMessage("Route the input to story, joke, or poem based on the user's request.")
    for wanted in ("joke", "poem", "story"):
        assert router.invoke([system, HumanMessage(f"Write me a {wanted} about cats")]).step == wanted


def test_orchestrator_and_workers(model: ChatWorkersAI) -> None:
    """https://docs.langchain.com/oss/python/langgraph/workflows-agents"""

    class Section(BaseModel):
        name: str = Field(description="Name for this section of the report.")
        description: str = Field(description="Brief overview of the main topics to be covered in this section.")

    class Sections(BaseModel):
        sections: list[Section] = Field(description="Sections of the report.")

    class State(TypedDict, total=False):
        topic: str
        sections: list[Any]
        completed: Annotated[list[str], operator.add]

    planner: Any = model.with_structured_output(Sections)

    def plan(state: Any) -> dict[str, Any]:
        messages = [
            SystemMessage("Generate a plan for the report."),
            HumanMessage(f"Here is the report topic: {state['topic']}"),
        ]
        return {"sections": planner.invoke(messages).sections}

    def write(section: Any) -> dict[str, Any]:
        return {"completed": [model.invoke(f"Write a report section about {section.name}").text]}

    builder = StateGraph(State)
    builder.add_node("plan", plan)
    builder.add_node("write", write)
    builder.add_edge(START, "plan")
    builder.add_conditional_edges("plan", lambda state: [Send("write", one) for one in state["sections"]], ["write"])
    state = builder.compile().invoke({"topic": "LLM scaling laws"})
    assert len(state["completed"]) == len(state["sections"]) == 3
    assert all("LLM scaling laws" in text for text in state["completed"])


def test_evaluator_and_optimizer(model: ChatWorkersAI) -> None:
    """https://docs.langchain.com/oss/python/langgraph/workflows-agents"""

    class Feedback(BaseModel):
        grade: Literal["funny", "not funny"] = Field(description="Decide if the joke is funny or not.")
        feedback: str = Field(description="If the joke is not funny, provide feedback on how to improve it.")

    class State(TypedDict, total=False):
        topic: str
        joke: str
        grade: str

    def evaluate(state: Any) -> dict[str, Any]:
        grade: Any = model.with_structured_output(Feedback).invoke(f"Grade the joke {state['joke']}")
        return {"grade": grade.grade}

    builder = StateGraph(State)
    builder.add_node("generate", lambda state: {"joke": model.invoke(f"Write a joke about {state['topic']}").text})
    builder.add_node("evaluate", evaluate)
    builder.add_edge(START, "generate")
    builder.add_edge("generate", "evaluate")
    builder.add_conditional_edges("evaluate", lambda state: END if state["grade"] == "funny" else "generate")
    state = builder.compile().invoke({"topic": "cats"}, {"recursion_limit": 8})
    assert (state["grade"], "cats" in state["joke"]) == ("funny", True)


def test_agentic_rag(model: ChatWorkersAI, embeddings: WorkersAIEmbeddings) -> None:
    """https://docs.langchain.com/oss/python/langgraph/agentic-rag"""

    class Grade(BaseModel):
        """Grade documents for relevance."""

        binary_score: str = Field(description="Relevance score: 'yes' if relevant, or 'no' if not relevant")

    store = InMemoryVectorStore.from_documents([Document(line) for line in AGENTS_POST.splitlines()], embeddings)

    @tool
    def retrieve_blog_posts(query: str) -> str:
        """Search and return information about blog posts on agents."""
        return "\n\n".join(one.page_content for one in store.similarity_search(query, k=1))

    def grade(state: MessagesState) -> str:
        prompt = (
            "You are a grader assessing relevance of a retrieved document to a user question.\n"
            f"Here is the retrieved document:\n\n{state['messages'][-1].text}\n\n"
            f"Here is the user question: {state['messages'][0].text}\n"
            "If the document contains keyword(s) or semantic meaning related to the question, grade it as relevant.\n"
            "Give a binary score 'yes' or 'no' score to indicate whether the document is relevant to the question."
        )
        found: Any = model.with_structured_output(Grade).invoke(prompt)
        return "answer" if found.binary_score == "yes" else "rewrite"

    def rewrite(state: MessagesState) -> dict[str, Any]:
        prompt = (
            "Look at the input and try to reason about the underlying semantic intent / meaning.\n"
            "Here is the initial question:\n ------- \n"
            f"{state['messages'][0].text}\n ------- \nFormulate an improved question:"
        )
        return {"messages": [HumanMessage(model.invoke(prompt).text)]}

    def answer(state: MessagesState) -> dict[str, Any]:
        prompt = (
            "You are an assistant for question-answering tasks. Use the following pieces of context to answer "
            "the question. "
            "If you don't know the answer, just say that you don't know.\n"
            f"Question: {state['messages'][0].text}\nContext: {state['messages'][-1].text}"
        )
        return {"messages": [model.invoke(prompt)]}

    builder = StateGraph(MessagesState)
    builder.add_node(
        "ask", lambda state: {"messages": [model.bind_tools([retrieve_blog_posts]).invoke(state["messages"])]}
    )
    builder.add_node("retrieve", ToolNode([retrieve_blog_posts]))
    builder.add_node("rewrite", rewrite)
    builder.add_node("answer", answer)
    builder.add_edge(START, "ask")
    builder.add_conditional_edges("ask", tools_condition, {"tools": "retrieve", END: END})
    builder.add_conditional_edges("retrieve", grade)
    builder.add_edge("rewrite", "ask")
    builder.add_edge("answer", END)
    graph = builder.compile()

    messages = graph.invoke({"messages": [HumanMessage("Where is long-term memory kept?")]})["messages"]
    assert [name for name, _ in calls_of(messages)] == ["retrieve_blog_posts"]
    assert "vector store" in messages[-1].text
    assert not calls_of(graph.invoke({"messages": [HumanMessage("hello!")]})["messages"])
    assert (
        grade({"messages": [HumanMessage("Where is memory kept?"), ToolMessage("meow", tool_call_id="1")]}) == "rewrite"
    )
    better = rewrite({"messages": [HumanMessage("What about memory?")]})["messages"][0].text
    assert ["memory" in better, better.endswith("?")] == [True, True]


def test_chatbot_with_a_search_tool(model: ChatWorkersAI) -> None:
    """https://docs.langchain.com/oss/python/langgraph/use-graph-api"""

    @tool
    def web_search(query: str) -> str:
        """A search engine optimized for comprehensive, accurate, and trusted results."""
        return "LangGraph is a library for agents as graphs."

    builder = StateGraph(MessagesState)
    builder.add_node("chatbot", lambda state: {"messages": [model.bind_tools([web_search]).invoke(state["messages"])]})
    builder.add_node("tools", ToolNode([web_search]))
    builder.add_edge(START, "chatbot")
    builder.add_conditional_edges("chatbot", tools_condition)
    builder.add_edge("tools", "chatbot")
    messages = builder.compile().invoke({"messages": [("user", "What do you know about LangGraph?")]})["messages"]
    assert calls_of(messages) == [("web_search", {"query": "LangGraph"})]
    assert "agents as graphs" in messages[-1].text


def test_memory_and_summary(model: ChatWorkersAI) -> None:
    """https://docs.langchain.com/oss/python/langgraph/add-memory"""

    class State(MessagesState):
        summary: str

    def call(state: Any) -> dict[str, Any]:
        return {"messages": [model.invoke(state["messages"])]}

    def summarize(state: Any) -> dict[str, Any]:
        return {
            "summary": model.invoke(
                [*state["messages"], HumanMessage("Create a summary of the conversation above:")]
            ).text
        }

    builder = StateGraph(State)
    builder.add_node("call", call)
    builder.add_node("summarize", summarize)
    builder.add_edge(START, "call")
    builder.add_edge("call", "summarize")
    graph = builder.compile(checkpointer=InMemorySaver())
    config: Any = {"configurable": {"thread_id": "1"}}
    graph.invoke({"messages": [("user", "hi! I'm bob and I live in Oslo")]}, config)
    state = graph.invoke({"messages": [("user", "Where do I live?")]}, config)
    assert "Oslo" in state["messages"][-1].text
    assert "Oslo" in state["summary"]


def test_long_term_store(model: ChatWorkersAI, embeddings: WorkersAIEmbeddings) -> None:
    """https://docs.langchain.com/oss/python/langgraph/add-memory"""
    store = InMemoryStore(index={"embed": embeddings, "dims": 1024})
    store.put(("user_1",), "1", {"text": "I love pizza"})
    store.put(("user_1",), "2", {"text": "I am a plumber"})
    found = store.search(("user_1",), query="Who is a plumber?", limit=1)
    assert found[0].value["text"] == "I am a plumber"
    answer = model.invoke(
        [
            SystemMessage(f"You are a helpful assistant.\nThe user said: {found[0].value['text']}"),
            ("user", "Who is a plumber?"),
        ]
    )
    assert "plumber" in answer.text


def test_subgraphs(model: ChatWorkersAI) -> None:
    """https://docs.langchain.com/oss/python/langgraph/use-subgraphs"""

    class Inner(TypedDict, total=False):
        text: str
        translated: str

    class Outer(TypedDict, total=False):
        text: str
        shouted: str

    inner = StateGraph(Inner)
    inner.add_node(
        "translate", lambda state: {"translated": model.invoke(f"Translate '{state['text']}' into German").text}
    )
    inner.add_edge(START, "translate")
    compiled = inner.compile()
    outer = StateGraph(Outer)
    outer.add_node("call", lambda state: {"shouted": compiled.invoke({"text": state["text"]})["translated"].upper()})
    outer.add_edge(START, "call")
    assert outer.compile().invoke({"text": "I love programming"})["shouted"] == "ICH LIEBE DAS PROGRAMMIEREN."


async def test_streaming(model: ChatWorkersAI) -> None:
    """https://docs.langchain.com/oss/python/langgraph/streaming"""

    class State(TypedDict, total=False):
        topic: str
        joke: str

    async def write(state: Any) -> dict[str, Any]:
        return {"joke": (await model.ainvoke(f"Write a joke about {state['topic']}")).text}

    builder = StateGraph(State)
    builder.add_node("write", write)
    builder.add_edge(START, "write")
    graph = builder.compile()
    tokens, joke = [], ""
    async for mode, part in graph.astream({"topic": "ice cream"}, stream_mode=["messages", "updates"]):
        part_of: Any = part
        if mode == "messages":
            tokens.append(part_of[0].text)
        else:
            joke = part_of["write"]["joke"]
    assert "".join(tokens) == joke
    assert "ice cream" in joke
    assert len(tokens) > 3


def test_human_in_the_loop(model: ChatWorkersAI) -> None:
    """https://docs.langchain.com/oss/python/langgraph/interrupts"""

    @tool
    def human_assistance(query: str) -> str:
        """Request assistance from a human."""
        return str(interrupt({"query": query})["data"])

    builder = StateGraph(MessagesState)
    builder.add_node(
        "chatbot", lambda state: {"messages": [model.bind_tools([human_assistance]).invoke(state["messages"])]}
    )
    builder.add_node("tools", ToolNode([human_assistance]))
    builder.add_edge(START, "chatbot")
    builder.add_conditional_edges("chatbot", tools_condition)
    builder.add_edge("tools", "chatbot")
    graph = builder.compile(checkpointer=InMemorySaver())
    config: Any = {"configurable": {"thread_id": "1"}}
    question = "I need some expert guidance for building an AI agent. Could you request assistance for me?"
    assert "query" in graph.invoke({"messages": [("user", question)]}, config)["__interrupt__"][0].value
    state = graph.invoke(Command(resume={"data": "We, the experts, advise LangGraph."}), config)
    assert "experts, advise LangGraph" in state["messages"][-1].text


def test_email_triage(model: ChatWorkersAI) -> None:
    """https://docs.langchain.com/oss/python/langgraph/thinking-in-langgraph"""

    class Classification(TypedDict):
        intent: Literal["question", "bug", "billing", "feature", "complex"]
        urgency: Literal["low", "medium", "high", "critical"]
        topic: str
        summary: str

    classify: Any = model.with_structured_output(Classification)
    found = classify.invoke(
        "Email: I was charged twice for my subscription! This is urgent!\nFrom: customer@example.com"
    )
    assert (found["intent"], found["urgency"]) == ("billing", "high")
    assert "charged twice" in found["summary"]
