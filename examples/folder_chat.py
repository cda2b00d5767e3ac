"""Chat with a folder of texts; every answer lists its sources.

    folder_chat.py notes/

At the first start, the texts are embedded through the asynchronous queue. The vectors are stored in a ledger,
``notes/.folder-chat.ledger``. Later starts embed only new and changed texts.
"""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from pathlib import Path

from llama_index.core import Document, VectorStoreIndex
from llama_index.core.chat_engine.types import BaseChatEngine, ChatMode
from llama_index.core.ingestion import IngestionPipeline
from llama_index.core.memory import ChatMemoryBuffer
from llama_index.core.node_parser import TokenTextSplitter
from llama_index.core.schema import MetadataMode
from llama_index.embeddings.workers_ai import WorkersAIBatchEmbedding
from llama_index.llms.workers_ai import WorkersAI
from llama_index.postprocessor.workers_ai_rerank import WorkersAIRerank

from workers_ai.errors import WorkersAIError

CHAT_MODEL = "@cf/meta/llama-3.3-70b-instruct-fp8-fast"
EMBED_MODEL = "@cf/baai/bge-m3"
HISTORY_TOKENS = 4_000
SUFFIXES = {".md", ".rst", ".txt"}


def read_texts(folder: Path) -> Iterator[Document]:
    """Yield the text files of a folder and its subfolders."""
    for path in sorted(folder.rglob("*")):
        if path.suffix in SUFFIXES and path.is_file():
            source = path.relative_to(folder).as_posix()
            text = path.read_text(encoding="utf-8", errors="replace")
            yield Document(text=text, id_=source, metadata={"source": source})


def open_chat(folder: Path) -> BaseChatEngine:
    """Embed the folder and return a chat over it.

    Raises:
        ValueError: The folder has no text files.
        WorkersAIError: The texts cannot be embedded.
    """
    documents = list(read_texts(folder))
    if not documents:
        raise ValueError(f"{folder} has no {', '.join(sorted(SUFFIXES))} files")
    embedding = WorkersAIBatchEmbedding(model=EMBED_MODEL, ledger=folder / ".folder-chat.ledger")
    nodes = IngestionPipeline(transformations=[TokenTextSplitter(chunk_size=256), embedding]).run(documents=documents)
    return VectorStoreIndex(list(nodes), embed_model=embedding).as_chat_engine(
        chat_mode=ChatMode.CONDENSE_PLUS_CONTEXT,
        llm=WorkersAI(model=CHAT_MODEL, max_tokens=600, on_busy="retry"),
        memory=ChatMemoryBuffer.from_defaults(token_limit=HISTORY_TOKENS),
        similarity_top_k=10,
        node_postprocessors=[WorkersAIRerank(top_n=3)],
    )


async def answer(chat: BaseChatEngine, question: str) -> AsyncIterator[str]:
    """Yield the answer in pieces, then its sources, one per line."""
    response = await chat.astream_chat(question)
    async for piece in response.async_response_gen():
        yield piece
    yield "\n"
    for number, found in enumerate(response.source_nodes, 1):
        excerpt = " ".join(found.get_content(MetadataMode.NONE).split())
        yield f"  [{number}] {found.metadata['source']} ({found.score:.2f}): {excerpt:.70}\n"


async def show(chat: BaseChatEngine, question: str) -> None:
    """Print an answer. After an error of the service, the conversation can continue."""
    try:
        async for piece in answer(chat, question):
            print(piece, end="", flush=True)
    except WorkersAIError as error:
        print(f"error: {error}")


def main(folder: Path) -> None:
    """Answer questions from the terminal until the end of input or Ctrl-C."""
    chat = open_chat(folder)
    with asyncio.Runner() as runner, suppress(EOFError, KeyboardInterrupt):
        while True:
            if question := input("> ").strip():
                runner.run(show(chat, question))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="folder with .md, .rst and .txt files")
    main(**vars(parser.parse_args()))
