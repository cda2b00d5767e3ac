"""Keep a vector store up to date with a folder, every night, through the asynchronous queue.

    nightly_ingestion.py notes/ index/              # from cron: 0 2 * * *

New and changed texts are embedded, and the vectors of deleted files are removed. Unchanged texts cost nothing. If a run
is killed, or stops at its deadline or cost limit, the next run continues from the ledger.

Exit status: 0 done, 3 some chunks failed and are listed, 75 stopped early, run again.
"""

from __future__ import annotations

import argparse
import logging
import sys
from collections.abc import Iterator
from pathlib import Path

from langchain_chroma import Chroma
from langchain_classic.indexes import SQLRecordManager
from langchain_core.documents import Document
from langchain_text_splitters import RecursiveCharacterTextSplitter

from langchain_workers_ai import BatchError, QuotaExhaustedError, WorkersAIBatchIngestor, WorkersAIEmbeddings

MODEL = "@cf/baai/bge-m3"
SUFFIXES = {".md", ".rst", ".txt"}
DEADLINE_S = 4 * 3600
LIMIT_COST_USD = 1.0
DONE, SOME_FAILED, RUN_AGAIN = 0, 3, 75

log = logging.getLogger("nightly_ingestion")


def chunks(folder: Path) -> Iterator[Document]:
    """Yield the chunks of every text file. Their ids are the file and the number of the chunk."""
    splitter = RecursiveCharacterTextSplitter(chunk_size=1_500, chunk_overlap=150)
    for path in sorted(folder.rglob("*")):
        if path.suffix in SUFFIXES and path.is_file():
            source = path.relative_to(folder).as_posix()
            text = path.read_text(encoding="utf-8", errors="replace")
            for number, chunk in enumerate(splitter.split_text(text)):
                yield Document(chunk, id=f"{source}#{number}", metadata={"source": source})


def open_store(index: Path, embeddings: WorkersAIEmbeddings) -> Chroma:
    """Return the vector store in a folder. Programs that search use it, too."""
    return Chroma("corpus", embeddings, persist_directory=str(index / "chroma"))


def main(folder: Path, index: Path) -> int:
    """Update the store to match the folder. Return the exit status."""
    index.mkdir(parents=True, exist_ok=True)
    embeddings = WorkersAIEmbeddings(model=MODEL)
    records = SQLRecordManager("corpus", db_url=f"sqlite:///{index / 'records.sqlite3'}")
    records.create_schema()
    ingestor = WorkersAIBatchIngestor(
        embeddings,
        open_store(index, embeddings),
        ledger=index / "ledger.sqlite3",
        record_manager=records,
        deadline_s=DEADLINE_S,
        limit_cost_usd=LIMIT_COST_USD,
        progress=False,
    )
    try:
        report = ingestor.ingest(chunks(folder), cleanup="full", source_id_key="source")
    except (BatchError, QuotaExhaustedError) as error:  # deadline, cost limit or daily allocation
        log.warning("stopped early, run again: %s", error)
        return RUN_AGAIN
    finally:
        records.engine.dispose()
    log.info("%s", report)
    return SOME_FAILED if report.failed else DONE


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    logging.getLogger("httpx").setLevel(logging.WARNING)
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="folder with .md, .rst and .txt files")
    parser.add_argument("index", type=Path, help="folder for the vector store and the ledger")
    sys.exit(main(**vars(parser.parse_args())))
