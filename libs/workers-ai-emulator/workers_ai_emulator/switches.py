"""Open questions of the service as switches: behaviour that was never recorded, and its possible values.

One switch is one question, one field of :class:`Settings` or :class:`QueueSettings`, and one line of the README's
table "What was never seen live".
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Protocol

if TYPE_CHECKING:
    from workers_ai_emulator.settings import Settings
    from workers_ai_emulator.state.queue import Queue, QueueSettings

Holder = Literal["settings", "queue"]
Position = str | int | bool | None


class SwitchHolder(Protocol):
    """An object with the fields of all switches: an :class:`Emulator`."""

    @property
    def settings(self) -> Settings:
        """Return the settings of the service."""
        ...

    @property
    def queue(self) -> Queue:
        """Return the asynchronous queue."""
        ...


@dataclass(frozen=True, slots=True)
class Switch:
    """One open question.

    Attributes:
        name: Name of the field.
        question: The unknown behaviour.
        positions: Values of the field. The first value is the default.
        holder: Object with the field: ``Emulator.settings`` or ``Emulator.queue.settings``.
    """

    name: str
    question: str
    positions: tuple[Position, ...]
    holder: Holder = "settings"

    @property
    def default(self) -> Position:
        """Return the default position."""
        return self.positions[0]

    def get(self, emulator: SwitchHolder) -> object:
        """Return the current position."""
        return getattr(self._target(emulator), self.name)

    def set(self, emulator: SwitchHolder, position: object) -> None:
        """Set the position.

        Raises:
            ValueError: If the position is not one of ``positions``.
        """
        if position not in self.positions:
            raise ValueError(f"{self.name} has no position {position!r}; choose one of {list(self.positions)}")
        setattr(self._target(emulator), self.name, position)

    def _target(self, emulator: SwitchHolder) -> Settings | QueueSettings:
        return emulator.settings if self.holder == "settings" else emulator.queue.settings


SWITCHES: tuple[Switch, ...] = (
    Switch("submit_status", "HTTP status of an accepted submission", (200, 202), "queue"),
    Switch("pending_status", "HTTP status of a poll before the end", (200, 202), "queue"),
    Switch("unknown_status", "HTTP status of an unknown request id (5504)", (404, 400), "queue"),
    Switch("results_for", "models besides Kimi that return batches under `results`", ("openai", "kimi"), "queue"),
    Switch("results_reference", "`external_reference` in the items of `results`", (False, True), "queue"),
    Switch("error_key", "key of the error in a failed item", ("error", "errors", ""), "queue"),
    Switch("unsupported_code", "code of a submission to a model without the queue", (8007, 5006, 10063), "queue"),
    Switch("hybrid_items", "form of llama-3.3-70b's items in a finished batch", ("hybrid", "native"), "queue"),
    Switch("hybrid_messages", "`messages` in queue items of llama-3.3-70b", ("accept", "reject"), "queue"),
    Switch("item_formats", "`response_format` of a queue item", ("fill", "ignore"), "queue"),
    Switch("bad_item", "effect of an invalid item in a submission", ("item", "submission"), "queue"),
    Switch("v1_native_usage", "trailing native usage event on `/ai/v1`", (False, True)),
    Switch("v1_padding", "padding `p` on `/ai/v1`", (True, False)),
    Switch("v1_usage_unasked", "usage in streams on `/ai/v1` without `stream_options`", ("each", "last", "none")),
    Switch("v1_legacy_chunks", "bare chunks of older models on `/ai/v1`", (False, True)),
    Switch("v1_base64", "`encoding_format: base64` on `/ai/v1/embeddings`", (False, True)),
    Switch("v1_dimensions", "`dimensions` on `/ai/v1/embeddings`", ("ignore", "cut", "reject")),
    Switch("hybrid_tool_calls", "place of the tool calls of llama-3.3-70b", ("both", "choices", "top")),
    Switch("glm_required", '`tool_choice: "required"` on glm-4.7-flash', ("reject", "accept")),
    Switch("json_mode_status", 'HTTP status of "JSON Mode couldn\'t be met"', (400, 422, 500, 200)),
    Switch("json_mode_code", 'code of "JSON Mode couldn\'t be met"', (5024, None)),
    Switch("schema_forms", "JSON schema bare on `/ai/v1`, in an envelope on `/ai/run`", ("both", "own")),
    Switch("unsupported_tools", "tools for a model without tool support", ("ignore", "reject")),
    Switch("long_texts", "bge-*-en texts above 512 tokens", ("cut", "reject")),
    Switch("too_many_texts_code", "code of more than 100 texts", (5006, 3030)),
    Switch("unit_vectors", "unit length of vectors", (True, False)),
    Switch("rerank_scores", "scores of the reranker", ("sigmoid", "raw")),
    Switch("contexts_key", "key of bge-m3's vectors of `contexts`", ("response", "data")),
    Switch("responses_stream", "`stream: true` on the Responses route", ("reject", "whole")),
    Switch("shared_run_gateway", "`POST /ai/run` without the gateway header", ("reject", "accept")),
)
"""All switches, in the order of the README's table."""
