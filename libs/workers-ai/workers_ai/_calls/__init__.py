"""Flows of calls: requests, streaming, embeddings through the queue, polling."""
