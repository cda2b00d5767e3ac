"""Decision models (Clef): typed questions about a state, answered with probabilities.

Schema: https://developers.cloudflare.com/workers-ai/models/clef-omni/. The emulator computes probabilities from common
words of state and question.
"""

from __future__ import annotations

import base64
import json
import math
import re
from typing import TYPE_CHECKING

from workers_ai_emulator.rules.vectors import relevance
from workers_ai_emulator.wire import ServiceError

if TYPE_CHECKING:
    from workers_ai_emulator.catalogue import Model
    from workers_ai_emulator.wire import Json

_ID = re.compile(r"[A-Za-z0-9_.-]{1,100}\Z")
_REQUIRED = "required properties at '/' are 'model,state,questions'"
_SHARPNESS = 6.0
_LIMITS = {"images": 4, "audio": 4, "videos": 2}


def check_decision(model: Model, body: Json) -> None:
    """Check a body against the schema of decision models.

    Raises:
        ServiceError: 5006, with the path of the field.
    """
    own_name = model.id.rsplit("/", 1)[-1]
    if not {"model", "state", "questions"} <= set(body):
        raise _mismatch(_REQUIRED)
    if str(body["model"]).strip() != own_name:
        raise _mismatch(f"'/model' must be '{own_name}'")
    questions = body.get("questions")
    if not isinstance(questions, dict) or not 1 <= len(questions) <= 64:
        raise _mismatch("'/questions' must have 1 to 64 properties")
    for name, question in questions.items():
        _check_question(f"/questions/{name}", name, question)
    for key, limit in _LIMITS.items():
        media = body.get(key, [])
        if key != "images" and media and own_name != "clef-omni":
            raise _mismatch(f"additional property '/{key}'")
        if len(media) > limit:
            raise _mismatch(f"'/{key}' must be at most {limit} embedded files")
        if not all(_is_payload(item) for item in media):
            raise _invalid({key: [f"{key.removesuffix('s')} payload is invalid"]})


def _is_payload(item: object) -> bool:
    """Return whether an item is an embedded file: a data URL, or an object that contains a data URL."""
    if isinstance(item, dict):
        return any(_is_payload(value) for value in item.values())
    head, _, data = item.partition(",") if isinstance(item, str) else ("", "", "")
    if not head.lower().startswith("data:") or not data:
        return False
    try:
        base64.b64decode(data, validate=True)
    except ValueError:
        return False
    return True


def decide(body: Json) -> Json:
    """Return the answers to checked questions, by question id."""
    state = body["state"] if isinstance(body["state"], str) else json.dumps(body["state"], ensure_ascii=False)
    return {name: _answer(state, question) for name, question in body["questions"].items()}


def _check_question(place: str, name: str, question: object) -> None:
    if not _ID.match(name) or not isinstance(question, dict) or not question.get("instructions"):
        raise _mismatch(f"required properties at '{place}' are 'type,instructions'")
    criteria = question.get("criteria")
    fits = {
        "noul": criteria is None or isinstance(criteria, dict),
        "choice": isinstance(criteria, dict) and 2 <= len(criteria) <= 255,
        "score": isinstance(criteria, list) and 2 <= len(criteria) <= 10,
    }
    if question.get("type") == "choice" and isinstance(criteria, dict) and all("/" in key for key in criteria):
        raise _mismatch(_REQUIRED)  # recorded: the same text as for missing properties
    if not fits.get(str(question.get("type")), False):
        raise _mismatch(f"'{place}' must be of type 'noul', 'choice' or 'score'")


def _answer(state: str, question: Json) -> Json:
    instructions = _text(question["instructions"])
    if question["type"] == "noul":
        criteria = question.get("criteria") or {}
        yes, no = f"{instructions} {_text(criteria.get('true'))}", _text(criteria.get("false"))
        chances = _softmax([relevance(yes, state), relevance(no, state) if no else 0.3])
        return {"type": "noul", "noul": chances[0]}
    if question["type"] == "choice":
        names = list(question["criteria"])
        shares = _softmax([relevance(f"{name} {_text(question['criteria'][name])}", state) for name in names])
        best = names[shares.index(max(shares))]
        return {"type": "choice", "choice": best} | _spread(dict(zip(names, shares, strict=True)))
    levels = question["criteria"]
    shares = _softmax([relevance(_text(level), state) for level in levels])
    score = round(sum(index * share for index, share in enumerate(shares)), 6)
    legend = {str(index): level for index, level in enumerate(levels)}
    probabilities = {str(index): share for index, share in enumerate(shares)}
    return {"type": "score", "score": score, "legend": legend} | _spread(probabilities)


def _spread(probabilities: dict[str, float]) -> Json:
    """Return probabilities and their confidence: (Σp² - 1/n) / (1 - 1/n)."""
    even = 1 / len(probabilities)
    squares = sum(share**2 for share in probabilities.values())
    return {"probabilities": probabilities, "confidence": round((squares - even) / (1 - even), 6)}


def _softmax(values: list[float]) -> list[float]:
    powers = [math.exp(_SHARPNESS * value) for value in values]
    shares = [round(power / sum(powers), 6) for power in powers]
    shares[0] = round(1.0 - sum(shares[1:]), 6)
    return shares


def _text(value: object) -> str:
    return value if isinstance(value, str) else "" if value is None else json.dumps(value, ensure_ascii=False)


def _invalid(fields: dict[str, list[str]]) -> ServiceError:
    """Return the error for an unreadable field; its text is JSON."""
    error = {"type": "invalid_request", "message": "Request body failed validation", "details": {"fieldErrors": fields}}
    return ServiceError(422, 5012, json.dumps({"error": error}, separators=(",", ":")), raw=True)


def _mismatch(detail: str) -> ServiceError:
    return ServiceError(400, 5006, f"Bad input: Error: {detail}")
