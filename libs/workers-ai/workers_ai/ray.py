"""Workers AI in Ray Data, for ``Dataset.map_batches`` (https://docs.ray.io/en/latest/data/transforming-data.html).

::

    import ray
    from workers_ai.ray import WorkersAIEmbedder

    vectors = ray.data.read_parquet("docs.parquet").map_batches(
        WorkersAIEmbedder,
        fn_constructor_kwargs={"model": "@cf/baai/bge-m3"},
        batch_size=800,
        compute=ray.data.ActorPoolStrategy(size=1),
    )

If a request fails, Ray repeats a whole block, and you pay for it again. So all retries happen inside the batch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, Unpack

try:
    import numpy as np
except ImportError as exc:
    raise ImportError("workers_ai.ray requires NumPy and Ray: pip install 'workers-ai[ray]'") from exc

from workers_ai._connection import Connection
from workers_ai._engine_settings import bulk_settings, texts_per_request
from workers_ai.client import Client
from workers_ai.generation._ray import WorkersAIGenerator

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from workers_ai import EmbedKeywords, RetryPolicy, SettingKeywords

__all__ = ["WorkersAIEmbedder", "WorkersAIGenerator"]


class WorkersAIEmbedder:
    """A callable class that adds a column of vectors to each batch. Ray creates one object in each actor.

    One actor keeps ``max_concurrency`` (8) requests in flight and limits them to the capacity of the service. Actors do
    not share a limiter. Raise ``max_concurrency``, and ``batch_size`` with it, before the number of actors.

    Args:
        model: Model id.
        column: Column of texts.
        output: Column of vectors (float32).
        pooling: Pooling of the bge family: ``"mean"`` or ``"cls"``; None for the service's default, ``"mean"``.
        truncate_inputs: Let the service truncate long texts.
        normalize: Scale each vector to length 1.
        empty_text: ``"raise"``, or ``"space"`` to embed one space for an empty text.
        retry: The retry policy; the default follows ``max_retries``.
        **settings: Settings of :class:`workers_ai.Client`. Defaults: ``max_retries`` 10, ``on_busy`` ``"retry"``. A
            token from the environment must be in the environment of Ray's workers.

    Raises:
        ConfigurationError: A setting is missing or malformed.
    """

    def __init__(
        self,
        model: str,
        *,
        column: str = "text",
        output: str = "vector",
        pooling: Literal["mean", "cls"] | None = None,
        truncate_inputs: bool | None = None,
        normalize: bool = False,
        empty_text: Literal["raise", "space"] = "raise",
        retry: RetryPolicy | None = None,
        **settings: Unpack[SettingKeywords],
    ) -> None:
        texts_per_request(model)
        self._client = Client._of(Connection.open(bulk_settings("WorkersAIEmbedder", settings), retry=retry))
        self._model = model
        self._column = column
        self._output = output
        self._options: EmbedKeywords = {
            "pooling": pooling,
            "truncate_inputs": truncate_inputs,
            "normalize": normalize,
            "empty_text": empty_text,
        }

    def __call__(self, batch: dict[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
        """Add the vectors of one batch.

        Raises:
            BadRequestError: A text is empty, null or too long. The message has its index in the batch.
            WorkersAIError: See :mod:`workers_ai.errors`.
        """
        reply = self._client.embed(self._model, batch[self._column].tolist(), **self._options)
        return {**batch, self._output: np.asarray(reply.vectors, dtype=np.float32)}
