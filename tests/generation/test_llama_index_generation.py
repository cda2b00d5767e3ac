"""WorkersAIBatchExtractor and structured_predict_many: one answer per node or row, through the queue and a ledger."""

from __future__ import annotations

import asyncio
import enum
import pickle
from typing import TYPE_CHECKING, Any

import pytest
from llama_index.core.ingestion import IngestionPipeline
from llama_index.core.prompts import ChatPromptTemplate, PromptTemplate
from llama_index.core.schema import Document, ImageNode, NodeRelationship, RelatedNodeInfo, TextNode
from llama_index.core.storage.docstore import SimpleDocumentStore
from llama_index.llms.workers_ai import WorkersAI, WorkersAIBatchExtractor
from pydantic import BaseModel
from tests.llama_index.standard import CountingLimiter
from tests.support import Caller, wired

from workers_ai.errors import BatchItemError, ConfigurationError, QuotaExhaustedError
from workers_ai_emulator import Emulator, Fault, QueueSettings
from workers_ai_emulator.state.queue import ItemFailure

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    Make = Callable[..., Any]

MODEL = "@cf/qwen/qwen3-30b-a3b-fp8"
SUMMARY = "Summarize in one sentence: {context_str}"


class Kind(enum.Enum):
    """Kinds of notices."""

    FERRY = "ferry"
    MUSEUM = "museum"


class Notice(BaseModel):
    """A notice."""

    place: str
    kind: Kind


@pytest.fixture
def emulator() -> Emulator:
    """Return a service whose batches are complete at the first poll."""
    return Emulator(queue=QueueSettings("at_once"))


@pytest.fixture
def llm(emulator: Emulator) -> WorkersAI:
    """Return an LLM with a queue."""
    return WorkersAI(**wired(emulator, model=MODEL, max_tokens=300, seed=7))


@pytest.fixture
def extractor(llm: WorkersAI, tmp_path: Path) -> Make:
    """Return a function that creates extractors with one shared ledger. Keywords are fields."""
    fields = {"llm": llm, "ledger": tmp_path / "ledger", "prompt_template": SUMMARY, "metadata_key": "summary"}
    return lambda **given: WorkersAIBatchExtractor(**{**fields, "show_progress": False, **given})


@pytest.fixture(params=["sync", "async"])
def mode(request: pytest.FixtureRequest) -> str:
    """Return "sync" or "async"."""
    return str(request.param)


def nodes(count: int) -> list[TextNode]:
    return [TextNode(text=f"The ferry number {number} leaves.", id_=f"n{number}") for number in range(count)]


def run(mode: str, extractor: WorkersAIBatchExtractor, given: Any) -> list[Any]:
    pipeline = IngestionPipeline(transformations=[extractor], disable_cache=True)
    return list(pipeline.run(nodes=given) if mode == "sync" else asyncio.run(pipeline.arun(nodes=given)))


def items(emulator: Emulator) -> list[dict[str, Any]]:
    """Return the items of all submissions."""
    found = [entry.json for entry in emulator.log.entries if isinstance(entry.json, dict)]
    return [item for body in found for item in body.get("requests", ())]


def prompts(emulator: Emulator) -> list[str]:
    """Return the last message of each item."""
    return [item["messages"][-1]["content"] for item in items(emulator)]


class TestExtractor:
    def test_one_submission_and_metadata_per_node(self, extractor: Make, emulator: Emulator, mode: str) -> None:
        found = run(mode, extractor(), nodes(30))
        assert [node.node_id for node in found] == [f"n{number}" for number in range(30)]
        assert all(node.metadata["summary"] for node in found)
        assert prompts(emulator) == [f"Summarize in one sentence: {node.text}" for node in nodes(30)]
        assert {(item["max_tokens"], item["seed"]) for item in items(emulator)} == {(300, 7)}
        assert sum("requests" in (entry.json or {}) for entry in emulator.log.entries) == 1

    def test_second_run_sends_only_new_nodes(self, extractor: Make, emulator: Emulator, mode: str) -> None:
        first = run(mode, extractor(), nodes(5))
        sent = emulator.log.requests
        again = run(mode, extractor(), nodes(5))
        assert emulator.log.requests == sent
        assert [node.metadata for node in again] == [node.metadata for node in first]
        run(mode, extractor(), nodes(6))
        assert len(items(emulator)) == 6

    def test_failed_node_does_not_affect_the_others(self, extractor: Make, emulator: Emulator, mode: str) -> None:
        emulator.queue.settings.failures.append(ItemFailure(contains="number 2 ", code=5001, message="broken", times=9))
        model = extractor(raise_on_error=False)
        found = run(mode, model, nodes(5))
        assert [bool(node.metadata) for node in found] == [True, True, False, True, True]
        (failure,) = model.failures
        assert (failure.id, failure.position, failure.code) == ("n2", 2, 5001)
        assert model.report.answered == 4

    def test_failed_node_raises_after_the_others_were_stored(self, extractor: Make, emulator: Emulator) -> None:
        emulator.queue.settings.failures.append(ItemFailure(contains="number 2 ", message="broken", times=1))
        emulator.queue.settings.failures.append(ItemFailure(contains="number 2 ", message="broken", times=9))
        with pytest.raises(BatchItemError, match="1 of 5 nodes failed, the first is n2: broken"):
            run("sync", extractor(), nodes(5))
        emulator.queue.settings.failures.clear()
        before = len(items(emulator))
        assert all(node.metadata for node in run("sync", extractor(), nodes(5)))
        assert len(items(emulator)) == before + 1

    def test_objects_become_metadata(self, extractor: Make, mode: str) -> None:
        found = run(mode, extractor(output_cls=Notice, metadata_key=None), nodes(3))
        assert all(set(node.metadata) == {"place", "kind"} for node in found)
        assert {node.metadata["kind"] for node in found} <= {"ferry", "museum"}

    def test_labels(self, extractor: Make) -> None:
        found = run("sync", extractor(labels=["ferry", "museum"], metadata_key="label"), nodes(3))
        assert {node.metadata["label"] for node in found} <= {"ferry", "museum"}

    def test_context_of_a_chunk_in_its_document(self, extractor: Make, emulator: Emulator) -> None:
        docstore = SimpleDocumentStore()
        docstore.add_documents([TextNode(id_="doc", text="All departures {of} today.")])
        chunk, orphan = nodes(2)
        chunk.relationships[NodeRelationship.SOURCE] = RelatedNodeInfo(node_id="doc")
        model = extractor(
            prompt_template="{document_str}|{context_str}", metadata_key="context", docstore=docstore,
            raise_on_error=False,
        )  # fmt: skip
        found = run("sync", model, [chunk, orphan])
        assert prompts(emulator) == ["All departures {of} today.|The ferry number 0 leaves."]
        assert [bool(node.metadata) for node in found] == [True, False]
        assert [failure.id for failure in model.failures] == ["n1"]

    def test_sync_call_in_a_running_event_loop(self, extractor: Make) -> None:
        async def main() -> list[Any]:
            return extractor()(nodes(2))

        assert all(node.metadata for node in asyncio.run(main()))

    def test_nodes_without_text_are_skipped(self, extractor: Make, emulator: Emulator) -> None:
        assert asyncio.run(extractor().aextract([])) == []
        assert emulator.log.requests == 0
        assert run("sync", extractor(), [ImageNode(text="A picture."), *nodes(1)])

    def test_documents_are_nodes(self, extractor: Make) -> None:
        (metadata,) = extractor().extract([Document(text="A notice.")])
        assert metadata

    def test_direct_requests_use_the_same_ledger(self, extractor: Make, emulator: Emulator, llm: WorkersAI) -> None:
        llm.rate_limiter = limiter = CountingLimiter()
        run("sync", extractor(queue="never"), nodes(3))
        assert items(emulator) == []
        assert limiter.acquired == emulator.log.requests == 3
        run("sync", extractor(), nodes(3))
        assert emulator.log.requests == 3

    def test_exhausted_quota_stops_the_run(self, extractor: Make, emulator: Emulator) -> None:
        emulator.faults.add(Fault.error(429, 4006, "you have used up your daily free allocation", times=1))
        with pytest.raises(QuotaExhaustedError):
            run("sync", extractor(), nodes(3))
        assert all(node.metadata for node in run("sync", extractor(), nodes(3)))

    def test_other_prompt_in_the_same_ledger_is_rejected(self, extractor: Make, emulator: Emulator) -> None:
        run("sync", extractor(), nodes(1))
        with pytest.raises(ConfigurationError, match="prompt"):
            run("sync", extractor(prompt_template="Title: {context_str}"), nodes(1))
        assert len(items(emulator)) == 1

    @pytest.mark.parametrize(
        ("given", "message"),
        [
            ({"prompt_template": "{text}"}, "unknown placeholder 'text'"),
            ({"prompt_template": "{context_str"}, "malformed"),
            ({"prompt_template": "{document_str}"}, "docstore="),
            ({"metadata_key": None}, "metadata_key="),
            ({"labels": ["a", "b"], "output_cls": Notice}, "not both"),
            ({"prompt_templat": "x"}, "prompt_template"),
        ],
    )
    def test_invalid_fields_raise(self, extractor: Make, given: dict[str, Any], message: str) -> None:
        with pytest.raises(ConfigurationError, match=message):
            extractor(**given)

    def test_cache_key_has_only_fields_that_change_the_metadata(self, extractor: Make, tmp_path: Path) -> None:
        key = extractor().to_dict()
        assert extractor(ledger=tmp_path / "other", limit_cost_usd=1).to_dict() == key
        for other in ({"prompt_template": "Title: {context_str}"}, {"output_cls": Notice}, {"labels": ["a", "b"]}):
            assert extractor(**other).to_dict() != key

    def test_pickle_keeps_the_fields_and_the_original(self, extractor: Make, tmp_path: Path) -> None:
        model = extractor(output_cls=Notice)
        asyncio.run(model.aextract(nodes(1)))
        twin = pickle.loads(pickle.dumps(model))
        assert (twin.ledger, twin.output_cls, twin.report) == (tmp_path / "ledger", Notice, None)
        assert model.report.answered == 1


ROWS = [{"text": f"Notice number {number}."} for number in range(4)]


class TestPredictMany:
    @pytest.fixture(params=["sync", "async"])
    def call(self, request: pytest.FixtureRequest) -> Caller:
        return Caller(request.param)

    def many(self, call: Caller, llm: WorkersAI, ledger: Path, **options: Any) -> list[Any]:
        options = {"output_cls": Notice, "prompt": PromptTemplate("About: {text}"), "rows": ROWS, **options}
        found: list[Any] = call(llm, "structured_predict_many", ledger=ledger, progress=False, **options)
        return found

    def test_objects_in_the_order_of_the_rows(
        self, llm: WorkersAI, emulator: Emulator, call: Caller, tmp_path: Path
    ) -> None:
        llm.system_prompt = "Be brief."
        found = self.many(call, llm, tmp_path / "ledger")
        assert all(isinstance(notice, Notice) for notice in found)
        assert prompts(emulator) == [f"About: Notice number {number}." for number in range(4)]
        assert all(item["messages"][0]["content"].startswith("Be brief.") for item in items(emulator))
        sent = emulator.log.requests
        assert self.many(call, llm, tmp_path / "ledger") == found
        assert emulator.log.requests == sent

    def test_failed_row_has_an_error_at_its_index(
        self, llm: WorkersAI, emulator: Emulator, call: Caller, tmp_path: Path
    ) -> None:
        emulator.queue.settings.failures.append(ItemFailure(contains="number 2.", message="broken", times=9))
        found = self.many(call, llm, tmp_path / "ledger")
        assert [type(notice) for notice in found] == [Notice, Notice, BatchItemError, Notice]
        assert found[2].index == 2
        assert "row 2 failed" in str(found[2])

    def test_chat_prompts_and_parameters_of_the_calls(
        self, llm: WorkersAI, emulator: Emulator, call: Caller, tmp_path: Path
    ) -> None:
        prompt = ChatPromptTemplate.from_messages([("system", "Read {what}."), ("user", "{text}")])
        self.many(
            call, llm, tmp_path / "ledger", prompt=prompt.partial_format(what="notices"),
            llm_kwargs={"temperature": 0.5, "top_p": 0.9},
        )  # fmt: skip
        assert {(item["temperature"], item["top_p"]) for item in items(emulator)} == {(0.5, 0.9)}
        assert all(item["messages"][0]["content"].startswith("Read notices.") for item in items(emulator))

    @pytest.mark.parametrize(
        ("given", "message"),
        [
            ({"prompt": PromptTemplate("{text} {more}")}, "row 0 has no value for more"),
            ({"prompt": "{text}"}, "prompt must be a PromptTemplate, not a str"),
            ({"output_cls": dict}, "pydantic class"),
            ({"llm_kwargs": {"timeout": 3}}, "timeout cannot be set"),
            ({"limit_cost": 3}, "limit_cost_usd"),
        ],
    )
    def test_invalid_arguments_raise_before_sending(
        self, llm: WorkersAI, emulator: Emulator, tmp_path: Path, given: dict[str, Any], message: str
    ) -> None:
        with pytest.raises(ConfigurationError, match=message):
            self.many(Caller("sync"), llm, tmp_path / "ledger", **given)
        assert emulator.log.requests == 0
