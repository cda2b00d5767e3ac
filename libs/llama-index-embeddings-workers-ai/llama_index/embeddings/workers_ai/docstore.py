"""What a failed run of an ingestion pipeline leaves in its document store, taken back."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from llama_index.core.storage.docstore import BaseDocumentStore

__all__ = ["docstore_rollback"]


@contextmanager
def docstore_rollback(docstore: BaseDocumentStore) -> Iterator[None]:
    """Let a document store forget what a run of a pipeline that fails has noted as done.

    ::

        with docstore_rollback(pipeline.docstore):
            pipeline.run(documents=documents)

    With ``DocstoreStrategy.DUPLICATES_ONLY``, and wherever a pipeline has a document store but no vector store,
    LlamaIndex notes documents as done before they are transformed; after a failure the next run would pass over them
    in silence (https://github.com/run-llama/llama_index/issues/22638). ``UPSERTS`` with a vector store needs no such
    help.
    """
    before = _hashes(docstore)
    try:
        yield
    except BaseException:
        for doc_id, doc_hash in _hashes(docstore).items():
            if doc_id not in before:
                docstore.delete_document(doc_id, raise_error=False)
            elif before[doc_id] != doc_hash:
                docstore.set_document_hash(doc_id, before[doc_id])
        raise


def _hashes(docstore: BaseDocumentStore) -> dict[str, str]:
    return {doc_id: doc_hash for doc_hash, doc_id in docstore.get_all_document_hashes().items()}
