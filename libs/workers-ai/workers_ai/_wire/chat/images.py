"""Convert images to data: URLs. A missing media type is detected from the first bytes."""

from __future__ import annotations

import base64
import re
from typing import Final

__all__ = ["image_data_url"]

_DATA_URL: Final = re.compile(r"data:([^;,]*)(?:;[^;,]*)*;base64,", re.IGNORECASE)
_UNMARKED: Final = ("", "none", "application/octet-stream", "binary/octet-stream")
_BASE64: Final = re.compile(r"[A-Za-z0-9+/]+={0,2}")
_TO_STANDARD_BASE64: Final = str.maketrans("-_", "+/")
_SIGNATURE_CHARACTERS: Final = 24
"""Number of leading base64 characters that contain the signature of every format below."""
_SIGNATURES: Final = {
    "image/png": re.compile(rb"\x89PNG"),
    "image/jpeg": re.compile(rb"\xff\xd8\xff"),
    "image/gif": re.compile(rb"GIF8[79]a"),
    "image/webp": re.compile(rb"RIFF.{4}WEBP", re.DOTALL),
}


def image_data_url(url: str) -> str | None:
    """Return the data: URL of an image; None if the content is not a known image.

    In bare base64, and in a data: URL without a specific media type, the first bytes identify the format: PNG, JPEG,
    GIF or WebP.
    """
    if url[:11].lower().startswith("data:image/"):
        return url
    head = _DATA_URL.match(url)
    if head and head[1].lower() not in _UNMARKED:
        return None
    data = "".join(url[head.end() if head else 0 :].split()).translate(_TO_STANDARD_BASE64)
    kind = _media_type(data)
    return f"data:{kind};base64,{data}" if kind else None


def _media_type(data: str) -> str | None:
    """Return the media type of an image in base64; None for other content."""
    if not _BASE64.fullmatch(data):
        return None
    first = data[:_SIGNATURE_CHARACTERS].rstrip("=")
    try:
        head = base64.b64decode(first + "=" * (-len(first) % 4))
    except ValueError:
        return None
    return next((kind for kind, signature in _SIGNATURES.items() if signature.match(head)), None)
