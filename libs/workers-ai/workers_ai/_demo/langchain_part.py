"""The LangChain part of ``workers-ai demo``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from langchain_core.documents import Document
from langchain_core.messages import HumanMessage
from langchain_core.tools import tool
from langchain_core.vectorstores import InMemoryVectorStore
from pydantic import BaseModel, Field

from langchain_workers_ai import ChatWorkersAI, WorkersAIBatchIngestor, WorkersAIEmbeddings

if TYPE_CHECKING:
    from langchain_core.vectorstores import VectorStoreRetriever

    from workers_ai._demo import Stage

__all__ = ["show"]

_PROMPT = "Answer the question from this context, in one sentence.\n\nContext:\n{context}\n\nQuestion: {question}"


class Answer(BaseModel):
    """An answer about the Python standard library."""

    function: str = Field(description="name of the function")
    module: str = Field(description="module it is in")


@tool
def count_letters(word: str) -> int:
    """Count the letters of a word."""
    return sum(letter.isalpha() for letter in word)


def show(stage: Stage) -> None:
    """Answer questions with sources, call a tool, return a structured answer, and retry at capacity."""
    model = ChatWorkersAI(model=stage.chat_model, **stage.settings)
    stage.title("LangChain: questions over the corpus")
    retriever = _retriever(stage)
    for question in stage.questions:
        _answer(stage, model, retriever, question)
    stage.title("LangChain: a tool call")
    _call_tool(stage, model)
    stage.title("LangChain: a structured answer")
    structured = model.with_structured_output(Answer)
    found = structured.invoke("Put this into the form: function = dumps, module = json.")
    stage.say(f"  {found!r}")
    if stage.make_busy:
        stage.title("LangChain: a service at capacity (HTTP 429, code 3040), and the retry")
        stage.make_busy(1)
        retrying = ChatWorkersAI(model=stage.chat_model, **{**stage.settings, "on_busy": "retry"})
        stage.say(f"  {retrying.invoke('Say hello.').text}")


def _retriever(stage: Stage) -> VectorStoreRetriever:
    """Return a retriever over the corpus. Its vectors come from the ledger, so nothing is embedded twice."""
    embeddings = WorkersAIEmbeddings(model=stage.embed_model, **stage.settings)
    store = InMemoryVectorStore(embeddings)
    documents = [
        Document(id=doc.id, page_content=doc.text, metadata={"name": doc.id, "source": doc.source})
        for doc in stage.corpus
    ]
    report = WorkersAIBatchIngestor(embeddings, store, ledger=stage.ledger, progress=False).ingest(documents)
    stage.say(f"  {report.reused:,} vectors from the ledger, {report.embedded:,} embedded")
    return store.as_retriever(search_kwargs={"k": 3})


def _answer(stage: Stage, model: ChatWorkersAI, retriever: VectorStoreRetriever, question: str) -> None:
    found = retriever.invoke(question)
    context = "\n\n".join(document.page_content for document in found)
    answer = model.invoke(_PROMPT.format(context=context, question=question))
    stage.say(f"  Q: {question}\n  A: {answer.text}")
    for document in found:
        stage.say(f"     source: {document.metadata['name']} ({document.metadata['source']})")


def _call_tool(stage: Stage, model: ChatWorkersAI) -> None:
    question = HumanMessage('Use count_letters on the word "Trondheim".')
    first = model.bind_tools([count_letters], tool_choice="count_letters").invoke([question])
    results = [count_letters.invoke(call) for call in first.tool_calls]
    for call, result in zip(first.tool_calls, results, strict=True):
        stage.say(f"  {call['name']}({call['args']}) -> {result.content}")
    stage.say(f"  A: {model.bind_tools([count_letters]).invoke([question, first, *results]).text}")
