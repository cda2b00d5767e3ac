"""The command ``workers-ai``: ``ingest``, ``jobs``, ``models``, ``probe`` and ``demo``."""

from workers_ai.cli._app import app, main

__all__ = ["app", "main"]
