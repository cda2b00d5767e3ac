"""No file contains paths of one machine, hosts of package registries, or secrets."""

from __future__ import annotations

import re
from pathlib import Path

from repository import ROOT, tracked
from tests.support import every_row

BINARY = {".png", ".parquet"}
TEXTS = [path for path in tracked() if path.suffix not in BINARY]

# Split, so that this file does not contain them.
FORBIDDEN = {
    "a path of one machine": r"(?<![\w.])/(?:wor" r"k|far" r"m|roo" r"t|hom" r"e|User" r"s)/\w",
    "a temporary path": r"(?<![\w.])/tm" r"p/[a-z]",
    "the host of a package registry": r"py" r"pi\.org|pythonhost" r"ed|npmj" r"s\.(?:org|com)|deb\.debi" r"an",
    "a word for papers": r"(?i)\bdoss" r"ier",
}
SECRET = {
    "a bearer token": r"(?i)bearer (?!TOKEN\b)[\w.-]{8,}",
    "an id of 32 or 40 digits": r"\b(?!0+\b)(?:[0-9a-f]{40}|[0-9a-f]{32})\b",
    "a token of Cloudflare's form": r"(?<![\w/-])(?=[\w-]*[a-z])(?=[\w-]*[A-Z])(?=[\w-]*[0-9])[\w-]{40}(?![\w/-])",
    "an id that is not a placeholder": r"\b(?!00000000-0000-4000-8000-)[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b",
}


def found(patterns: dict[str, str], paths: list[Path]) -> list[str]:
    """Return file, kind and text of each match in the files."""
    return [
        f"{path.relative_to(ROOT)}: {kind}: {match.group()}"
        for path in paths
        for text in [path.read_text(encoding="utf-8")]
        for kind, pattern in patterns.items()
        for match in re.finditer(pattern, text)
    ]


def test_no_file_contains_a_forbidden_text() -> None:
    assert found(FORBIDDEN, TEXTS) == []


def test_no_cassette_contains_a_secret() -> None:
    cassettes = sorted((ROOT / "cassettes").rglob("*.yaml"))
    assert cassettes
    assert found(SECRET, cassettes) == []


@every_row(
    ("name", "text"),
    [
        ("a bearer token", "authorization: Bearer abcdefgh12345678"),
        ("an id of 32 or 40 digits", "accounts/0123456789abcdef0123456789abcdef/ai"),
        ("a token of Cloudflare's form", "token: v1Abcdefghijklmnopqrstuvwxyz-ABCDEFG_789"),
        ("an id that is not a placeholder", "9b2f6c1e-53a7-4d0c-8a64-7e1c90d3f5ab"),
    ],
)
def test_the_patterns_find_secrets(name: str, text: str) -> None:
    assert re.search(SECRET[name], text)
