"""Warn about pages that load something from another host."""

from __future__ import annotations

import logging
import re

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.pages import Page

LOADED = re.compile(
    r"""<(?:script|img|iframe|source|video|audio)\b[^>]*\bsrc=["'](?:https?:)?//[^"']*"""
    r"""|<link\b(?=[^>]*\brel=["'](?:stylesheet|preload|preconnect|icon))[^>]*\bhref=["'](?:https?:)?//[^"']*"""
)
log = logging.getLogger("mkdocs.hooks.offline")


def on_post_page(output: str, page: Page, config: MkDocsConfig) -> str:
    """Check the HTML of a page."""
    for found in LOADED.findall(output):
        log.warning("%s loads from another host: %s", page.file.src_uri, found)
    return output
