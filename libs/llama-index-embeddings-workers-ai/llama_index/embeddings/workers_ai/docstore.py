"""Roll back a document store after a failed run of an ingestion pipeline."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from llama_index.core.storage.docstore import BaseDocumentStore

__all__ = ["docstore_rollback"]


@contextmanager
def docstore_rollback(docstore: BaseDocumentStore) -> Iterator[None]:
    """Remove the documents that a failed run of a pipeline added to its document store.

    ::

        with docstore_rollback(pipeline.docstore):
            pipeline.run(documents=documents)

    With ``DocstoreStrategy.DUPLICATES_ONLY``, and in any pipeline with a document store but no vector store, LlamaIndex
    marks documents as processed before it transforms them. After a failure the next run silently skips them
    (https://github.com/run-llama/llama_index/issues/22638). ``UPSERTS`` with a vector store does not need this.
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
