"""The reranker: order, scores, requests, events and errors."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
from llama_index.core.callbacks import CallbackManager, CBEventType, LlamaDebugHandler
from llama_index.core.instrumentation.events.rerank import ReRankEndEvent, ReRankStartEvent
from llama_index.core.schema import NodeWithScore, QueryBundle, TextNode
from llama_index.postprocessor.workers_ai_rerank import GatewayOptions
from tests.support import held, wired

from workers_ai.errors import APIResponseValidationError, BadRequestError, CapacityError, ConfigurationError
from workers_ai_emulator import Clock, Emulator, Fault

if TYPE_CHECKING:
    from collections.abc import Callable

    from llama_index.postprocessor.workers_ai_rerank import WorkersAIRerank
    from tests.llama_index.conftest import Script
    from tests.support import Caller

    Make = Callable[..., WorkersAIRerank]

QUERY = "When does the ferry to Moss leave?"
TEXTS = [
    "The museum is closed on Mondays.",
    "The ferry to Moss leaves at 14:02.",
    "Moss is a town in Norway.",
    "A cafe serves cakes.",
]
BEST = "The ferry to Moss leaves at 14:02."


def nodes(texts: list[str] = TEXTS) -> list[NodeWithScore]:
    return [NodeWithScore(node=TextNode(id_=str(place), text=text), score=0.5) for place, text in enumerate(texts)]


def scored(script: Script, *scores: tuple[int, float]) -> None:
    """Script scores by index."""
    script.native({"response": [{"id": place, "score": score} for place, score in scores]})


class TestLlamaIndex:
    def test_best_first_and_top_n(self, reranker: Make, emulator: Emulator, call: Caller) -> None:
        found = call(reranker(top_n=2), "postprocess_nodes", nodes(), query_str=QUERY)
        assert [one.node.text for one in found] == [BEST, TEXTS[2]]
        assert found[0].score > found[1].score
        assert emulator.log.last.json == {"query": QUERY, "contexts": [{"text": text} for text in TEXTS], "top_k": 2}

    @pytest.mark.parametrize(("top_n", "kept"), [(1, 1), (4, 4), (9, 4), (None, 4)])
    def test_top_n(self, reranker: Make, call: Caller, top_n: int | None, kept: int) -> None:
        assert len(call(reranker(top_n=top_n), "postprocess_nodes", nodes(), query_str=QUERY)) == kept

    def test_scores_are_matched_by_id(self, reranker: Make, script: Script, call: Caller) -> None:
        scored(script, (2, 0.9), (0, 0.1), (3, 0.5), (1, 0.3))
        found = call(reranker(top_n=None), "postprocess_nodes", nodes(), query_str=QUERY)
        assert [(one.node.node_id, one.score) for one in found] == [("2", 0.9), ("3", 0.5), ("1", 0.3), ("0", 0.1)]

    def test_input_nodes_are_not_changed(self, reranker: Make, call: Caller) -> None:
        given = nodes()
        before = [one.model_dump_json() for one in given]
        found = call(reranker(keep_retrieval_score=True), "postprocess_nodes", given, query_str=QUERY)
        assert [one.model_dump_json() for one in given] == before
        assert not {id(one) for one in found} & {id(one) for one in given}

    def test_retrieval_score_is_kept_in_excluded_metadata(
        self, reranker: Make, emulator: Emulator, call: Caller
    ) -> None:
        model = reranker(keep_retrieval_score=True, top_n=1)
        (best,) = call(model, "postprocess_nodes", nodes(), query_str=QUERY)
        assert best.node.metadata == {"retrieval_score": 0.5}
        call(model, "postprocess_nodes", [best], query_str=QUERY)
        assert emulator.log.last.json["contexts"] == [{"text": BEST}]
        (plain,) = call(reranker(top_n=1), "postprocess_nodes", nodes(), query_str=QUERY)
        assert plain.node.metadata == {}

    def test_text_uses_the_embed_metadata_mode(self, reranker: Make, emulator: Emulator) -> None:
        node = TextNode(text="text", metadata={"title": "T", "id": 1}, excluded_embed_metadata_keys=["id"])
        reranker().postprocess_nodes([NodeWithScore(node=node)], query_str="q")
        assert emulator.log.last.json["contexts"] == [{"text": "title: T\n\ntext"}]

    def test_long_list_is_split_and_merged(self, reranker: Make, emulator: Emulator, call: Caller) -> None:
        texts = [f"filler {place}" for place in range(250)]
        texts[7], texts[120], texts[249] = QUERY, BEST, "Moss"
        found = call(reranker(top_n=3), "postprocess_nodes", nodes(texts), query_str=QUERY)
        assert [one.node.node_id for one in found] == ["7", "120", "249"]
        assert sorted(len(entry.json["contexts"]) for entry in emulator.log.entries) == [50, 100, 100]

    def test_requests_of_a_long_list_are_bounded_and_async(self) -> None:
        from llama_index.postprocessor.workers_ai_rerank import WorkersAIRerank

        emulator = Emulator(clock=Clock("manual"), latency_s=1)
        model = WorkersAIRerank(**wired(emulator, max_concurrency=2))
        given = nodes([f"text {place}" for place in range(600)])

        async def both() -> None:
            await asyncio.gather(*(model.apostprocess_nodes(given[:100], query_str="q") for _ in range(2)))

        with held(emulator, 2):
            asyncio.run(both())
            model.postprocess_nodes(given, query_str="q")
        assert emulator.log.peak_concurrency == 2
        assert emulator.log.requests == 8

    def test_empty_node_keeps_its_index(self, reranker: Make, emulator: Emulator, call: Caller) -> None:
        found = call(reranker(top_n=None), "postprocess_nodes", nodes(["", BEST]), query_str=QUERY)
        assert [one.node.node_id for one in found] == ["1", "0"]
        assert emulator.log.last.json["contexts"][0] == {"text": " "}

    def test_empty_list_sends_only_events(
        self, reranker: Make, emulator: Emulator, call: Caller, events: list[Any]
    ) -> None:
        handler = LlamaDebugHandler(print_trace_on_end=False)
        model = reranker(callback_manager=CallbackManager([handler]))
        assert call(model, "postprocess_nodes", [], query_str=QUERY) == []
        assert emulator.log.requests == 0
        assert [type(event) for event in events if "ReRank" in type(event).__name__] == [
            ReRankStartEvent,
            ReRankEndEvent,
        ]
        assert len(handler.get_event_pairs(CBEventType.RERANKING)) == 1

    def test_events_have_query_nodes_and_model(self, reranker: Make, call: Caller, events: list[Any]) -> None:
        found = call(reranker(top_n=2), "postprocess_nodes", nodes(), query_bundle=QueryBundle(QUERY))
        (start,) = [event for event in events if isinstance(event, ReRankStartEvent)]
        (end,) = [event for event in events if isinstance(event, ReRankEndEvent)]
        assert (start.query.query_str, len(start.nodes), start.top_n) == (QUERY, 4, 2)
        assert start.model_name == "@cf/baai/bge-reranker-base"
        assert [one.node.node_id for one in end.nodes] == [one.node.node_id for one in found]

    def test_no_query_raises_before_any_event(self, reranker: Make, call: Caller, events: list[Any]) -> None:
        with pytest.raises(ValueError, match="the reranker has no query: pass query_bundle="):
            call(reranker(), "postprocess_nodes", nodes())
        with pytest.raises(ValueError, match="both"):
            call(reranker(), "postprocess_nodes", nodes(), query_bundle=QueryBundle("q"), query_str="q")
        assert not [event for event in events if isinstance(event, ReRankStartEvent)]

    def test_empty_query_is_rejected(self, reranker: Make, emulator: Emulator, call: Caller) -> None:
        with pytest.raises(BadRequestError, match="the query must be a non-empty string"):
            call(reranker(), "postprocess_nodes", nodes(), query_str="")
        assert emulator.log.requests == 0

    @pytest.mark.parametrize("odd", ["text", TextNode(text="text")])
    def test_non_node_is_rejected(self, reranker: Make, call: Caller, odd: Any) -> None:
        with pytest.raises(BadRequestError, match=r"pass NodeWithScore\(node=\.\.\.\)"):
            call(reranker(), "postprocess_nodes", [*nodes(), odd], query_str=QUERY)

    @pytest.mark.parametrize(
        ("scores", "expected_text"),
        [([(0, 0.5)], "scores for 1 "), ([(0, 0.5), (0, 0.4), (9, 0.3)], "scores for 1 "), ([], "scores for 0 ")],
    )
    def test_missing_scores_raise(
        self, reranker: Make, script: Script, call: Caller, scores: list[tuple[int, float]], expected_text: str
    ) -> None:
        scored(script, *scores)
        with pytest.raises(APIResponseValidationError, match=expected_text):
            call(reranker(top_n=3), "postprocess_nodes", nodes(), query_str=QUERY)

    def test_capacity_error_is_retried_or_raised(self, reranker: Make, emulator: Emulator, call: Caller) -> None:
        emulator.faults.add(Fault.busy(times=2))
        assert len(call(reranker(), "postprocess_nodes", nodes(), query_str=QUERY)) == 3
        emulator.faults.add(Fault.busy())
        with pytest.raises(CapacityError):
            call(reranker(on_busy="raise"), "postprocess_nodes", nodes(), query_str=QUERY)
        assert emulator.log.requests == 4
        assert emulator.log.last.json["options"] == {"rejectIfBusy": True}

    def test_gateway_is_used(self, reranker: Make, emulator: Emulator, call: Caller) -> None:
        call(reranker(gateway=GatewayOptions("gw")), "postprocess_nodes", nodes(), query_str=QUERY)
        assert emulator.log.last.headers["cf-aig-gateway-id"] == "gw"

    def test_the_error_of_a_missing_token_has_the_variable(self) -> None:
        from llama_index.postprocessor.workers_ai_rerank import WorkersAIRerank

        with pytest.raises(ConfigurationError, match="CLOUDFLARE_API_TOKEN"):
            WorkersAIRerank(account_id="0" * 32)

    @pytest.mark.parametrize("options", [{"top_n": 0}, {"topn": 3}, {"max_concurrency": 0}])
    def test_invalid_options_raise(self, reranker: Make, options: dict[str, Any]) -> None:
        with pytest.raises(ConfigurationError, match=r"top_n|max_concurrency"):
            reranker(**options)
