"""Cached prompt prefixes.

``x-session-affinity`` pins a session to an instance. Cached tokens come in blocks; short prompts are not cached
(https://developers.cloudflare.com/workers-ai/features/prompt-caching/). The block size is not published.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from workers_ai_emulator.rules.tokens import count_tokens

if TYPE_CHECKING:
    from workers_ai_emulator.settings import Settings

BLOCK_TOKENS = 64
_MAX_SESSIONS = 1_000


class Prefixes:
    """The last prompt of each session and model."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._lock = threading.Lock()
        self._prompts: dict[tuple[str, str], str] = {}

    def cached_tokens(self, session: str, model: str, prompt: str) -> int:
        """Return the cached tokens of ``prompt``, and store it for the next request."""
        if not session or not self._settings.prefix_cache:
            return 0
        with self._lock:
            before = self._prompts.get((session, model), "")
            self._prompts[(session, model)] = prompt
            while len(self._prompts) > _MAX_SESSIONS:
                del self._prompts[next(iter(self._prompts))]
        same = next((at for at, (one, two) in enumerate(zip(before, prompt, strict=False)) if one != two), None)
        common = prompt[: len(before) if same is None else same]
        return count_tokens(common) // BLOCK_TOKENS * BLOCK_TOKENS
