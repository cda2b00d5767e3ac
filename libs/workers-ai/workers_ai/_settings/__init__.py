"""Settings of a client: credentials, URLs, AI Gateway."""
