"""What a call does: requests, streaming, embeddings through the queue, polling."""
