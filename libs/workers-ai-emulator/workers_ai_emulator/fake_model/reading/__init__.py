"""Read a request: its question, context, topics, words and arithmetic."""
