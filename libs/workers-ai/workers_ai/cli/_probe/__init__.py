"""``workers-ai probe``: ask a real account the questions that only the service can answer."""
