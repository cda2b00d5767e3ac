"""The steps of each call: requests with retries, streams, embeddings, reranking, and the asynchronous queue."""
