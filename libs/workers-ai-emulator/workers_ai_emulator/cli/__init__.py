"""The command ``workers-ai-emulator``; only this package prints."""

from workers_ai_emulator.cli.command import main

__all__ = ["main"]
