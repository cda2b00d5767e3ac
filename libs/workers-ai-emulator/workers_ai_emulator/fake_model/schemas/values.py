"""Find values in a text by kind: e-mail addresses, dates, numbers, places, people, stated properties."""

from __future__ import annotations

import functools
import re
from typing import TYPE_CHECKING

from workers_ai_emulator.fake_model.reading.knowledge import COLORS, topic_stems
from workers_ai_emulator.rules.tokens import STOP_WORDS, stem, word_set

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

_NUMBER = re.compile(r"(?<![\w.,-])-?\d+(?:\.\d+)?(?!\w|\.\d)|(?<=-)\d+(?!\w|\.\d)")
_QUOTED = re.compile(r"""(?<!\w)'([^'\n]+)'(?!\w)|"([^"\n]+)"|“([^”\n]+)”|`([^`\n]+)`""")
_NAME = re.compile(r"(?<!\w)[a-z]?[A-ZÀ-ÖØ-Þ][\w'\u2019-]*(?:[ ]+[A-ZÀ-ÖØ-Þ][\w'\u2019-]*)*(?:, [A-Z]{2}\b)?")
_PLACE_BEFORE = re.compile(r"(?:\bin|\bat|\bfor|\bto|\bfrom|\bof|\bnear|\band|,)\s+$")
_SAID = re.compile(r"(?:,|'s|\s+(?:is|was|has|had|and|or|lives|works|said|likes|will|aged|needs|must|should)\b|\s*\Z)")
_PLACE = re.compile(
    r"\b(?:in|near|at|from|to)\s+(?!the\b|my\b|a\b)([a-z]\w*(?:\s[a-z]\w*)?)(?=\s*(?:[?.!,]|$|\band\b|\bon\b"
    r"|\btoday\b))"
)
_DETERMINER = re.compile(r"\s+(?:an?|the|this|these|that|my|me|your|all|some|any)\b")
_JOINED = re.compile(r"\w(?:,|,?\s+and)\s+$")
_BY = re.compile(r"\bby\s+([A-Z]\w+(?:\s+[A-Z]\w+)*)")
_CAPITALS = re.compile(r"\b[A-Z]{3,5}\b")
_CODE_NAME = re.compile(r"\w*_\w*")
_MONTH = (
    r"(?:jan(?:uary)?|feb(?:ruary)?|mar(?:ch)?|apr(?:il)?|may|june?|july?|aug(?:ust)?|sept?(?:ember)?|oct(?:ober)?"
    r"|nov(?:ember)?|dec(?:ember)?)\b\.?"
)
_DAY = r"(?:mon|tues|wednes|thurs|fri|satur|sun)day"
_CALENDAR = re.compile(rf"(?i:{_MONTH}|{_DAY}|today|tomorrow|yesterday)\Z")
FORMATS = {
    "date-time": re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(?::\d\d)?(?:Z|[+-]\d\d:\d\d)?"),
    "date": re.compile(r"\d{4}-\d\d-\d\d"),
    "time": re.compile(r"\d\d:\d\d(?::\d\d)?"),
    "email": re.compile(r"[\w.+-]+@[\w-]+\.[\w.-]*\w"),
    "uri": re.compile(r"https?://[^\s\"'<>)]+"),
    "uuid": re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.IGNORECASE),
}
_PHONE = re.compile(r"(?<![\w-])(?:\+\d{1,3}[\s.-]?)?\(?\d{2,4}\)?[\s.-]?\d{3,4}[\s.-]?\d{3,4}(?!\w)")
_DATE = re.compile(
    rf"\d{{4}}-\d\d-\d\d|\d{{1,2}}/\d{{1,2}}/\d{{2,4}}"
    rf"|\b{_MONTH}\s+\d{{1,2}}(?:st|nd|rd|th)?(?:,?\s+\d{{4}})?\b|\b\d{{1,2}}(?:st|nd|rd"
    rf"|th)?\s+(?:of\s+)?{_MONTH}(?:\s+\d{{4}})?\b"
    rf"|\b(?:next\s+|this\s+)?{_DAY}\b|\b(?:today|tomorrow|yesterday|tonight)\b|\bnext\s+(?:week|month|year)\b",
    re.IGNORECASE,
)
_TIME = re.compile(
    r"\b\d{1,2}:\d\d(?::\d\d)?(?:\s*[ap]\.?m\b\.?)?|\b\d{1,2}\s*[ap]\.?m\b\.?|\bnoon\b|\bmidnight\b", re.IGNORECASE
)
_MONEY = re.compile(
    r"[$€£]\s?\d+(?:,\d{3})*(?:\.\d+)?|\b\d+(?:,\d{3})*(?:\.\d+)?\s*(?:dollars|euros|usd|eur|pounds)\b", re.IGNORECASE
)
_IDENTIFIER = re.compile(r"#\s?\w*\d\w*|\b(?=\w*[A-Za-z])(?=[\w-]*\d)[A-Za-z0-9]+(?:[-_][A-Za-z0-9]+)*\b|\b\d{3,}\b")
_COLOR = re.compile(rf"\b(?:{'|'.join(sorted(COLORS))})\b", re.IGNORECASE)
_COMPANY = re.compile(
    r"(?:(?:works?|working|worked|job|engineer|manager|ceo|founder)\s+(?:at|for|of)\s+"
    r"|\bjoined\s+)([A-Z][\w&.'-]*(?:\s+[A-Z][\w&.'-]*)*)"
    r"|\b([A-Z][\w&'-]*(?:\s+[A-Z][\w&'-]*)*\s+(?:Inc|Corp|Ltd|LLC|GmbH|Company|University|Labs))\b"
)
_DUTY = re.compile(r"\b(?:needs?|has|have|must|should|wants?|please)\s+(?:to\s+)?(?!to\b)(\w+\s[^.;?!\n]+)")
# Units of measured properties, next to their numbers.
_UNITS = {
    "age": r"years?|yrs?", "height": r"feet|foot|ft|met(?:er|re)s?|m|cm", "weight": r"kg|kilos?|pounds?|lbs?",
    "price": r"dollars?|euros?|usd|eur", "cost": r"dollars?|euros?|usd", "temperature": r"degrees|celsius|fahrenheit",
    "rating": r"stars?|out\s+of|/", "score": r"points?|out\s+of|/", "duration": r"minutes?|hours?|mins?|days?",
}  # fmt: skip
_LONGEST = 20_000  # characters of a text that are searched for values
_NEAR = 20
_OPENINGS = word_set(
    "hi hello hey dear i'm i've i'll it's that's what's json play call book send tell find show get give search compare"
    " convert order schedule create write add set open read"
)
_NEVER_FIRST = STOP_WORDS | _OPENINGS
_SCALE = re.compile(
    r"(?i)\b(?:from|between)\s+\d+\s+(?:to|and)\s+\d+|\bscale\s+of\s+\d+(?:\s*(?:to|-)\s*\d+)?|\b\d+-\d+\s+scale"
)
_ADDRESS = re.compile(r"\b\d+\s+(?:[A-Z]\w+\s+)+(?:Street|St|Road|Rd|Avenue|Ave|Lane|Way|Square|Boulevard)\b\.?")
_PATH = re.compile(r"(?<!\w)(?:~|\.{1,2})?/[\w./-]*\w|\b[\w-]+\.(?:txt|py|md|csv|json|pdf|html|yaml|toml|log)\b")
_FROM = re.compile(r"\bfrom\s+(?:the\s+|my\s+)?([A-Z]\w+(?:\s+[A-Z]\w+)*|[a-z]\w+)")
_TO = re.compile(r"\bto\s+(?:the\s+|my\s+)?([A-Z]\w+(?:\s+[A-Z]\w+)*|[a-z]\w+)")
_ADDRESSED = {"to", "cc", "bcc"}
_METERS_PER_FOOT = 0.3048
_FILLERS = {"num", "number", "of", "count", "total", "max", "min", "in", "the", "no", "how", "many", "desired"}


class Source:
    """Values in a text. Each value is returned once, in the order of the text.

    Args:
        text: Text to search first, usually the last user turn.
        background: Text to search second.
        answer: Prose answer to the text, for answer properties.
        prompt: The whole turn of the text, with labels; defaults to the text.
    """

    def __init__(self, text: str, background: str = "", answer: str = "", prompt: str = "") -> None:
        self.text = text = text[:_LONGEST]
        self.answer = answer
        self.prompt = (prompt or text)[-_LONGEST:]
        self._background = background = background[:_LONGEST]
        everything = re.sub(r"(?<=\d),(?=\d{3}\b)", "", f"{text}\n{background}")
        taken = (*FORMATS.values(), _PHONE_LIKE, _DATE_LIKE, _SCALE)
        self.numbers = [match.group() for match in _NUMBER.finditer(_without(everything, taken))]
        self.quoted: list[str] = [
            next(group for group in match.groups() if group) for match in _QUOTED.finditer(everything)
        ]
        self.placed: list[str]
        self.others: list[str]
        self.initials: list[str]
        self.placed, self.others, self.initials = _names(text)
        if not self.placed and not self.others:
            self.placed, self.others, _ = _names(background)
        self._given: set[str] = set()

    @property
    def names(self) -> list[str]:
        """Return the capitalised phrases. Phrases after a preposition of place come first."""
        return list(dict.fromkeys([*self.placed, *self.others]))

    @property
    def people(self) -> list[str]:
        """Return the capitalised phrases. Phrases after a preposition of place come last."""
        return list(dict.fromkeys([*self.others, *self.placed]))

    @property
    def stated(self) -> str:
        """Return the text. If the text is a question, return the background."""
        return self._background if self.text.strip().endswith("?") and self._background.strip() else self.text

    @property
    def everything(self) -> str:
        """Return all of the text."""
        return f"{self.text}\n{self._background}"

    def exclude(self, names: Iterable[str]) -> None:
        """Remove the names of properties from the quotations."""
        taken = set(names)
        self.quoted = [value for value in self.quoted if value not in taken]

    def next_of(self, candidates: Iterable[str]) -> str | None:
        """Return the first candidate that was not returned yet."""
        for candidate in candidates:
            if not self._taken(candidate):
                self._given.add(candidate)
                return candidate
        return None

    def formatted(self, name: str) -> str | None:
        """Return a value of a JSON schema format, such as ``email``."""
        pattern = FORMATS.get(name)
        return self.next_of(_all(pattern, self.everything)) if pattern else None

    def values_of_kind(self, name: str, *, sure: bool = False) -> list[str] | None:
        """Return the unused values of a property's kind; None if its name has no known kind.

        Args:
            name: The name of the property.
            sure: Whether to use only unambiguous kinds, such as e-mail addresses.
        """
        words = ["email"] if name in _ADDRESSED and "@" in self.everything else split_name(name)
        rank = _kind_rank(tuple(words))
        if rank == len(KINDS):
            return None
        _, is_sure, find = KINDS[rank]
        left = [] if sure and not is_sure else [one for one in find(self) if not self._taken(one)]
        about = topic_stems(" ".join(words))
        return sorted(left, key=lambda one: not about & topic_stems(one))

    def _taken(self, candidate: str) -> bool:
        """Return whether a value, or a longer value that contains it, was returned before."""
        return any(candidate == given or f" {candidate}" in given for given in self._given)

    def rank_of(self, name: str) -> int:
        """Return the rank of a property. Properties of specific kinds get their values first."""
        return _kind_rank(tuple(split_name(name)))

    def measured(self, name: str) -> str | None:
        """Return the number next to the words or the unit of a property: ``3 nights``, ``41 years old``."""
        words = [word for word in split_name(name) if word not in _FILLERS | STOP_WORDS]
        units = [_UNITS[word] for word in words if word in _UNITS] + [rf"{re.escape(stem(word))}\w*" for word in words]
        for unit in units:
            found = re.search(rf"(?i)(?<![\w.])(-?\d+(?:\.\d+)?)[\s-]*({unit})(?!\w)", self.everything)
            if found and "meters" in words and found.group(2).startswith("f"):
                return f"{float(found.group(1)) * _METERS_PER_FOOT:.2f}"
            if found:
                return found.group(1)
        return None

    def stated_value(self, name: str) -> str | None:
        """Return the value that the text states for a property: ``age: 41``, ``age is 41``, ``named 'Ann'``."""
        words = r"[\s_-]+".join(map(re.escape, split_name(name)))
        if not words:
            return None
        where = r"(?:\s+(?:in|at|for|of)\s+\w+(?:\s+\w+)?)?"
        stated = rf"(?i:\b{words}(?:d|s)?\b[\"']?{where}\s*(?::|=|\bis\b|\bof\b|\bare\b)\s*)"
        stated += r"(?:'([^'\n]+)'|\"([^\"\n]+)\"|([^\s,;.]+(?:\.\d+)?))"
        near = rf"(?i:\b{words}(?:d)?\b\s+)(?:'([^'\n]+)'|\"([^\"\n]+)\"|(\d\d?:\d\d|-?\d+(?:\.\d+)?))"
        for pattern in (stated, near):
            found = re.search(pattern, self.everything)
            if found:
                value = next(group for group in found.groups() if group)
                if value.lower() not in STOP_WORDS:
                    return value
        return None


def split_name(name: str) -> list[str]:
    """Split an identifier into words: ``fooBar_baz`` is foo, bar, baz."""
    return [part.lower() for part in re.findall(r"[A-Z]?[^\W_A-Z]+|[A-Z]+(?![^\W_A-Z])", name)]


def _all(pattern: re.Pattern[str], text: str) -> list[str]:
    return [next((group for group in found.groups() if group), found.group()) for found in pattern.finditer(text)]


def _phones(source: Source) -> list[str]:
    texts = _without(source.everything, [FORMATS["date"], FORMATS["uuid"], FORMATS["uri"]])
    return [found for found in _all(_PHONE, texts) if sum(letter.isdigit() for letter in found) >= 7]


def _identifiers(source: Source) -> list[str]:
    """Return the words that contain digits. Words that also contain letters come first."""
    found = _all(_IDENTIFIER, _without(source.text, [_MONEY, _PHONE, _DATE, *FORMATS.values()]))
    return sorted(found, key=str.isdigit)


def _near(pattern: re.Pattern[str]) -> Callable[[Source], list[str]]:
    return lambda source: _all(pattern, source.text) + _all(pattern, source.everything)


# Words in the name of a property, whether the kind is unambiguous, and a function that returns the values. The first
# matching row applies.
KINDS: tuple[tuple[frozenset[str], bool, Callable[[Source], list[str]]], ...] = (
    (word_set("email mail recipient attendee"), True, _near(FORMATS["email"])),
    (word_set("phone telephone mobile tel fax cell"), True, _phones),
    (word_set("url link website uri homepage"), True, _near(FORMATS["uri"])),
    (word_set("date day birthday deadline due when"), True, _near(_DATE)),
    (word_set("time hour"), True, _near(_TIME)),
    (word_set("path file filename filepath directory folder"), True, _near(_PATH)),
    (word_set("address street"), True, _near(_ADDRESS)),
    (word_set("currency symbol ticker"), True, _near(_CAPITALS)),
    (word_set("from origin departure source"), True, _near(_FROM)),
    (word_set("to destination arrival target"), True, _near(_TO)),
    (word_set("price amount cost budget salary"), True, _near(_MONEY)),
    (word_set("color colour"), True, _near(_COLOR)),
    (word_set("company organization organisation employer"), True, _near(_COMPANY)),
    (
        word_set("location city place country town region state airport"),
        False,
        lambda source: [*source.placed, *source.others, *source.initials, *_all(_PLACE, source.text)],
    ),
    (word_set("id ticket sku identifier"), False, _identifiers),
    (
        word_set("author director artist writer singer composer"),
        False,
        lambda source: [*_all(_BY, source.text), *source.people],
    ),
    (
        word_set("person author customer assignee user owner speaker artist name who"),
        False,
        lambda source: [*source.quoted, *source.people, *source.initials],
    ),
    (word_set("task action todo"), False, _near(_DUTY)),
)


@functools.lru_cache(maxsize=1_000)
def _kind_rank(words: tuple[str, ...]) -> int:
    """Return the index of the first row of :data:`KINDS` that has one of the words; else the number of rows."""
    forms = {form for word in words for form in (word, stem(word))}
    return next((rank for rank, (named, _, _) in enumerate(KINDS) if forms & named), len(KINDS))


_PHONE_LIKE = re.compile(r"\(?\d{3}\)?[\s.-]\d{3,4}[\s.-]\d{4}|\+\d[\d\s-]{7,}\d")
_DATE_LIKE = re.compile(r"\d{1,2}/\d{1,2}/\d{2,4}|(?<![\w.])\d{1,2}(?=\s*[ap]\.?m\b)")


def _names(text: str) -> tuple[list[str], list[str], list[str]]:
    """Return phrases after a preposition of place, other capitalised phrases, and single words that begin a sentence.

    The first word of a sentence is a name if a verb or a comma follows.
    """
    placed: list[str] = []
    others: list[str] = []
    initials: list[str] = []
    last: list[str] | None = None
    for match in _NAME.finditer(_without(text, [_CODE_NAME, *FORMATS.values()])):
        words = match.group().split()
        while words and (words[0].lower() in _NEVER_FIRST or _CALENDAR.match(words[0])):
            words.pop(0)
        before = text[max(0, match.start() - _NEAR) : match.start()]
        begins = not before.strip() or before.rstrip()[-1] in ".!?:\n"
        whole = len(words) == len(match.group().split())
        if not words:
            continue
        if begins and whole and len(words) == 1 and _DETERMINER.match(text, match.end()):
            continue
        if begins and whole and len(words) == 1 and not _SAID.match(text[match.end() :]):
            initials.append(words[0])
        else:
            start = match.start() + match.group().find(words[0])
            if last is None or not _JOINED.search(text[max(0, start - _NEAR) : start]):
                last = placed if _PLACE_BEFORE.search(text[max(0, start - _NEAR) : start]) else others
            last.append(" ".join(words))
    return list(dict.fromkeys(placed)), list(dict.fromkeys(others)), initials


def _without(text: str, patterns: Iterable[re.Pattern[str]]) -> str:
    """Replace the matches in a text by spaces, so that positions do not change."""
    for pattern in patterns:
        text = pattern.sub(lambda match: " " * len(match.group()), text)
    return text
