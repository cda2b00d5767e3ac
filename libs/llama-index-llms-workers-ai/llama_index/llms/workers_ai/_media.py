"""Translate images and documents of LlamaIndex to parts of a message. The type is detected from the first bytes."""

from __future__ import annotations

import base64
import re
from typing import TYPE_CHECKING
from urllib.parse import unquote_to_bytes

from llama_index.core.base.llms.types import DocumentBlock, ImageBlock

from workers_ai.errors import BadRequestError

if TYPE_CHECKING:
    from workers_ai.types import JSON

__all__ = ["document_part", "image_part"]

_BASE64 = re.compile(rb"[A-Za-z0-9+/_-]+={0,2}")


def image_part(block: ImageBlock) -> dict[str, JSON]:
    """Return an image as a part with a data URL. A link is returned unchanged, and the core rejects it.

    Raises:
        BadRequestError: The image cannot be read, or its media type is unknown.
    """
    link = str(block.url or "")
    if link and not block.image and not block.path:
        if link[:5].lower() != "data:":
            return {"type": "image_url", "image_url": {"url": link}}
        data = link.encode()
    else:
        data = _read(block)
    data, stated = _decode(data)
    kind = _image_type(data) or block.image_mimetype or stated or ""
    if not kind.lower().startswith("image/"):
        raise BadRequestError(
            f"an ImageBlock contains {kind or 'data of unknown type'}: "
            "pass an image, or set its type with image_mimetype='image/...'"
        )
    image: dict[str, JSON] = {"url": _data_url(kind, data)}
    if block.detail:
        image["detail"] = block.detail
    return {"type": "image_url", "image_url": image}


def document_part(block: DocumentBlock) -> dict[str, JSON]:
    """Return a text document as text, and an image as an image. The core rejects other types of documents.

    Raises:
        BadRequestError: The document cannot be read.
    """
    if block.url and not block.data and not block.path:
        return {"type": block.block_type}
    data = _read(block)
    if kind := _image_type(data):
        return {"type": "image_url", "image_url": {"url": _data_url(kind, data)}}
    if DocumentBlock(data=data).document_mimetype is None:
        try:
            return {"type": "text", "text": data.decode()}
        except UnicodeDecodeError:
            pass
    return {"type": block.block_type}


def _read(block: ImageBlock | DocumentBlock) -> bytes:
    try:
        source = block.resolve_image() if isinstance(block, ImageBlock) else block.resolve_document()
        data: bytes = source.read()
    except (OSError, ValueError) as exc:
        kind = type(block).__name__
        raise BadRequestError(f"the content of a {kind} cannot be read ({exc}): check its path, url or data") from exc
    return data


def _decode(data: bytes) -> tuple[bytes, str]:
    """Decode a data URL or base64. Return the bytes and the stated media type; return other bytes unchanged."""
    if data[:5].lower() == b"data:":
        head, _, encoded = data[5:].partition(b",")
        stated = head.partition(b";")[0].decode("ascii", "replace")
        if not head.lower().endswith(b";base64"):
            return unquote_to_bytes(encoded), stated
        if (found := _from_base64(encoded)) is None:
            raise BadRequestError("the data URL of an ImageBlock is not valid base64: encode the bytes of the image")
        return found, stated
    if not _image_type(data) and (found := _from_base64(data)) and _image_type(found):
        return found, ""
    return data, ""


def _from_base64(data: bytes) -> bytes | None:
    packed = b"".join(data.split())
    if not _BASE64.fullmatch(packed):
        return None
    bare = packed.rstrip(b"=")
    try:
        return base64.b64decode(bare + b"=" * (-len(bare) % 4), altchars=b"-_")
    except ValueError:
        return None


def _image_type(data: bytes) -> str | None:
    kind = ImageBlock(image=data).image_mimetype if data else None  # detected from the first bytes
    return kind if kind and kind.startswith("image/") else None


def _data_url(kind: str, data: bytes) -> str:
    return f"data:{kind};base64,{base64.b64encode(data).decode()}"
