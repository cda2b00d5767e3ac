"""The command ``workers-ai-emulator``; the only part that prints."""

from workers_ai_emulator.cli.command import main

__all__ = ["main"]
