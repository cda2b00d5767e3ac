"""Examples of LlamaIndex's documentation, rewritten, with another model. Each docstring is the URL of the page."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from llama_index.core import (
    Document,
    PromptTemplate,
    Settings,
    SummaryIndex,
    TreeIndex,
    VectorStoreIndex,
    get_response_synthesizer,
)
from llama_index.core.agent.workflow import AgentStream, AgentWorkflow, FunctionAgent, ReActAgent, ToolCallResult
from llama_index.core.base.llms.types import ChatMessage
from llama_index.core.evaluation import (
    AnswerRelevancyEvaluator,
    ContextRelevancyEvaluator,
    CorrectnessEvaluator,
    FaithfulnessEvaluator,
    RelevancyEvaluator,
)
from llama_index.core.extractors import KeywordExtractor, QuestionsAnsweredExtractor, SummaryExtractor, TitleExtractor
from llama_index.core.indices.query.query_transform import HyDEQueryTransform
from llama_index.core.ingestion import IngestionPipeline
from llama_index.core.memory import ChatMemoryBuffer
from llama_index.core.node_parser import TokenTextSplitter
from llama_index.core.output_parsers import PydanticOutputParser
from llama_index.core.postprocessor import LLMRerank
from llama_index.core.program import LLMTextCompletionProgram
from llama_index.core.query_engine import RouterQueryEngine, SubQuestionQueryEngine, TransformQueryEngine
from llama_index.core.question_gen import LLMQuestionGenerator
from llama_index.core.retrievers import QueryFusionRetriever
from llama_index.core.schema import NodeWithScore, TextNode
from llama_index.core.selectors import LLMSingleSelector, PydanticSingleSelector
from llama_index.core.tools import FunctionTool, QueryEngineTool
from llama_index.core.workflow import Event, StartEvent, StopEvent, Workflow, step
from llama_index.postprocessor.workers_ai_rerank import WorkersAIRerank
from pydantic import BaseModel, Field
from tests.tutorials.conftest import AGENTS_POST, ESSAY

if TYPE_CHECKING:
    from collections.abc import Iterator

    from llama_index.embeddings.workers_ai import WorkersAIEmbedding
    from llama_index.llms.workers_ai import WorkersAI

# LlamaIndex reads all attributes of an agent, deprecated ones of pydantic included.
pytestmark = [
    pytest.mark.filterwarnings("ignore::pydantic.warnings.PydanticDeprecationWarning"),
    pytest.mark.filterwarnings("ignore:is_running called from within a step:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:`langchain-community` is being sunset:DeprecationWarning"),
]
COLLEGE = "What did the author work on before college?"


@pytest.fixture(autouse=True)
def defaults(llm: WorkersAI, embed_model: WorkersAIEmbedding) -> Iterator[None]:
    """Set the global defaults as the examples do."""
    before = (Settings._llm, Settings._embed_model)
    Settings.llm, Settings.embed_model = llm, embed_model
    yield
    Settings._llm, Settings._embed_model = before


@pytest.fixture
def index() -> VectorStoreIndex:
    """Return an index over the essay, one node per sentence."""
    return VectorStoreIndex([TextNode(text=line) for line in ESSAY.splitlines()])


def multiply(a: float, b: float) -> float:
    """Useful for multiplying two numbers."""
    return a * b


def add(a: float, b: float) -> float:
    """Add two numbers and returns the sum"""
    return a + b


async def test_starter_agent(llm: WorkersAI) -> None:
    """https://developers.llamaindex.ai/python/framework/getting_started/starter_example/"""
    agent = FunctionAgent(
        tools=[multiply], llm=llm, system_prompt="You are a helpful assistant that can multiply two numbers."
    )
    assert "56088" in str(await agent.run("What is 456 * 123?"))


async def test_starter_agent_with_rag(llm: WorkersAI, index: VectorStoreIndex) -> None:
    """https://developers.llamaindex.ai/python/framework/getting_started/starter_example/"""
    engine = index.as_query_engine(similarity_top_k=2)

    async def search_documents(query: str) -> str:
        """Useful for answering natural language questions about a personal essay written by Paul Graham."""
        return str(await engine.aquery(query))

    agent = FunctionAgent(
        tools=[multiply, search_documents],
        llm=llm,
        system_prompt="You are a helpful assistant that can calculate and search.",
    )
    answer = str(await agent.run("What did the author do in college? Also, what's 7 * 8?"))
    assert ["philosophy" in answer, "56" in answer] == [True, True]


async def test_agent_with_memory(llm: WorkersAI) -> None:
    """https://developers.llamaindex.ai/python/framework/module_guides/deploying/agents/memory/"""
    memory = ChatMemoryBuffer.from_defaults(token_limit=40000)
    agent = FunctionAgent(tools=[multiply], llm=llm)
    assert "Logan" in str(await agent.run("My name is Logan", memory=memory))
    assert "Logan" in str(await agent.run("What is my name?", memory=memory))


async def test_agent_with_nested_arithmetic(llm: WorkersAI) -> None:
    """https://developers.llamaindex.ai/python/framework/understanding/agent/"""
    agent = FunctionAgent(
        tools=[multiply, add],
        llm=llm,
        system_prompt="You are an agent that can perform basic mathematical operations using tools.",
    )
    handler = agent.run(user_msg="What is 20+(2*4)?")
    calls = [
        (event.tool_name, event.tool_kwargs)
        async for event in handler.stream_events()
        if isinstance(event, ToolCallResult)
    ]
    assert calls == [("multiply", {"a": 2, "b": 4}), ("add", {"a": 20, "b": 8})]
    assert "28" in str(await handler)


async def test_streamed_agent(llm: WorkersAI) -> None:
    """https://developers.llamaindex.ai/python/framework/understanding/agent/streaming/"""

    async def search_web(query: str) -> str:
        """Useful for using the web to answer questions."""
        return "It is 20 degrees in San Francisco."

    agent = FunctionAgent(tools=[search_web], llm=llm)
    handler = agent.run(user_msg="What is the weather like in San Francisco?")
    text = "".join([event.delta async for event in handler.stream_events() if isinstance(event, AgentStream)])
    await handler
    assert "20 degrees in San Francisco" in text


async def test_react_agent(llm: WorkersAI) -> None:
    """https://developers.llamaindex.ai/python/examples/agent/react_agent/"""
    agent = ReActAgent(tools=[multiply, add], llm=llm)
    handler = agent.run("What is 20+(2*4)?")
    calls = [event.tool_name async for event in handler.stream_events() if isinstance(event, ToolCallResult)]
    assert calls == ["multiply", "add"]
    assert "28" in str(await handler)


async def test_two_agents(llm: WorkersAI) -> None:
    """https://developers.llamaindex.ai/python/framework/understanding/agent/multi_agent/"""

    async def search_web(query: str) -> str:
        """Useful for using the web to answer questions."""
        return "The internet began as a network of four computers."

    async def write_report(report_content: str) -> str:
        """Useful for writing a report on a given topic."""
        return "Report written."

    async def review_report(review: str) -> str:
        """Useful for reviewing a report and providing feedback."""
        return "Report reviewed."

    research = FunctionAgent(
        name="ResearchAgent",
        description="Useful for searching the web for information on a given topic.",
        tools=[search_web],
        llm=llm,
        can_handoff_to=["WriteAgent"],
    )
    write = FunctionAgent(
        name="WriteAgent",
        description="Useful for writing a report on a given topic.",
        tools=[write_report],
        llm=llm,
        can_handoff_to=["ReviewAgent"],
    )
    review = FunctionAgent(
        name="ReviewAgent",
        description="Useful for reviewing a report.",
        tools=[review_report],
        llm=llm,
        can_handoff_to=["WriteAgent"],
    )
    workflow = AgentWorkflow(agents=[research, write, review], root_agent="ResearchAgent")
    handler = workflow.run(user_msg="Search the web for the history of the internet and write a report on it.")
    calls = [event.tool_name async for event in handler.stream_events() if isinstance(event, ToolCallResult)]
    await handler
    assert calls[:4] == ["search_web", "handoff", "write_report", "handoff"]
    assert calls[-1] == "review_report"


async def test_structured_agent(llm: WorkersAI) -> None:
    """https://developers.llamaindex.ai/python/framework/understanding/agent/structured_output/"""

    class Weather(BaseModel):
        location: str = Field(description="The location")
        weather: str = Field(description="The weather")

    def get_weather(location: str) -> str:
        """Get the weather for a given location."""
        return f"The weather in {location} is sunny"

    agent = FunctionAgent(tools=[get_weather], llm=llm, output_cls=Weather)
    response = await agent.run("What is the weather in Paris?")
    found = response.get_pydantic_model(Weather)
    assert found is not None
    assert (found.location, found.weather) == ("Paris", "sunny")


def test_chat_and_completion(llm: WorkersAI) -> None:
    """https://developers.llamaindex.ai/python/framework/module_guides/models/llms/usage_standalone/"""
    assert "essayist" in llm.complete("Who is Paul Graham?").text
    assert (
        "".join(str(one.delta) for one in llm.stream_complete("Who is Paul Graham?"))
        == llm.complete("Who is Paul Graham?").text
    )
    messages = [
        ChatMessage(role="system", content="You are a pirate with a colorful personality"),
        ChatMessage(role="user", content="My name is Ann"),
    ]
    assert "Ann" in str(llm.chat(messages).message.content)


def test_structured_extraction(llm: WorkersAI) -> None:
    """https://developers.llamaindex.ai/python/framework/understanding/extraction/"""

    class Invoice(BaseModel):
        """A representation of information from an invoice."""

        invoice_id: str = Field(description="A unique identifier for this invoice, often a number")
        date: str = Field(description="The date this invoice was created")
        total_cost: str = Field(description="The total amount")

    text = "Invoice INV-2041, created on May 17, 2026 for Ann Lee. Please pay $1,250.00 within 30 days."
    found = llm.as_structured_llm(Invoice).complete(text).raw
    assert found == Invoice(invoice_id="INV-2041", date="May 17, 2026", total_cost="$1,250.00")


def test_structured_prediction(llm: WorkersAI) -> None:
    """https://developers.llamaindex.ai/python/examples/structured_outputs/structured_outputs/"""

    class Restaurant(BaseModel):
        """A restaurant with name, city, and cuisine."""

        name: str
        city: str
        cuisine: str

    prompt = PromptTemplate("Generate a restaurant in a given city {city_name}")
    assert llm.structured_predict(Restaurant, prompt, city_name="Miami").city == "Miami"


def test_text_completion_program(llm: WorkersAI) -> None:
    """https://developers.llamaindex.ai/python/examples/output_parsing/llm_program/"""

    class Contact(BaseModel):
        """A contact."""

        name: str
        email: str
        phone: str

    program = LLMTextCompletionProgram.from_defaults(
        output_parser=PydanticOutputParser(Contact),
        prompt_template_str="Extract the contact from this text: {text}",
        llm=llm,
    )
    assert program(text="Ann Lee, ann@example.org, +47 555 123 456") == Contact(
        name="Ann Lee", email="ann@example.org", phone="+47 555 123 456"
    )


def test_predict_and_call(llm: WorkersAI) -> None:
    """https://developers.llamaindex.ai/python/framework/module_guides/deploying/agents/tools/"""
    tools = [FunctionTool.from_defaults(multiply), FunctionTool.from_defaults(add)]
    assert "60" in str(llm.predict_and_call(tools, "What is 12 multiplied by 5?"))


def test_starter_query(index: VectorStoreIndex) -> None:
    """https://developers.llamaindex.ai/python/framework/understanding/rag/"""
    answer = index.as_query_engine(similarity_top_k=2).query(COLLEGE)
    assert "writing and programming" in str(answer)
    assert "writing and programming" in answer.source_nodes[0].text
    streamed = index.as_query_engine(streaming=True).query(COLLEGE)
    assert "writing and programming" in "".join(streamed.response_gen)


@pytest.mark.parametrize("mode", ["compact", "refine", "tree_summarize", "accumulate", "simple_summarize"])
def test_response_modes(index: VectorStoreIndex, mode: Any) -> None:
    """https://developers.llamaindex.ai/python/framework/module_guides/querying/response_synthesizers/"""
    answer = index.as_query_engine(response_mode=mode, similarity_top_k=3).query(COLLEGE)
    assert "writing and programming" in str(answer)


def test_structured_synthesis() -> None:
    """https://developers.llamaindex.ai/python/examples/response_synthesizers/structured_refine/"""

    class Biography(BaseModel):
        """Data model for a biography."""

        name: str
        summary: str

    synthesizer = get_response_synthesizer(response_mode="tree_summarize", output_cls=Biography)
    found: Any = synthesizer.get_response("Who is the person?", ["Ann Lee was born in Oslo. She builds bridges."])
    assert found.name == "Ann Lee"


def test_summary_index() -> None:
    """https://developers.llamaindex.ai/python/framework/module_guides/indexing/index_guide/"""
    engine = SummaryIndex.from_documents([Document(text=AGENTS_POST)]).as_query_engine(response_mode="tree_summarize")
    summary = str(engine.query("Summarize the document"))
    assert "agent" in summary
    assert 40 < len(summary) < len(AGENTS_POST)


def test_tree_index() -> None:
    """https://developers.llamaindex.ai/python/framework/module_guides/indexing/index_guide/"""
    nodes = [
        TextNode(text="Bananas are yellow fruit. They grow in warm places."),
        TextNode(text="Fjords are deep. Glaciers made the fjords of Norway."),
    ]
    assert "Glaciers" in str(TreeIndex(nodes, num_children=2).as_query_engine().query("What made the fjords?"))


def test_chat_engines(index: VectorStoreIndex) -> None:
    """https://developers.llamaindex.ai/python/framework/module_guides/deploying/chat_engines/usage_pattern/"""
    for mode in ("context", "condense_plus_context", "condense_question"):
        memory = ChatMemoryBuffer.from_defaults(token_limit=3000)
        chat = index.as_chat_engine(chat_mode=mode, similarity_top_k=2, memory=memory)
        assert "writing and programming" in str(chat.chat(COLLEGE)), mode
        assert "plot" in str(chat.chat("What hardly any plot did the stories have?")), mode


def test_sub_questions(llm: WorkersAI) -> None:
    """https://developers.llamaindex.ai/python/examples/query_engine/sub_question_query_engine/"""
    texts = {
        "uber": "Uber grew its revenue by 57 percent in 2021.",
        "lyft": "Lyft grew its revenue by 36 percent in 2021.",
    }
    tools = [
        QueryEngineTool.from_defaults(
            VectorStoreIndex([TextNode(text=text)]).as_query_engine(),
            name=f"{name}_10k",
            description=f"Provides information about {name} financials",
        )
        for name, text in texts.items()
    ]
    generator = LLMQuestionGenerator.from_defaults(llm=llm)
    engine = SubQuestionQueryEngine.from_defaults(
        tools, question_gen=generator, llm=llm, use_async=False, verbose=False
    )
    answer = engine.query("Compare the revenue growth of Uber and Lyft in 2021")
    assert ["57 percent" in str(answer), "36 percent" in str(answer)] == [True, True]


@pytest.mark.parametrize("selector", [LLMSingleSelector, PydanticSingleSelector])
def test_router(index: VectorStoreIndex, llm: WorkersAI, selector: Any) -> None:
    """https://developers.llamaindex.ai/python/framework/module_guides/querying/router/"""
    summaries = SummaryIndex([TextNode(text=line) for line in ESSAY.splitlines()]).as_query_engine(
        response_mode="tree_summarize"
    )
    tools = [
        QueryEngineTool.from_defaults(summaries, description="Useful for summarization questions related to the essay"),
        QueryEngineTool.from_defaults(
            index.as_query_engine(), description="Useful for retrieving specific facts and context from the essay"
        ),
    ]
    engine = RouterQueryEngine(selector=selector.from_defaults(llm=llm), query_engine_tools=tools)
    answer = engine.query("What is the summary of the essay?")
    assert answer.metadata["selector_result"].selections[0].index == 0
    answer = engine.query("Which specific facts does the essay tell about the IBM 1401?")
    assert answer.metadata["selector_result"].selections[0].index == 1
    assert "IBM 1401" in str(answer)


def test_fusion_of_queries(index: VectorStoreIndex, llm: WorkersAI) -> None:
    """https://developers.llamaindex.ai/python/examples/retrievers/reciprocal_rerank_fusion/"""
    retriever = QueryFusionRetriever(
        [index.as_retriever(similarity_top_k=2)], llm=llm, num_queries=4, similarity_top_k=1, use_async=False
    )
    queries = retriever._get_queries("What is the IBM 1401?")
    assert len(queries) == 3
    assert all("IBM 1401" in one.query_str for one in queries)
    assert "IBM 1401" in retriever.retrieve("What is the IBM 1401?")[0].text


def test_rerankers(llm: WorkersAI, settings: dict[str, Any]) -> None:
    """https://developers.llamaindex.ai/python/framework/module_guides/querying/node_postprocessors/"""
    texts = ["Bananas are yellow.", "My first programs ran on an IBM 1401.", "Fjords are deep."]
    nodes = [NodeWithScore(node=TextNode(text=text), score=0.5) for text in texts]
    question = "Which computer ran the first programs?"
    for reranker in (WorkersAIRerank(top_n=1, **settings), LLMRerank(top_n=1, llm=llm)):
        assert "IBM 1401" in reranker.postprocess_nodes(list(nodes), query_str=question)[0].text


def test_hypothetical_documents(index: VectorStoreIndex, llm: WorkersAI) -> None:
    """https://developers.llamaindex.ai/python/examples/query_transformations/hydequerytransformdemo/"""
    engine = TransformQueryEngine(
        index.as_query_engine(similarity_top_k=2), HyDEQueryTransform(llm=llm, include_original=True)
    )
    assert "writing and programming" in str(engine.query(COLLEGE))


async def test_extractors(llm: WorkersAI) -> None:
    """https://developers.llamaindex.ai/python/framework/module_guides/loading/documents_and_nodes/usage_metadata_extractor/"""
    nodes = [TextNode(text="Glaciers carved the fjords of Norway. The fjords are deep. Ships sail on the fjords.")]
    (title,) = await TitleExtractor(llm=llm).aextract(nodes)
    assert ["jord" in title["document_title"], "title" not in title["document_title"].lower()] == [True, True]
    (keywords,) = await KeywordExtractor(llm=llm, keywords=3).aextract(nodes)
    words = [word.strip() for word in keywords["excerpt_keywords"].split(",")]
    assert ["fjords" in words, len(words)] == [True, 3]
    (questions,) = await QuestionsAnsweredExtractor(llm=llm, questions=2).aextract(nodes)
    lines = questions["questions_this_excerpt_can_answer"].splitlines()
    assert len(lines) == 2
    assert all(line.endswith("?") for line in lines)
    assert "fjords" in questions["questions_this_excerpt_can_answer"]
    (summary,) = await SummaryExtractor(llm=llm).aextract(nodes)
    assert summary["section_summary"] in nodes[0].text
    assert "fjords" in summary["section_summary"]


def test_ingestion_pipeline(llm: WorkersAI, embed_model: WorkersAIEmbedding) -> None:
    """https://developers.llamaindex.ai/python/framework/module_guides/loading/ingestion_pipeline/"""
    pipeline = IngestionPipeline(
        transformations=[
            TokenTextSplitter(chunk_size=60, chunk_overlap=0),
            TitleExtractor(llm=llm, num_workers=1),
            embed_model,
        ]
    )
    nodes = pipeline.run(documents=[Document(text=ESSAY)])
    assert len(nodes) >= 2
    assert all(node.embedding and node.metadata["document_title"] for node in nodes)
    assert len({node.metadata["document_title"] for node in nodes}) == 1


def test_faithfulness_and_relevancy(index: VectorStoreIndex, llm: WorkersAI) -> None:
    """https://developers.llamaindex.ai/python/framework/module_guides/evaluating/usage_pattern/"""
    response = index.as_query_engine(similarity_top_k=2).query(COLLEGE)
    assert FaithfulnessEvaluator(llm=llm).evaluate_response(response=response).passing
    assert RelevancyEvaluator(llm=llm).evaluate_response(query=COLLEGE, response=response).passing
    wrong = "The author sailed around the world before college."
    contexts = [node.get_content() for node in response.source_nodes]
    assert not FaithfulnessEvaluator(llm=llm).evaluate(response=wrong, contexts=contexts).passing
    assert not RelevancyEvaluator(llm=llm).evaluate(query=COLLEGE, response=wrong, contexts=contexts).passing


def test_scores(llm: WorkersAI) -> None:
    """https://developers.llamaindex.ai/python/examples/evaluation/correctness_eval/"""
    query, right = "What is the capital of Norway?", "The capital of Norway is Oslo."
    assert CorrectnessEvaluator(llm=llm).evaluate(query=query, response=right, reference=right).passing
    assert (
        not CorrectnessEvaluator(llm=llm).evaluate(query=query, response="Bananas are yellow.", reference=right).passing
    )
    assert AnswerRelevancyEvaluator(llm=llm).evaluate(query=query, response=right).score == 1.0
    assert AnswerRelevancyEvaluator(llm=llm).evaluate(query=query, response="Bananas are yellow.").score == 0.0
    assert ContextRelevancyEvaluator(llm=llm).evaluate(query=query, contexts=[right]).score == 1.0


class JokeEvent(Event):
    """A joke to criticise."""

    joke: str


class JokeFlow(Workflow):
    """Write a joke, then criticise it."""

    llm: Any = None

    @step
    async def generate(self, ev: StartEvent) -> JokeEvent:
        return JokeEvent(joke=str(await self.llm.acomplete(f"Write your best joke about {ev.topic}.")))

    @step
    async def critique(self, ev: JokeEvent) -> StopEvent:
        return StopEvent(result=(ev.joke, str(await self.llm.acomplete(f"Summarize the following joke: {ev.joke}"))))


async def test_workflow(llm: WorkersAI) -> None:
    """https://developers.llamaindex.ai/python/framework/understanding/workflows/"""
    flow = JokeFlow(timeout=10)
    flow.llm = llm
    joke, critique = await flow.run(topic="pirates")
    assert ["pirates" in joke, "pirates" in critique] == [True, True]
