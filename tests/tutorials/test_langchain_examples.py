"""Examples of LangChain's documentation, rewritten, with another model. Each docstring is the URL of the page."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import pytest
from langchain.agents import create_agent
from langchain.agents.middleware import (
    HumanInTheLoopMiddleware,
    LLMToolSelectorMiddleware,
    ModelCallLimitMiddleware,
    PIIMiddleware,
    SummarizationMiddleware,
    TodoListMiddleware,
    dynamic_prompt,
)
from langchain.agents.structured_output import ProviderStrategy, ToolStrategy
from langchain.tools import ToolRuntime
from langchain_core.documents import Document
from langchain_core.messages import AIMessage, HumanMessage, SystemMessage, ToolMessage
from langchain_core.output_parsers import (
    CommaSeparatedListOutputParser,
    JsonOutputParser,
    PydanticOutputParser,
    StrOutputParser,
)
from langchain_core.prompts import (
    ChatPromptTemplate,
    MessagesPlaceholder,
    PromptTemplate,
)
from langchain_core.runnables import RunnableLambda, RunnableParallel, RunnablePassthrough
from langchain_core.tools import tool
from langchain_core.vectorstores import InMemoryVectorStore
from langchain_text_splitters import RecursiveCharacterTextSplitter
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.types import Command
from pydantic import BaseModel, Field
from tests.tutorials.conftest import AGENTS_POST

if TYPE_CHECKING:
    from langchain_workers_ai import ChatWorkersAI, WorkersAIEmbeddings, WorkersAIRerank

# Classic agents import a package that is deprecated.
pytestmark = pytest.mark.filterwarnings("ignore:`langchain-community` is being sunset:DeprecationWarning")


@tool
def get_weather(city: str) -> str:
    """Get weather for a given city."""
    return f"It's always sunny in {city}!"


@tool
def send_email(to: str, subject: str, body: str) -> str:
    """Send an email to someone."""
    return f"Email sent to {to} with subject {subject!r}"


@tool
def search(query: str) -> str:
    """Search for information."""
    return f"Results for: {query}"


@pytest.fixture
def store(embeddings: WorkersAIEmbeddings) -> InMemoryVectorStore:
    """Return a vector store with the blog post."""
    splitter = RecursiveCharacterTextSplitter(chunk_size=180, chunk_overlap=0)
    splits = splitter.split_documents([Document(AGENTS_POST, metadata={"source": "post"})])
    vectors = InMemoryVectorStore(embeddings)
    vectors.add_documents(splits)
    return vectors


def calls_of(messages: list[Any]) -> list[tuple[str, dict[str, Any]]]:
    """Return the tool calls in some messages."""
    return [(call["name"], call["args"]) for one in messages if isinstance(one, AIMessage) for call in one.tool_calls]


def test_quickstart_weather_agent(model: ChatWorkersAI) -> None:
    """https://docs.langchain.com/oss/python/langchain/quickstart"""
    agent = create_agent(model, tools=[get_weather], system_prompt="You are a helpful assistant")
    messages = agent.invoke({"messages": [{"role": "user", "content": "what is the weather in sf"}]})["messages"]
    assert calls_of(messages) == [("get_weather", {"city": "sf"})]
    assert "always sunny in sf" in messages[-1].text


def test_quickstart_agent_with_the_users_location(model: ChatWorkersAI) -> None:
    """https://docs.langchain.com/oss/python/langchain/quickstart"""

    class Forecast(BaseModel):
        punny_response: str
        weather_conditions: str | None = None

    @tool
    def get_weather_for_location(city: str) -> str:
        """Get weather for a given city."""
        return f"It's always sunny in {city}!"

    @tool
    def get_user_location(runtime: ToolRuntime) -> str:
        """Retrieve user information based on user ID."""
        return "Florida"

    agent = create_agent(
        model,
        system_prompt="You are an expert weather forecaster, who speaks in puns. Make sure you know the location.",
        tools=[get_user_location, get_weather_for_location],
        response_format=ToolStrategy(Forecast),
        checkpointer=InMemorySaver(),
    )
    config: Any = {"configurable": {"thread_id": "1"}}
    state = agent.invoke({"messages": [{"role": "user", "content": "what is the weather outside?"}]}, config)
    assert [name for name, _ in calls_of(state["messages"])] == [
        "get_user_location",
        "get_weather_for_location",
        "Forecast",
    ]
    assert "sunny in Florida" in state["structured_response"].punny_response


def test_messages_translate(model: ChatWorkersAI) -> None:
    """https://docs.langchain.com/oss/python/langchain/models"""
    conversation = [
        SystemMessage("You are a helpful assistant that translates English to French."),
        HumanMessage("I love programming."),
    ]
    assert model.invoke(conversation).text == "J'adore la programmation."


def test_models_answer_and_stream(model: ChatWorkersAI) -> None:
    """https://docs.langchain.com/oss/python/langchain/models"""
    assert "flock" in model.invoke("Why do parrots have colorful feathers?").text
    assert "blue" in "".join(chunk.text for chunk in model.stream("Why is the sky blue?"))
    answers = model.batch(["What is the capital of France?", "What is the capital of Japan?"])
    assert ["Paris" in answers[0].text, "Tokyo" in answers[1].text] == [True, True]


def test_models_two_calls_at_once(model: ChatWorkersAI) -> None:
    """https://docs.langchain.com/oss/python/langchain/models"""
    answer = model.bind_tools([get_weather]).invoke("What's the weather in Boston and Tokyo?")
    assert [call["args"]["city"] for call in answer.tool_calls] == ["Boston", "Tokyo"]


def test_tools_calculate_in_parallel(model: ChatWorkersAI) -> None:
    """https://python.langchain.com/docs/how_to/tool_calling/"""

    @tool
    def add(a: int, b: int) -> int:
        """Adds a and b."""
        return a + b

    @tool
    def multiply(a: int, b: int) -> int:
        """Multiplies a and b."""
        return a * b

    query = "What is 3 * 12? Also, what is 11 + 49?"
    bound = model.bind_tools([add, multiply])
    messages: list[Any] = [HumanMessage(query)]
    messages.append(bound.invoke(messages))
    assert calls_of(messages) == [("multiply", {"a": 3, "b": 12}), ("add", {"a": 11, "b": 49})]
    messages += [{"add": add, "multiply": multiply}[call["name"]].invoke(call) for call in messages[-1].tool_calls]
    assert {"36", "60"} <= set(bound.invoke(messages).text.split())


def test_semantic_search(store: InMemoryVectorStore) -> None:
    """https://docs.langchain.com/oss/python/langchain/knowledge-base"""
    assert "vector store" in store.similarity_search("How is long-term memory kept?", k=1)[0].page_content
    retriever = store.as_retriever(search_type="similarity", search_kwargs={"k": 1})
    found = retriever.batch(["What is task decomposition?", "Which tools can an agent call?"])
    assert ["smaller" in found[0][0].page_content, "calculator" in found[1][0].page_content] == [True, True]


def test_rag_agent(model: ChatWorkersAI, store: InMemoryVectorStore) -> None:
    """https://docs.langchain.com/oss/python/langchain/rag"""

    @tool(response_format="content_and_artifact")
    def retrieve_context(query: str) -> tuple[str, list[Document]]:
        """Retrieve information to help answer a query."""
        found = store.similarity_search(query, k=2)
        return "\n\n".join(f"Source: {one.metadata}\nContent: {one.page_content}" for one in found), found

    prompt = (
        "You have access to a tool that retrieves context from a blog post. Use the tool to help answer user queries."
    )
    agent = create_agent(model, [retrieve_context], system_prompt=prompt)
    messages = agent.invoke({"messages": [("user", "What is task decomposition?")]})["messages"]
    assert calls_of(messages) == [("retrieve_context", {"query": "task decomposition"})]
    assert "smaller and simpler steps" in messages[-1].text

    question = (
        "What is the standard method for task decomposition?\n\n"
        "Once you get the answer, look up common extensions of that method."
    )
    messages = agent.invoke({"messages": [("user", question)]})["messages"]
    first, second = calls_of(messages)
    assert ["standard method" in first[1]["query"], "extensions" in second[1]["query"]] == [True, True]
    assert ["Chain of thought" in messages[-1].text, "Tree of thoughts" in messages[-1].text] == [True, True]


def test_rag_chain_as_middleware(model: ChatWorkersAI, store: InMemoryVectorStore) -> None:
    """https://docs.langchain.com/oss/python/langchain/rag"""

    @dynamic_prompt
    def with_context(request: Any) -> str:
        found = store.similarity_search(request.state["messages"][-1].text)
        context = "\n\n".join(one.page_content for one in found)
        return f"You are an assistant for question-answering tasks. Use the following context:\n\n{context}"

    agent = create_agent(model, tools=[], middleware=[with_context])
    messages = agent.invoke({"messages": [("user", "What is task decomposition?")]})["messages"]
    assert "smaller and simpler steps" in messages[-1].text


def test_rag_chain_of_runnables(model: ChatWorkersAI, store: InMemoryVectorStore) -> None:
    """https://python.langchain.com/docs/tutorials/rag/"""
    prompt = ChatPromptTemplate.from_template(
        "You are an assistant for question-answering tasks. Use the following pieces of retrieved context to answer "
        "the question. If you don't know the answer, just say that you don't know. Use three sentences maximum.\n"
        "Question: {question}\nContext: {context}\nAnswer:"
    )
    chain = (
        {
            "context": store.as_retriever() | (lambda found: "\n\n".join(one.page_content for one in found)),
            "question": RunnablePassthrough(),
        }
        | prompt
        | model
        | StrOutputParser()
    )
    assert "vector store" in chain.invoke("Where is long-term memory kept?")


def test_conversational_rag(model: ChatWorkersAI, store: InMemoryVectorStore) -> None:
    """https://python.langchain.com/docs/tutorials/qa_chat_history/"""
    rephrase = ChatPromptTemplate.from_messages(
        [
            (
                "system",
                "Given a chat history and the latest user question, formulate a standalone question which can be "
                "understood without the chat history. Do NOT answer the question.",
            ),
            MessagesPlaceholder("chat_history"),
            ("human", "{input}"),
        ]
    )
    history = [HumanMessage("What is task decomposition?"), AIMessage("It breaks a large task into smaller steps.")]
    question = (rephrase | model | StrOutputParser()).invoke(
        {"chat_history": history, "input": "What is the standard method for it?"}
    )
    assert "task decomposition" in question
    assert any("Chain of thought" in one.page_content for one in store.similarity_search(question, k=2))


def test_reranked_retrieval(store: InMemoryVectorStore, compressor: WorkersAIRerank) -> None:
    """https://python.langchain.com/docs/how_to/contextual_compression/"""
    from langchain_classic.retrievers import ContextualCompressionRetriever

    retriever = ContextualCompressionRetriever(
        base_compressor=compressor, base_retriever=store.as_retriever(search_kwargs={"k": 4})
    )
    found = retriever.invoke("Which tools can an agent call?")
    assert "calculator" in found[0].page_content
    assert len(found) == 2


def test_multi_query_retriever(model: ChatWorkersAI, store: InMemoryVectorStore) -> None:
    """https://python.langchain.com/docs/how_to/MultiQueryRetriever/"""
    from langchain_classic.retrievers.multi_query import MultiQueryRetriever

    retriever = MultiQueryRetriever.from_llm(retriever=store.as_retriever(search_kwargs={"k": 1}), llm=model)
    lines = retriever.llm_chain.invoke({"question": "What is task decomposition?"})
    assert len(lines) == 3
    assert all("task decomposition" in line for line in lines)
    assert any("smaller" in one.page_content for one in retriever.invoke("What is task decomposition?"))


def test_filter_of_retrieved_documents(model: ChatWorkersAI) -> None:
    """https://python.langchain.com/docs/how_to/contextual_compression/"""
    from langchain_classic.retrievers.document_compressors import LLMChainFilter

    documents = [Document("Tools let an agent call a calculator."), Document("Bananas are yellow when they are ripe.")]
    kept = LLMChainFilter.from_llm(model).compress_documents(documents, "Which tools can an agent call?")
    assert [one.page_content for one in kept] == ["Tools let an agent call a calculator."]


def test_extraction(model: ChatWorkersAI) -> None:
    """https://python.langchain.com/docs/tutorials/extraction/"""

    class Person(BaseModel):
        """Information about a person."""

        name: str | None = Field(default=None, description="The name of the person")
        hair_color: str | None = Field(default=None, description="The color of the person's hair if known")
        height_in_meters: str | None = Field(default=None, description="Height measured in meters")

    class Data(BaseModel):
        """Extracted data about people."""

        people: list[Person]

    prompt = ChatPromptTemplate.from_messages(
        [("system", "Only extract relevant information from the text."), ("human", "{text}")]
    )
    person = (prompt | model.with_structured_output(Person)).invoke(
        {"text": "Alan Smith is 6 feet tall and has blond hair."}
    )
    assert person == Person(name="Alan Smith", hair_color="blond", height_in_meters="1.83")
    text = "My name is Jeff, my hair is black and I am 6 feet tall. Anna has brown hair."
    data = (prompt | model.with_structured_output(Data)).invoke({"text": text})
    assert [(one.name, one.hair_color) for one in data.people] == [("Jeff", "black"), ("Anna", "brown")]


def test_classification(model: ChatWorkersAI) -> None:
    """https://python.langchain.com/docs/tutorials/classification/"""

    class Classification(BaseModel):
        sentiment: Literal["happy", "neutral", "sad"]
        aggressiveness: Literal[1, 2, 3, 4, 5] = Field(description="how aggressive the statement is")
        language: Literal["spanish", "english", "french", "german", "italian"]

    prompt = ChatPromptTemplate.from_template(
        "Extract the desired information from the following passage.\n\nPassage:\n{input}"
    )
    chain = prompt | model.with_structured_output(Classification)
    found = chain.invoke({"input": "Estoy muy contento de conocerte, seremos buenos amigos!"})
    assert (found.sentiment, found.language) == ("happy", "spanish")
    assert chain.invoke({"input": "This was a terrible day and I am very sad."}).sentiment == "sad"


def test_agent_fills_a_form(model: ChatWorkersAI) -> None:
    """https://docs.langchain.com/oss/python/langchain/structured-output"""

    class ContactInfo(BaseModel):
        """Contact information for a person."""

        name: str = Field(description="The name of the person")
        email: str = Field(description="The email address of the person")
        phone: str = Field(description="The phone number of the person")

    text = "Extract contact info from: John Doe, john@example.com, (555) 123-4567"
    expected = ContactInfo(name="John Doe", email="john@example.com", phone="(555) 123-4567")
    for strategy in (ToolStrategy(ContactInfo), ProviderStrategy(ContactInfo), ContactInfo):
        agent = create_agent(model, tools=[], response_format=strategy)
        assert agent.invoke({"messages": [("user", text)]})["structured_response"] == expected


def test_agent_reviews_a_product(model: ChatWorkersAI) -> None:
    """https://docs.langchain.com/oss/python/langchain/structured-output"""

    class ProductReview(BaseModel):
        """Analysis of a product review."""

        rating: int | None = Field(description="The rating of the product", ge=1, le=5)
        sentiment: Literal["positive", "negative"]
        key_points: list[str] = Field(description="Lowercase, 1-3 words each")

    agent = create_agent(model, tools=[], response_format=ToolStrategy(ProductReview))
    text = "Analyze this review: 'Great product: 5 out of 5 stars. Fast shipping, but expensive'"
    review = agent.invoke({"messages": [("user", text)]})["structured_response"]
    assert (review.rating, review.sentiment) == (5, "positive")
    assert {"Fast shipping", "expensive"} <= set(review.key_points)


def test_agent_notes_an_action(model: ChatWorkersAI) -> None:
    """https://docs.langchain.com/oss/python/langchain/structured-output"""

    class MeetingAction(BaseModel):
        """An action item of a meeting."""

        task: str = Field(description="The specific task to be completed")
        assignee: str = Field(description="Person responsible for the task")
        priority: Literal["low", "medium", "high"]

    agent = create_agent(
        model, tools=[], response_format=ToolStrategy(MeetingAction, tool_message_content="Action item captured!")
    )
    state = agent.invoke(
        {"messages": [("user", "From our meeting: Sarah needs to update the project timeline as soon as possible")]}
    )
    action = state["structured_response"]
    assert (action.assignee, action.priority) == ("Sarah", "high")
    assert "update the project timeline" in action.task
    assert isinstance(state["messages"][-1], ToolMessage)


def test_pydantic_output_parser(model: ChatWorkersAI) -> None:
    """https://python.langchain.com/docs/how_to/output_parser_structured/"""

    class Joke(BaseModel):
        setup: str = Field(description="question to set up a joke")
        punchline: str = Field(description="answer to resolve the joke")

    parser = PydanticOutputParser(pydantic_object=Joke)
    prompt = PromptTemplate(
        template="Answer the user query.\n{format_instructions}\n{query}\n",
        input_variables=["query"],
        partial_variables={"format_instructions": parser.get_format_instructions()},
    )
    joke = (prompt | model | parser).invoke({"query": "Tell me a joke about parrots."})
    assert "parrots" in joke.setup
    assert joke.setup.endswith("?")
    assert joke.punchline


def test_json_output_parser(model: ChatWorkersAI) -> None:
    """https://python.langchain.com/docs/how_to/output_parser_json/"""
    chain = model | JsonOutputParser()
    question = (
        "Return a JSON object with the keys `name` and `email` of this person: Ann Lee writes from ann@example.org"
    )
    assert chain.invoke(question) == {"name": "Ann Lee", "email": "ann@example.org"}
    assert list(chain.stream(question))[-1] == {"name": "Ann Lee", "email": "ann@example.org"}


def test_comma_separated_list(model: ChatWorkersAI) -> None:
    """https://python.langchain.com/api_reference/core/output_parsers/langchain_core.output_parsers.list.CommaSeparatedListOutputParser.html"""
    parser = CommaSeparatedListOutputParser()
    prompt = ChatPromptTemplate.from_template("List five {subject}.\n{format_instructions}")
    chain = prompt.partial(format_instructions=parser.get_format_instructions()) | model | parser
    found = chain.invoke({"subject": "ice cream flavors"})
    assert len(found) == 5
    assert "vanilla" in found


def test_summary_of_documents(model: ChatWorkersAI) -> None:
    """https://python.langchain.com/docs/tutorials/summarization/"""
    prompt = ChatPromptTemplate.from_template("Write a concise summary of the following:\n\n{context}")
    summary = (prompt | model | StrOutputParser()).invoke({"context": AGENTS_POST})
    assert "task decomposition" in summary.lower()
    assert len(summary) < len(AGENTS_POST)
    reduce = ChatPromptTemplate.from_template(
        "The following is a set of summaries:\n{docs}\n"
        "Take these and distill it into a final, consolidated summary of the main themes."
    )
    final = (reduce | model | StrOutputParser()).invoke(
        {"docs": "Agents use tools.\n\nAgents keep a memory in a vector store."}
    )
    assert "memory" in final


def test_chains_in_parallel(model: ChatWorkersAI) -> None:
    """https://python.langchain.com/docs/how_to/parallel/"""
    joke = ChatPromptTemplate.from_template("tell me a joke about {topic}") | model | StrOutputParser()
    poem = ChatPromptTemplate.from_template("write a 2-line poem about {topic}") | model | StrOutputParser()
    both = RunnableParallel(joke=joke, poem=poem).invoke({"topic": "bears"})
    assert ["bears" in both["joke"], "Bears" in both["poem"]] == [True, True]


def test_routing_between_chains(model: ChatWorkersAI) -> None:
    """https://python.langchain.com/docs/how_to/routing/"""
    classify = (
        PromptTemplate.from_template(
            "Given the user question below, classify it as either being about `LangChain`, `Python`, or `Other`.\n\n"
            "Do not respond with more than one word.\n\n<question>\n{question}\n</question>\n\nClassification:"
        )
        | model
        | StrOutputParser()
    )
    route = RunnableLambda(lambda held: f"the {held['topic'].lower()} expert")
    chain: Any = {"topic": classify, "question": lambda held: held["question"]} | route
    assert chain.invoke({"question": "How do I use LangChain?"}) == "the langchain expert"
    assert chain.invoke({"question": "What's 2 + 2, please?"}) == "the other expert"


def test_short_term_memory(model: ChatWorkersAI) -> None:
    """https://docs.langchain.com/oss/python/langchain/short-term-memory"""
    agent = create_agent(model, tools=[search], checkpointer=InMemorySaver())
    config: Any = {"configurable": {"thread_id": "1"}}
    hello = agent.invoke({"messages": [("user", "Hi! My name is Bob.")]}, config)
    assert "Bob" in hello["messages"][-1].text
    assert "Bob" in agent.invoke({"messages": [("user", "What's my name?")]}, config)["messages"][-1].text
    other: Any = {"configurable": {"thread_id": "2"}}
    assert "Bob" not in agent.invoke({"messages": [("user", "What's my name?")]}, other)["messages"][-1].text


def test_summarization_middleware(model: ChatWorkersAI) -> None:
    """https://docs.langchain.com/oss/python/langchain/short-term-memory"""
    middleware = SummarizationMiddleware(model=model, trigger=("messages", 4), keep=("messages", 2))
    agent = create_agent(model, tools=[], middleware=[middleware], checkpointer=InMemorySaver())
    config: Any = {"configurable": {"thread_id": "1"}}
    for text in ("hi, my name is bob", "write a short poem about cats", "now do the same but for dogs"):
        agent.invoke({"messages": [("user", text)]}, config)
    state = agent.invoke({"messages": [("user", "what's my name?")]}, config)
    assert any("summary" in one.text.lower() and "bob" in one.text.lower() for one in state["messages"][:-2])
    assert "bob" in state["messages"][-1].text.lower()


def test_tool_selection_middleware(model: ChatWorkersAI) -> None:
    """https://docs.langchain.com/oss/python/langchain/middleware/built-in"""
    seen: list[list[str]] = []

    @dynamic_prompt
    def look(request: Any) -> str:
        seen.append([one.name for one in request.tools])
        return "You are a helpful assistant."

    agent = create_agent(
        model, tools=[get_weather, send_email, search], middleware=[LLMToolSelectorMiddleware(max_tools=1), look]
    )
    messages = agent.invoke({"messages": [("user", "What is the weather in Oslo?")]})["messages"]
    assert seen[0] == ["get_weather"]
    assert "sunny in Oslo" in messages[-1].text


def test_human_in_the_loop(model: ChatWorkersAI) -> None:
    """https://docs.langchain.com/oss/python/langchain/human-in-the-loop"""
    agent = create_agent(
        model,
        tools=[send_email, search],
        middleware=[HumanInTheLoopMiddleware(interrupt_on={"send_email": True, "search": False})],
        checkpointer=InMemorySaver(),
    )
    config: Any = {"configurable": {"thread_id": "1"}}
    state = agent.invoke({"messages": [("user", "Send an email to ann@example.org about the launch")]}, config)
    request = state["__interrupt__"][0].value["action_requests"][0]
    assert (request["name"], request["args"]["to"], request["args"]["subject"]) == (
        "send_email",
        "ann@example.org",
        "launch",
    )
    done = agent.invoke(Command(resume={"decisions": [{"type": "approve"}]}), config)
    assert "Email sent to ann@example.org" in done["messages"][-1].text


def test_personal_data_middleware(model: ChatWorkersAI) -> None:
    """https://docs.langchain.com/oss/python/langchain/guardrails"""
    agent = create_agent(
        model, tools=[search], middleware=[PIIMiddleware("email", strategy="redact", apply_to_input=True)]
    )
    messages = agent.invoke({"messages": [("user", "Search for the orders of ann@example.org")]})["messages"]
    ((name, arguments),) = calls_of(messages)
    assert name == "search"
    assert "orders" in arguments["query"]
    assert "[REDACTED_EMAIL]" in messages[0].text
    assert all("ann@example.org" not in one.text for one in messages)


def test_limits_and_to_do_lists(model: ChatWorkersAI) -> None:
    """https://docs.langchain.com/oss/python/langchain/middleware/built-in"""
    agent = create_agent(
        model,
        tools=[get_weather],
        middleware=[TodoListMiddleware(), ModelCallLimitMiddleware(run_limit=3, exit_behavior="error")],
    )
    messages = agent.invoke({"messages": [("user", "What is the weather in Paris?")]})["messages"]
    assert calls_of(messages) == [("get_weather", {"city": "Paris"})]


def test_supervisor_of_two_agents(model: ChatWorkersAI) -> None:
    """https://docs.langchain.com/oss/python/langchain/multi-agent/subagents-personal-assistant"""

    @tool
    def create_calendar_event(title: str, start_time: str, attendees: list[str]) -> str:
        """Create a calendar event."""
        return f"Event created: {title} at {start_time}"

    calendar = create_agent(
        model, tools=[create_calendar_event], system_prompt="You are a calendar scheduling assistant."
    )
    mail = create_agent(model, tools=[send_email], system_prompt="You are an email assistant.")

    @tool
    def schedule_event(request: str) -> str:
        """Schedule calendar events using natural language."""
        return str(calendar.invoke({"messages": [("user", request)]})["messages"][-1].text)

    @tool
    def manage_email(request: str) -> str:
        """Send emails using natural language."""
        return str(mail.invoke({"messages": [("user", request)]})["messages"][-1].text)

    supervisor = create_agent(
        model, tools=[schedule_event, manage_email], system_prompt="You are a personal assistant."
    )
    messages = supervisor.invoke({"messages": [("user", "Schedule a team standup for tomorrow at 9am")]})["messages"]
    assert [name for name, _ in calls_of(messages)] == ["schedule_event"]
    assert ["Event created" in messages[-1].text, "9am" in messages[-1].text] == [True, True]


def test_streamed_agent(model: ChatWorkersAI) -> None:
    """https://docs.langchain.com/oss/python/langchain/streaming"""
    agent = create_agent(model, tools=[get_weather])
    inputs: Any = {"messages": [("user", "What is the weather in SF?")]}
    steps = [next(iter(update)) for update in agent.stream(inputs, stream_mode="updates")]
    assert steps == ["model", "tools", "model"]
    tokens = [
        token for token, held in agent.stream(inputs, stream_mode="messages") if held["langgraph_node"] == "model"
    ]
    assert "sunny in SF" in "".join(token.text for token in tokens)


def test_react_agent_of_prompts(model: ChatWorkersAI) -> None:
    """https://python.langchain.com/api_reference/langchain/agents/langchain.agents.react.agent.create_react_agent.html"""
    from langchain_classic.agents import AgentExecutor, create_react_agent

    prompt = PromptTemplate.from_template(
        "Answer the following questions as best you can. You have access to the following tools:\n\n{tools}\n\n"
        "Use the following format:\n\nQuestion: the input question you must answer\nThought: think about what to do\n"
        "Action: the action to take, should be one of [{tool_names}]\nAction Input: the input to the action\n"
        "Observation: the result of the action\n... (this Thought/Action/Action Input/Observation can repeat N times)\n"
        "Thought: I now know the final answer\nFinal Answer: the final answer\n\nBegin!\n\n"
        "Question: {input}\nThought:{agent_scratchpad}"
    )
    executor = AgentExecutor(
        agent=create_react_agent(model, [get_weather], prompt), tools=[get_weather], max_iterations=3
    )
    assert "always sunny in Oslo" in executor.invoke({"input": "What is the weather in Oslo?"})["output"]
