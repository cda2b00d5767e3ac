"""What a text offers as values: numbers, quotations, names, dates, and things said of a property by its name."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from workers_ai_emulator.rules.words import STOP_WORDS

if TYPE_CHECKING:
    from collections.abc import Iterable

_NUMBER = re.compile(r"(?<![\w.,-])-?\d+(?:\.\d+)?(?!\w|\.\d)|(?<=-)\d+(?!\w|\.\d)")
_QUOTED = re.compile(r"""(?<!\w)'([^'\n]+)'(?!\w)|"([^"\n]+)"|“([^”\n]+)”|`([^`\n]+)`""")
_NAME = re.compile(r"[A-ZÀ-ÖØ-Þ][\w'\u2019-]*(?:[ ]+[A-ZÀ-ÖØ-Þ][\w'\u2019-]*)*(?:, [A-Z]{2}\b)?")
_PLACE_BEFORE = re.compile(r"(?:\bin|\bat|\bfor|\bto|\bfrom|\bof|\band|,)\s+$")
_SAID = re.compile(r"(?:,|'s|\s+(?:is|was|has|had|and|or|lives|works|said|likes|will|aged)\b|\s*\Z)")
_CODE_NAME = re.compile(r"\w*_\w*")
FORMATS = {
    "date-time": re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(?::\d\d)?(?:Z|[+-]\d\d:\d\d)?"),
    "date": re.compile(r"\d{4}-\d\d-\d\d"),
    "time": re.compile(r"\d\d:\d\d(?::\d\d)?"),
    "email": re.compile(r"[\w.+-]+@[\w-]+\.[\w.-]*\w"),
    "uri": re.compile(r"https?://[^\s\"'<>)]+"),
    "uuid": re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.IGNORECASE),
}


class Source:
    """Values in a text, each handed out once per kind, in the order of the text.

    Args:
        text: Where to look first, as a rule the last user turn.
        background: Where to look after that.
    """

    def __init__(self, text: str, background: str = "") -> None:
        self.text = text
        self._background = background
        everything = f"{text}\n{background}"
        self.numbers = [match.group() for match in _NUMBER.finditer(_without(everything, FORMATS.values()))]
        self.quoted = [next(group for group in match.groups() if group) for match in _QUOTED.finditer(everything)]
        found, self.initials = _names(text)
        self.names = found or _names(background)[0]
        self._given: set[str] = set()

    @property
    def everything(self) -> str:
        """All of the text."""
        return f"{self.text}\n{self._background}"

    def exclude(self, names: Iterable[str]) -> None:
        """Names of properties are no values."""
        taken = set(names)
        self.quoted = [value for value in self.quoted if value not in taken]

    def next_of(self, candidates: list[str]) -> str | None:
        """The first candidate that was not handed out yet."""
        for candidate in candidates:
            if candidate not in self._given:
                self._given.add(candidate)
                return candidate
        return None

    def next_number(self) -> str | None:
        """The next number; unlike a name, one may come twice if the text says it twice."""
        return self.numbers.pop(0) if self.numbers else None

    def formatted(self, name: str) -> str | None:
        """Something of a JSON schema format, such as ``email``."""
        pattern = FORMATS.get(name)
        found = pattern.search(self.everything) if pattern else None
        return found.group() if found else None

    def said_of(self, name: str) -> str | None:
        """What the text says of a property by its name: ``age: 41``, ``age is 41``, ``named 'Ann'``, ``age 41``."""
        words = r"[\s_-]+".join(map(re.escape, split_name(name)))
        if not words:
            return None
        said = rf"(?i:\b{words}(?:d|s)?\b[\"']?\s*(?::|=|\bis\b|\bof\b|\bare\b)\s*)"
        said += r"(?:'([^'\n]+)'|\"([^\"\n]+)\"|([^\s,;.]+(?:\.\d+)?))"
        near = rf"(?i:\b{words}(?:d)?\b\s+)(?:'([^'\n]+)'|\"([^\"\n]+)\"|(\d\d?:\d\d|-?\d+(?:\.\d+)?))"
        for pattern in (said, near):
            found = re.search(pattern, self.everything)
            if found:
                value = next(group for group in found.groups() if group)
                if value.lower() not in STOP_WORDS:
                    return value
        return None

    def mentions(self, name: str) -> bool:
        """Whether the text has the words of a name."""
        words = split_name(name)
        return bool(words) and all(re.search(rf"\b{re.escape(word)}", self.everything, re.IGNORECASE) for word in words)


def split_name(name: str) -> list[str]:
    """The words of an identifier: ``fooBar_baz`` is foo, bar, baz."""
    return [part.lower() for part in re.findall(r"[A-Z]?[^\W_A-Z]+|[A-Z]+(?![^\W_A-Z])", name)]


def _names(text: str) -> tuple[list[str], list[str]]:
    """Capitalised phrases, those after a word of place first; and single words that only begin a sentence.

    A word that begins a sentence is a name when something is said of it.
    """
    placed: list[str] = []
    others: list[str] = []
    initials: list[str] = []
    for match in _NAME.finditer(_without(text, [_CODE_NAME])):
        words = match.group().split()
        while words and words[0].lower() in STOP_WORDS:
            words.pop(0)
        before = text[: match.start()]
        begins = not before.strip() or before.rstrip()[-1] in ".!?:\n"
        whole = len(words) == len(match.group().split())
        if not words:
            continue
        if begins and whole and len(words) == 1 and not _SAID.match(text[match.end() :]):
            initials.append(words[0])
        else:
            (placed if _PLACE_BEFORE.search(before) else others).append(" ".join(words))
    return list(dict.fromkeys([*placed, *others])), initials


def _without(text: str, patterns: Iterable[re.Pattern[str]]) -> str:
    """The text with matches blanked, so that places stay what they were."""
    for pattern in patterns:
        text = pattern.sub(lambda match: " " * len(match.group()), text)
    return text
