"""State and rules of the service: what it remembers and decides. No HTTP here."""
