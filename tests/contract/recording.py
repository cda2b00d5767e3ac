"""Cassettes: the format of a recorded exchange, and the removal of secrets.

A cassette is YAML with bodies that a reviewer can read: ``json`` for JSON, ``text`` for everything else. Secrets, the
account and ids are replaced before anything is written, and before a request is matched, so a cassette replays with
any account. Headers of a list are kept. A reply of the emulator is rejected, because it is no evidence for the service.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any, Final

import httpx
import vcr
import yaml

from workers_ai.cli._probe.cassettes import KEPT_HEADERS, Scrub

__all__ = [
    "ACCOUNT",
    "CASSETTES",
    "EmulatedReplyError",
    "describe",
    "find_problems",
    "not_in_the_cassette",
    "use_cassette",
]

CASSETTES: Final = Path(__file__).parents[2] / "cassettes"
ACCOUNT: Final = "ACCOUNT"
"""Stands for the account id, in paths and in texts."""
EMULATOR_HEADER: Final = "x-workers-ai-emulator"

KEPT_OF_REQUEST: Final = frozenset({"content-type", "x-session-affinity", "cf-aig-gateway-id"})

_ACCOUNT_IN_PATH = re.compile(r"(?<=/accounts/)[^/\s\",?]+")


def _read(text: str) -> Any:
    """Parse YAML with libyaml if PyYAML has it. It is ten times as fast."""
    return yaml.load(text, getattr(yaml, "CSafeLoader", yaml.SafeLoader))


class EmulatedReplyError(Exception):
    """A recording contains a reply of the emulator."""


class Filter:
    """Remove secrets and ids from requests and replies.

    Args:
        secrets: Texts to replace, each with its substitute.
    """

    def __init__(self, secrets: dict[str, str] | None = None) -> None:
        self._secrets = {secret: name for secret, name in (secrets or {}).items() if secret}
        self._scrub = Scrub(self._replace_secrets)

    def _replace_secrets(self, text: str) -> str:
        for secret, name in self._secrets.items():
            text = text.replace(secret, name)
        return _ACCOUNT_IN_PATH.sub(ACCOUNT, text)

    def request(self, request: Any) -> Any:
        """Return the recorded part of a request, which is also used to match it."""
        body = request.body.decode() if request.body else None
        headers = {name: request.headers[name] for name in request.headers if name.lower() in KEPT_OF_REQUEST}
        text = self._scrub.text
        return type(request)(request.method, text(request.uri), body and text(body), headers)

    def response(self, response: dict[str, Any]) -> dict[str, Any]:
        """Return the recorded part of a reply.

        Raises:
            EmulatedReplyError: The emulator sent the reply.
        """
        headers = {name.lower(): values for name, values in response["headers"].items()}
        if EMULATOR_HEADER in headers:
            raise EmulatedReplyError("this is a reply of the emulator; only the real service is recorded")
        kept = {
            name: [self._scrub.header(name, value) for value in values]
            for name, values in headers.items()
            if name in KEPT_HEADERS
        }
        body = self._scrub.text(response["body"]["string"].decode()).encode()
        return {"status": response["status"], "headers": kept, "body": {"string": body}}


class Readable:
    """VCR's serializer of cassettes."""

    @staticmethod
    def deserialize(text: str) -> Any:
        """Return a cassette in VCR's form."""
        data = _read(text)
        for interaction in data["interactions"]:
            interaction["request"]["body"] = _packed(interaction["request"]["body"])
            interaction["response"]["body"] = {"string": _packed(interaction["response"]["body"]) or ""}
        return data

    @staticmethod
    def serialize(data: dict[str, Any]) -> str:
        """Return a cassette as text."""
        for interaction in data["interactions"]:
            interaction["request"]["body"] = _unpacked(interaction["request"]["body"])
            interaction["response"]["body"] = _unpacked(interaction["response"]["body"]["string"])
        return yaml.dump(data, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=120)


class _Dumper(yaml.SafeDumper):
    """Write texts of several lines as block scalars."""


_Dumper.add_representer(
    str,
    lambda dumper, text: dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None),
)


def _packed(body: dict[str, Any] | None) -> str | None:
    if body is None:
        return None
    return body["text"] if "text" in body else json.dumps(body["json"])


def _unpacked(body: Any) -> dict[str, Any] | None:
    if not body:
        return None
    text = body if isinstance(body, str) else body.decode()
    try:
        return {"json": json.loads(text)}
    except ValueError:
        return {"text": text}


def _same_body(left: Any, right: Any) -> None:
    bodies = [json.loads(one.body) if one.body else None for one in (left, right)]
    assert bodies[0] == bodies[1], f"sent {bodies[0]}, and the cassette has {bodies[1]}"


def _documented_headers(sent: Any, documented: Any) -> None:
    """Fail if a header of the cassette is not sent. Other headers are not compared."""
    got = {name.lower(): value for name, value in sent.headers.items()}
    missing = {name: value for name, value in documented.headers.items() if got.get(name.lower()) != value}
    assert not missing, f"sent {got}, and the cassette documents {missing}"


def use_cassette(path: Path, *, record: bool = False, secrets: dict[str, str] | None = None) -> Any:
    """Return a context in which httpx uses the cassette.

    Args:
        path: The file.
        record: Send requests to the service, and write the file again.
        secrets: Additional texts to replace, each with its substitute.

    Raises:
        EmulatedReplyError: While recording: the reply is from the emulator.
        CannotOverwriteExistingCassetteException: On replay: this request is not in the cassette.
    """
    kept = Filter(secrets)
    recorder = vcr.VCR(
        record_mode=vcr.mode.ALL if record else vcr.mode.NONE,
        before_record_request=kept.request,
        before_record_response=kept.response,
        match_on=["method", "uri", "same_body", "documented_headers"],
    )
    recorder.register_serializer("readable", Readable)
    recorder.register_matcher("same_body", _same_body)
    recorder.register_matcher("documented_headers", _documented_headers)
    return recorder.use_cassette(str(path), serializer="readable")


def describe(path: Path) -> dict[str, Any]:
    """Return the complete content of a cassette."""
    content: dict[str, Any] = _read(path.read_text(encoding="utf-8"))
    return content


def find_problems(path: Path) -> list[str]:
    """Return why a file is not a recording of the service: no header of Cloudflare's edge, or unlisted headers."""
    found = []
    for interaction in describe(path)["interactions"]:
        headers = set(interaction["response"]["headers"])
        found += [f"{path.stem}: no cf-ray"] if "cf-ray" not in headers else []
        found += [f"{path.stem}: {name} is not kept" for name in sorted(headers - KEPT_HEADERS)]
    return found


def not_in_the_cassette(request: httpx.Request) -> httpx.Response:
    """Fail on a request that is not in the cassette."""
    raise AssertionError(f"{request.method} {request.url} went past the cassette")
