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

Ray repeats a whole block for one failed request, and pays for all of it again; so a busy service is waited for inside
the batch, and nothing is left for Ray to repeat.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

try:
    import numpy as np
except ImportError as exc:
    raise ImportError("workers_ai.ray needs NumPy, and Ray to run in: pip install 'workers-ai[ray]'") from exc

from workers_ai._connection import Connection
from workers_ai._engine_settings import bulk_settings, texts_per_request
from workers_ai.client import Client

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["WorkersAIEmbedder"]


class WorkersAIEmbedder:
    """A callable class that adds a column of vectors to each batch. Ray makes one object in each of its actors.

    One actor keeps ``max_concurrency`` requests in flight (8), and knows how much the service can take; several actors
    do not know of each other. Raise ``max_concurrency``, and ``batch_size`` with it, before the number of actors.

    Args:
        model: Model id.
        column: Column of texts.
        output: Column of vectors (float32).
        pooling: As in :meth:`workers_ai.Client.embed`, like the next three.
        truncate_inputs: Let the service cut texts that are too long.
        normalize: Scale each vector to length 1.
        empty_text: ``"raise"``, or ``"space"`` to embed one space in place of an empty text.
        **settings: Those of :class:`workers_ai.Client`; unless given, ``max_retries`` is 10 and ``on_busy`` is
            ``"retry"``. A token in the environment must be in the environment of Ray's workers.

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
        **settings: Any,
    ) -> None:
        texts_per_request(model)
        self._client = Client._of(Connection.open(bulk_settings("WorkersAIEmbedder", settings)))
        self._model = model
        self._column = column
        self._output = output
        self._options: dict[str, Any] = {
            "pooling": pooling,
            "truncate_inputs": truncate_inputs,
            "normalize": normalize,
            "empty_text": empty_text,
        }

    def __call__(self, batch: dict[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
        """Add the vectors of one batch.

        Raises:
            BadRequestError: A text is empty, null or too long; its place in the batch is named.
            WorkersAIError: See :mod:`workers_ai.errors`.
        """
        reply = self._client.embed(self._model, batch[self._column].tolist(), **self._options)
        return {**batch, self._output: np.asarray(reply.vectors, dtype=np.float32)}
