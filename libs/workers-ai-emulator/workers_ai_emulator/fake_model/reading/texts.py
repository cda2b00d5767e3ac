"""Functions on prose: sentences, topics, keywords, summaries, verdicts, rankings, short creative texts."""

from __future__ import annotations

import math
import re
from collections import Counter
from typing import TYPE_CHECKING

from workers_ai_emulator.fake_model.reading.knowledge import topic_stems
from workers_ai_emulator.rules.tokens import STOP_WORDS, content_stems, stem
from workers_ai_emulator.rules.vectors import relevance

if TYPE_CHECKING:
    from collections.abc import Iterable

SENTENCE = re.compile(r"(?<=[.!?。\uff01\uff1f])\s+|\n+")
_ABBREVIATION = re.compile(r"(?:\b(?:Mr|Mrs|Ms|Dr|Prof|St|vs|e\.g|i\.e|etc|No)\.|\b[A-Z]\.)$")
_WRAPPED = 40
_SENTENCES = 3
_ASKING = re.compile(
    r"(?i)^(?:(?:please|kindly|hi|hey|hello|can you|could you|would you|i(?:'d| would)? (?:want|need"
    r"|like)(?: you)? to|now|also|then|use the \w+(?: \w+)? to)[\s,!]+)*"
    r"(?:(?:what|who|where|when|which)(?:'s|\s+(?:is|are|was|were|does|do|did|can|will|has|have))?|why(?:\s+(?:is"
    r"|are|do|does|did))?"
    r"|how(?:\s+(?:is|are|do|does|did|can|to|many|much))*|tell me|explain(?: to me)?|describe|search(?: the web"
    r"| online| the docs)?(?: for)?"
    r"|find(?: me| out)?|look up|give me|show me|list|get(?: me)?|research|compare(?: and contrast)?|summari[sz]e"
    r"|is|are|does|do|did|can)\s+(?:(?:the|a|an)\s+)?"
)
ABOUT = re.compile(
    r"(?i)\b(?:about|regarding|concerning|on the (?:topic|subject) of|report on|essay on"
    r"|topic(?: is)?:)\s+(?:the\s+)?(.+)$"
)
_TRAILING = re.compile(r"(?i)[\s,]+(?:please|for me|right now|today|now)\s*$")
_NUMBERED = re.compile(
    r"(?ms)^\s*(?:\((\d+)\)|(\d+)[.)]|\[(\d+)\]|Document (\d+):)\s+(.*?)(?=^\s*(?:\(\d+\)|\d+[.)]|\[\d+\]"
    r"|Document \d+:)\s|^\s*-{4,}|^\s*Question:|\Z)"
)
_CLAIM = (
    r"information|statement|claim|(?:llm )?generation|submission|\[submission\]|(?:generated |student )?answer|response"
)
_ASKED = r"(?:search |user |original |input )?(?:question|query)|query and response"
_EVIDENCE = r"contexts?|(?:retrieved )?documents?|(?:set of )?facts|passages?|reference(?: answer)?|evidence|source"
GENRES = {
    "joke": "Why did the {topic} cross the road? To get to the other side!",
    "pun": "I told a pun about {topic}, and it was a-{topic}-ing!",
    "poem": "{Topic}, gentle and bright,\nyou fill the day, you warm the night.",
    "haiku": "{Topic} in the morning,\nquiet light on open fields,\nthe world holds its breath.",
    "limerick": "There once was a tale of {topic},\nso short that it fitted one topic.",
    "song": "Oh {topic}, oh {topic}, we sing your song,\noh {topic}, oh {topic}, all night long.",
    "story": "Once upon a time there were {topic}. They set out one morning, met a friend and came home wiser.",
    "email": "Hello,\n\nthis is a short note about {topic}. Please let me know what you think.\n\nBest regards",
    "tweet": "Today I learned something new about {topic}. Worth a look!",
    "tagline": "{Topic}: as good as it gets.",
    "report": "{Topic}: a short report. It has a background, a present state and an outlook, and each of them matters.",
}
_ALIASES = {"verse": "song", "lyrics": "song", "tale": "story", "mail": "email", "post": "tweet", "slogan": "tagline"}
_GENRE = re.compile(
    rf"(?i)\b({'|'.join([*GENRES, *_ALIASES])}|essay|paragraph|section|article|text|blog|speech|review)s?\b"
)


def sentences_of(text: str) -> list[str]:
    """Return the sentences of a text, with wrapped lines joined and abbreviations kept together."""
    found: list[str] = []
    for part in (part.strip() for part in SENTENCE.split(_unwrapped(text))):
        if found and _ABBREVIATION.search(found[-1]) and part:
            found[-1] = f"{found[-1]} {part}"
        elif part:
            found.append(part)
    return found


def best_sentences(question: str, context: list[str], count: int = _SENTENCES) -> list[str]:
    """Return the sentences that share most words with the question, in the order of the context.

    Rare words count more. Sentences with less than half of the best score are left out.
    """
    query_stems = content_stems(question)
    stems = [content_stems(sentence) for sentence in context]
    frequency = Counter(stem for stems_of_part in stems for stem in stems_of_part)
    scores = [
        sum(math.log(1 + len(context) / frequency[stem]) for stem in query_stems & part) / math.sqrt(4 + len(part))
        for part in stems
    ]
    best = max(scores, default=0.0)
    if best <= 0.0:
        return []
    ranked = sorted(range(len(context)), key=lambda index: -scores[index])[:count]
    chosen = sorted(index for index in ranked if scores[index] >= best / 2)
    return list(dict.fromkeys(context[index] for index in chosen))


def answers_question(question: str, context: list[str]) -> bool:
    """Return whether a sentence of the context contains at least half of the content words of the question."""
    query_stems = content_stems(question)
    return any(len(query_stems & content_stems(sentence)) * 2 >= len(query_stems) for sentence in context)


def topic_of(text: str) -> str:
    """Return the topic of a request: ``task decomposition`` for ``What is task decomposition?``."""
    query = [part for part in sentences_of(text) if part.endswith(("?", "\uff1f"))]
    line = (query or sentences_of(text) or [text])[-1 if query else 0].strip()
    about = ABOUT.search(line)
    topic = about.group(1) if about else _ASKING.sub("", line)
    topic = _TRAILING.sub("", topic.strip(" .!?:;'\"`"))
    return topic.strip(" .!?:;'\"`") or line


def keywords_of(text: str, count: int = 5) -> list[str]:
    """Return the most frequent content words of a text. Of equally frequent words, capitalised names come first."""
    words = re.findall(r"[^\W\d_][\w'-]+", text)
    counts = Counter(stem(word.lower()) for word in words if word.lower() not in STOP_WORDS and len(word) > 2)
    written: dict[str, str] = {}
    for word in words:
        written.setdefault(stem(word.lower()), word)
    ranked = sorted(counts, key=lambda one: -counts[one] - 0.5 * written[one][:1].isupper())
    return [written[one] for one in ranked[:count]]


def phrases_of(text: str) -> list[str]:
    """Return the parts of a list or of a review: split at commas, stops and conjunctions."""
    parts = re.split(r"\s*(?:[,;:.!]\s+|\bbut\b|\band\b|\n|[.!]$)\s*", text)
    return [part.strip(" '\"-") for part in parts if len(part.strip(" '\"-")) > 2]


def summary_of(text: str, count: int = 2) -> str:
    """Return the sentences with most of a text's frequent words, in order."""
    parts = sentences_of(text)
    if len(parts) <= count:
        return " ".join(parts)
    frequent = Counter(one for part in parts for one in content_stems(part))
    scores = [
        sum(frequent[one] - 1 for one in content_stems(part)) / math.sqrt(4 + len(part.split())) for part in parts
    ]
    chosen = sorted(sorted(range(len(parts)), key=lambda index: -scores[index])[:count])
    return " ".join(parts[index] for index in chosen)


def title_of(text: str) -> str:
    """Return a title made of a text's names and keywords."""
    words = keywords_of(text, 4)
    if len(words) < 2:
        return " ".join(words).title() or "Untitled"
    named = [word[:1].upper() + word[1:] for word in words]
    return f"{', '.join(named[:-1])} and {named[-1]}"


def questions_of(text: str, count: int) -> list[str]:
    """Return questions about a text, one per sentence."""
    questions = []
    for sentence in sentences_of(text):
        subject = re.match(r"(.{3,80}?)\s+(is|are|was|were|has|have|can|will)\s+(?!not\b)(.+?)[.!]*$", sentence)
        if subject and subject[2] in {"is", "are", "was", "were"}:
            questions.append(f"What {subject[2]} {_lower(subject[1])}?")
        elif sentence.rstrip(".!"):
            questions.append(
                f"What does the text say about {' '.join(keywords_of(sentence, 3)) or topic_of(sentence)}?"
            )
    questions = list(dict.fromkeys(questions))
    extra = [f"What does the text say about {word}?" for word in keywords_of(text, count * 2)]
    return list(dict.fromkeys([*questions, *extra]))[:count]


def search_queries(question: str, count: int) -> list[str]:
    """Return search queries for a question."""
    topic = topic_of(question)
    forms = ("{0}", "What is known about {0}?", "{0} explained", "{0} examples", "details of {0}", "background of {0}")
    return [forms[number % len(forms)].format(topic) for number in range(count)]


def labelled(text: str, labels: str) -> str | None:
    """Return the text after the last label of a kind, such as ``Context:``, up to the next label or line of dashes."""
    every = rf"{_CLAIM}|{_ASKED}|{_EVIDENCE}|answer|existing answer|feedback|guidelines|score"
    head = r"(?:^|\n)[ \t>#*\[]*(?:here (?:is|are) )?(?:the |an? )?"
    found = re.findall(
        rf"(?is){head}(?:{labels})\]?[ \t]*(?:\n|:)\s*(.*?)(?={head}(?:{every})\]?[ \t]*:|\n\s*(?:-{{4,}}|\*{{3}}|##)"
        rf"|\Z)",
        text,
    )
    return next((one.strip() for one in reversed(found) if one.strip()), None)


def verdict_of(text: str) -> bool | None:
    """Return whether the evidence of a prompt supports its claim or fits its question; None if a part is missing."""
    fenced = re.search(r"(?s)>>>\s*(.*?)\s*>>>", text)
    evidence = fenced.group(1) if fenced else labelled(text, _EVIDENCE)
    claim, query = labelled(text, _CLAIM), labelled(text, _ASKED)
    if evidence is None or (claim is None and query is None):
        return None
    if claim is None:
        query_stems = topic_stems((query or "").splitlines()[0])
        return len(query_stems & topic_stems(evidence)) * 3 >= len(query_stems)
    stems_of_part = [content_stems(sentence) for sentence in sentences_of(evidence)]
    return all(
        max((len(query_stems & one) for one in stems_of_part), default=0) >= 0.75 * len(query_stems)
        for query_stems in map(content_stems, sentences_of(claim))
    )


def ranked_choices(text: str, question: str | None = None) -> list[tuple[int, float]]:
    """Return the numbers of a numbered list with their relevance to the question of the prompt, best first."""
    shown = re.split(r"(?i)let's try this now:?", text)[-1]
    quoted = re.search(r"(?s)\bquestion:\s*'(.*?)'\s*$|\bquestion:\s*'([^\n]*)'", shown)
    query = question or (next(group for group in quoted.groups() if group) if quoted else labelled(shown, _ASKED)) or ""
    items = {int(next(filter(None, found[:4]))): found[4] for found in _NUMBERED.findall(shown)}
    query_stems = " ".join(sorted(topic_stems(query)))
    scores = {number: relevance(query_stems, " ".join(sorted(topic_stems(item)))) for number, item in items.items()}
    return sorted(scores.items(), key=lambda pair: -pair[1])


def most_fitting(question: str, texts: Iterable[str]) -> list[int]:
    """Return the indices of texts that share a word or topic with the question, best first."""
    query_stems = topic_stems(question)
    scores = [(len(query_stems & topic_stems(text)), index) for index, text in enumerate(texts)]
    return [index for score, index in sorted(scores, key=lambda pair: (-pair[0], pair[1])) if score]


def creative_text(text: str) -> str:
    """Return a short text of the requested genre and topic."""
    found = _GENRE.search(text)
    genre = (found.group(1) if found else "report").lower()
    template = GENRES.get(_ALIASES.get(genre, genre), GENRES["report"])
    topic = _subject(text)
    return template.format(topic=topic, Topic=topic[:1].upper() + topic[1:])


def creative_field(words: set[str], text: str) -> str | None:
    """Return the text for a field such as ``setup`` or ``punchline``; None for other fields."""
    setup, punchline = GENRES["joke"].format(topic=_subject(text)).split("? ")
    if "setup" in words:
        return f"{setup}?"
    if "punchline" in words:
        return punchline
    genre = next((word for word in GENRES if word in words), None)
    return creative_text(f"{genre} about {_subject(text)}") if genre else None


def _subject(text: str) -> str:
    """Return the topic of a creative request in a few words."""
    topic = topic_of(_GENRE.split(text)[-1] if not ABOUT.search(text) else text)
    return " ".join(topic.split()[:8]) or "life"


def _lower(text: str) -> str:
    """Write an initial stop word, such as an article, in lower case."""
    first, _, rest = text.partition(" ")
    return f"{first.lower()} {rest}".strip() if first.lower() in STOP_WORDS else text


def _unwrapped(text: str) -> str:
    """Join wrapped lines: a long line without an end mark and a next line in lower case."""
    lines: list[str] = []
    for line in text.splitlines():
        goes_on = line.lstrip()[:1].islower() and lines and len(lines[-1].strip()) >= _WRAPPED
        if goes_on and lines[-1].rstrip()[-1] not in ".!?:;":
            lines[-1] = f"{lines[-1].rstrip()} {line.strip()}"
        else:
            lines.append(line)
    return "\n".join(lines)
