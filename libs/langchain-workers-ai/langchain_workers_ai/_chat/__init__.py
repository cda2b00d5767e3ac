"""What the chat model needs besides translation: call options, model profiles, and the queue."""
