"""Call options, model profiles, and the queue of the chat model."""
