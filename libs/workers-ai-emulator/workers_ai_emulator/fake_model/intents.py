"""The table of intents: patterns of prompts, and the functions that answer them."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from workers_ai_emulator.fake_model.prose import known_facts
from workers_ai_emulator.fake_model.react import react_text
from workers_ai_emulator.fake_model.reading.conversation import history_of, sentences
from workers_ai_emulator.fake_model.reading.knowledge import known_list, sentiment_word, translation
from workers_ai_emulator.fake_model.reading.texts import (
    creative_text,
    keywords_of,
    labelled,
    most_fitting,
    questions_of,
    ranked_choices,
    search_queries,
    summary_of,
    title_of,
    topic_of,
    verdict_of,
)
from workers_ai_emulator.fake_model.schemas.json_answers import json_answer
from workers_ai_emulator.fake_model.schemas.values import Source

if TYPE_CHECKING:
    from collections.abc import Callable

    from workers_ai_emulator.fake_model.reading.conversation import Reading
    from workers_ai_emulator.fake_model.request import ChatRequest

_BLOCKS = (
    re.compile(r"(?s)<(\w+)>\s*(.{20,}?)\s*</\1>"),
    re.compile(r"(?s)()\n?\s*-{4,}\s*\n(.+?)\n\s*-{4,}"),
    re.compile(r"(?s)()(?:\"{3}|'{3})\s*(.{20,}?)\s*(?:\"{3}|'{3})"),
    re.compile(r"(?s)()>>>\s*(.+?)\s*>>>"),
)
_LABELS = re.compile(
    r"(?i)^\s*(?:context|text|here is the (?:context|content of the section)|messages to summarize|content)\s*:\s*"
)
_SPEAKER = re.compile(r"(?m)^\s*(?:Human|User|AI|Assistant|user|assistant)\s*:\s*")
_PRONOUN = re.compile(r"(?i)\b(?:it|its|they|them|their|that|this|those|these|he|she|his|her)\b")
_FOLLOW_UP = re.compile(
    r"(?is)(?:follow up (?:input|message|question)\s*:|<Follow Up Message>)\s*(.+?)\s*(?:<|standalone question|\Z)"
)
_LEAST_WORDS = 4
_LENGTH = re.compile(r"(?i)\b(one|a single|two|three|four|five)[- ](?:short )?sentences?\b")
_COUNTS = {"one": 1, "a single": 1, "two": 2, "three": 3, "four": 4, "five": 5, "six": 6, "ten": 10}


@dataclass(frozen=True, slots=True)
class Prompt:
    """A request and its parts, for intents.

    Attributes:
        request: The request.
        reading: The parts of the conversation.
        text: The last user turn.
        everything: The system turns and the last user turn.
    """

    request: ChatRequest
    reading: Reading
    text: str
    everything: str

    def material(self, found: re.Match[str]) -> str:
        """Return the text for an instruction: a marked block, the rest of the turn, or earlier turns."""
        for pattern in _BLOCKS:
            blocks = pattern.findall(self.text)
            if blocks:
                return self._bare(blocks[-1][1])
        if self.reading.request not in self.text or (
            self.reading.request != self.text.strip() and found.group() in self.reading.request
        ):
            rest = "\n".join(self.reading.context)
        elif found.group() in self.text:
            place = self.text.find(found.group())
            start = max(self.text.rfind(mark, 0, place) for mark in (". ", "\n", "? ", "! ")) + 1
            end = re.compile(r"[:.?!]\s|\n|\Z").search(self.text, place + len(found.group()))
            before = self._bare(self.text[:start])
            rest = before if len(before.split()) >= _LEAST_WORDS else self.text[end.end() if end else len(self.text) :]
        else:
            rest = self.text
        if len(rest.split()) < 3:
            results = "\n".join(text for _, text in self.reading.results)
            rest = results or history_of(self.request.turns) or "\n".join(self.reading.context) or rest
        return self._bare(rest) or rest.strip()

    @staticmethod
    def _bare(text: str) -> str:
        text = _SPEAKER.sub("", _LABELS.sub("", text))
        return "\n".join(sentences(text)).strip(" \n\"'.")


def _json(prompt: Prompt, _: re.Match[str]) -> str | None:
    value = json_answer(prompt.request, prompt.reading)
    if re.search(r"choice: 1,\s*\n\s*reason:", prompt.everything):
        value = [value]
    text = json.dumps(value, ensure_ascii=False, indent=2)
    return (
        f"```json\n{text}\n```"
        if re.search(r"(?i)markdown|```json", prompt.everything) and "Do not wrap" not in prompt.everything
        else text
    )


def _sub_questions(prompt: Prompt, _: re.Match[str]) -> str | None:
    """Return a sub-question for each tool whose description matches; for all tools if none matches."""
    listed = re.findall(r"(?s)<Tools>\s*```json\s*(\{.*?\})\s*```", prompt.text)
    questions = re.findall(r"(?s)<User Question>\s*(.*?)\s*(?=<Output>|\Z)", prompt.text)
    if not listed or not questions:
        return None
    tools = {name: f"{name.replace('_', ' ')} {text}" for name, text in json.loads(listed[-1]).items()}
    names = list(tools)
    chosen = most_fitting(questions[-1], tools.values())
    items = [
        {"sub_question": _about(questions[-1], tools[names[index]]), "tool_name": names[index]}
        for index in chosen or range(len(names))
    ]
    return f"```json\n{json.dumps({'items': items}, indent=4)}\n```"


def _about(question: str, tool: str) -> str:
    """Remove the names from a question that are not in the description of a tool."""
    names = Source(question).names
    if not any(name.lower() in tool.lower() for name in names):
        return question
    for name in names:
        if name.lower() not in tool.lower():
            question = re.sub(
                rf"(?:,?\s*\b(?:and|or|versus|vs\.?|with|to)\s+)?\b{re.escape(name)}\b(?:\s+and\s+)?", " ", question
            )
    return f"What is {re.sub(r'  +', ' ', topic_of(question))}?"


def _choice(prompt: Prompt, _: re.Match[str]) -> str | None:
    ranked = ranked_choices(prompt.text)
    return f"ANSWER: {ranked[0][0]}\nThis summary shares most with the question." if ranked else None


def _relevant_documents(prompt: Prompt, _: re.Match[str]) -> str | None:
    ranked = ranked_choices(prompt.text)
    kept = [pair for pair in ranked if pair[1] >= 0.2] or ranked[:1]
    return "\n".join(f"Doc: {number}, Relevance: {max(1, round(10 * score))}" for number, score in kept)


def _ranking(prompt: Prompt, _: re.Match[str]) -> str | None:
    query = re.search(r"(?i)search query: (.+?)\.?\s*\n", prompt.text)
    shown = "\n".join(turn.text for turn in prompt.request.turns if turn.role == "user")
    ranked = ranked_choices(shown, query.group(1) if query else None)
    return " > ".join(f"[{number}]" for number, _ in ranked) or None


def _verdict(prompt: Prompt, found: re.Match[str]) -> str | None:
    verdict = verdict_of(prompt.text)
    if verdict is None:
        verdict = verdict_of(f"{prompt.text}\nContext: " + "\n".join(prompt.reading.context))
    if re.search(r"(?i)existing answer was already YES|existing YES/NO answer", prompt.text):
        verdict = bool(re.search(r"(?i)existing YES/NO answer:\s*YES", prompt.text)) or bool(verdict)
    word = "no" if verdict is False else "yes"
    if "Y" in found.group() and '"Y"' in found.group():
        return word[0].upper()
    return word.upper() if "YES" in found.group() else word


def _score(prompt: Prompt, found: re.Match[str]) -> str | None:
    """Return a score: the share of words that an answer has in common with its reference or question."""
    if "[[A]]" in found.group():
        return "Both answers address the question equally well. [[C]]"
    question = labelled(prompt.text, "query|user query") or prompt.reading.question
    given = labelled(prompt.text, "response|generated answer|context") or ""
    reference = labelled(prompt.text, "reference answer")
    expected, present = (set(re.findall(r"\w{3,}", one.lower())) for one in (reference or question, given))
    share = len(expected & present) / max(1, len(expected))
    if "RESULT" in found.group():
        most = 4 if "worth 2 points" in prompt.text else 2
        return f"The text was compared with the query.\n[RESULT] {most if share >= 0.3 else 0}"
    return (
        f"{5.0 if share >= 0.6 else 3.0 if share >= 0.3 else 1.0}\nThe answer shares {share:.0%} of the expected words."
    )


def _standalone(prompt: Prompt, _: re.Match[str]) -> str | None:
    """Append the topic of the history to a question with a pronoun."""
    after = _FOLLOW_UP.search(prompt.text)
    question = after.group(1).strip() if after else prompt.reading.question
    shown = re.search(r"(?is)(?:chat history\s*[>:])\s*(.+?)\s*(?:<?follow up)", prompt.text)
    earlier = _SPEAKER.sub("", shown.group(1)) if shown else history_of(prompt.request.turns)
    if not earlier or not _PRONOUN.search(question):
        return question
    return f"{question.rstrip('?.! ')} (about {topic_of(earlier.splitlines()[0])})?"


def _better_question(prompt: Prompt, found: re.Match[str]) -> str | None:
    return f"What is known about {topic_of(prompt.material(found))}?"


def _queries(prompt: Prompt, found: re.Match[str]) -> str | None:
    return "\n".join(search_queries(prompt.reading.question, _count(found, 3)))


def _keywords(prompt: Prompt, found: re.Match[str]) -> str | None:
    words = ", ".join(keywords_of(prompt.material(found), _count(found, 5)))
    return f"KEYWORDS: {words}" if "KEYWORDS: <" in prompt.text else words


def _title(prompt: Prompt, found: re.Match[str]) -> str | None:
    material = prompt.material(found)
    return (
        material.split(",")[0].strip()
        if "candidate titles" in prompt.text and "," not in material
        else title_of(material)
    )


def _questions(prompt: Prompt, found: re.Match[str]) -> str | None:
    questions = questions_of(prompt.material(found), _count(found, 3))
    return "\n".join(f"{number}. {question}" for number, question in enumerate(questions, 1))


def _summary(prompt: Prompt, found: re.Match[str]) -> str | None:
    material = prompt.material(found)
    description = _LENGTH.search(prompt.everything)
    count = _COUNTS.get(description.group(1).lower(), 2) if description else 2
    return summary_of(material, count) if len(material.split()) > 2 else None


def _translation(prompt: Prompt, found: re.Match[str]) -> str | None:
    if found.group() not in prompt.text:
        return translation(prompt.text.strip(), found.group("language"))
    source = Source(prompt.text)
    after = prompt.text[prompt.text.find(found.group()) + len(found.group()) :].strip(" .:\n")
    inside = re.sub(
        r"(?i)^(?:the following|this|the)?\s*(?:text|sentence|phrase|word)?\s*:?\s*", "", found.group("text").strip()
    )
    return translation((source.quoted or [after or inside])[0], found.group("language"))


def _class(prompt: Prompt, found: re.Match[str]) -> str | None:
    """Return the class of the material, from the classes in the prompt."""
    listed = re.findall(
        r"[\w-]+",
        re.sub(
            r"(?i)\b(?:a|an|or|and|one|of|the|either|being|about)\b",
            " ",
            found.group("classes") or found.group("either"),
        ),
    )
    listed = [one.strip("`'\"") for one in listed if one]
    text = labelled(prompt.text, "question|text|input|message|review|ticket|tweet") or prompt.material(found)
    mentioned = [one for one in listed if re.search(rf"(?i)\b{re.escape(one)}\b", text)]
    word = mentioned[0] if len(mentioned) == 1 else sentiment_word(text, listed)
    fitting = most_fitting(text, listed)
    return word or (listed[fitting[0]] if fitting else listed[-1] if listed else None)


def _items(prompt: Prompt, found: re.Match[str]) -> str | None:
    """Return facts, keywords of the context or parts of the topic, as a list in the requested form."""
    topic = topic_of(prompt.reading.question)
    known = prompt.reading.context or known_facts(topic)
    members = known_list(prompt.reading.request)
    items = members[: _count(found, 5)] or (
        keywords_of(" ".join(known), 5)
        if known
        else [f"{kind} {topic}" for kind in ("common", "rare", "old", "new", "popular")]
    )
    form = found.group().lower()
    if "comma" in form:
        return ", ".join(items)
    return "\n".join(f"{number}. {one}" if "numbered" in form else f"- {one}" for number, one in enumerate(items, 1))


def _things(prompt: Prompt, found: re.Match[str]) -> str | None:
    members = known_list(prompt.reading.request)[: _count(found, 5)]
    return "\n".join(f"{number}. {one}" for number, one in enumerate(members, 1)) or None


def _extracts(prompt: Prompt, found: re.Match[str]) -> str | None:
    """Return the values of one kind in the material."""
    kind = {"people": "name", "cities": "city", "companies": "company"}.get(found.group("kind").lower())
    values = Source(prompt.material(found)).values_of_kind(kind or found.group("kind").rstrip("s").replace("-", ""))
    return ", ".join(dict.fromkeys(values or [])) or None


def _passage(prompt: Prompt, found: re.Match[str]) -> str | None:
    question = prompt.material(found)
    return " ".join(known_facts(question)) or creative_text(f"report about {topic_of(question)}")


def _creative(prompt: Prompt, _: re.Match[str]) -> str | None:
    return creative_text(prompt.reading.request)


def _rewritten(prompt: Prompt, found: re.Match[str]) -> str | None:
    return f"{found.group('text').strip()} And what is more: nobody saw it coming!"


def _count(found: re.Match[str], otherwise: int) -> int:
    description = found.groupdict().get("count") or ""
    return int(description) if description.isdigit() else _COUNTS.get(description.lower(), otherwise)


_COUNT = r"(?P<count>\d+|two|three|four|five|six|ten)"
_OUTPUT = r"(?:return|respond|output|answer|format|reply|provide|give|produce|generate|write)"
_GENRES = (
    r"(?:tagline|slogan|joke|pun|poem|haiku|limerick|song|verse|lyrics|story|tale|e?mail|tweet|post|essay|report|paragraph|section"
    r"|article|blog|speech)s?"
)
_WRITE = r"(?:write|compose|tell|make up|create|draft|sing|generate)"


class Intent(NamedTuple):
    """One kind of prompt and its answer.

    Attributes:
        name: The requested kind of answer.
        scope: Text to search: ``all`` includes system turns, ``request`` is only the request.
        pattern: Regular expression of prompts with this intent.
        answer: Returns the answer; None if the prompt has another intent.
        words: Lower-case texts. Every match contains one of them, so other texts are not searched; empty for any.
    """

    name: str
    scope: str
    pattern: str
    answer: Callable[[Prompt, re.Match[str]], str | None]
    words: tuple[str, ...] = ()

    def may_match(self, lowered: str) -> bool:
        """Return whether the pattern can match a lower-case text. Texts outside ASCII are always searched."""
        return not self.words or not lowered.isascii() or any(word in lowered for word in self.words)


# The first row that matches and returns an answer applies.
INTENTS = (
    Intent("agent in text", "all", r"Action Input:", lambda prompt, _: react_text(prompt.request, prompt.reading)),
    Intent("sub-questions", "all", r"<User Question>", _sub_questions),
    Intent("number of a choice", "all", r"ANSWER: <numbers?>", _choice),
    Intent("numbers of documents", "all", r"Doc: \d+, Relevance: \d+", _relevant_documents),
    Intent("ranking", "all", r"\[\d*\] > \[\d*\]", _ranking),
    Intent("score", "all", r"\[\[A\]\]|\[RESULT\]|with only the score", _score),
    Intent(
        "JSON",
        "all",
        rf"(?i)(?:^|[.!?:\n]\s*|\band |\bthen |\bplease |\bmust |\bonly ){_OUTPUT}\b[^.\n]{{0,90}}\bJSON\b"
        r"(?!\s+(?:document|module|string|file|data|decoder|encoder|text|representation))"
        r"|output should be[^.\n]{0,40}(?:\bJSON\b|markdown code snippet)|JSON schema (?:to follow|below)"
        r"|\bas JSON\b|\b(?:must|should) be (?:a )?(?:valid )?JSON\b",
        _json,
        ("json", "markdown code snippet"),
    ),
    Intent(
        "verdict",
        "all",
        r"(?i)YES or NO\b|YES\s*/\s*NO\b|['\"]?yes['\"]? or ['\"]?no['\"]?|return YES if|\"Y\" or \"N\"",
        _verdict,
        ("yes", '"y" or "n"'),
    ),
    Intent("standalone question", "all", r"(?i)standalone question", _standalone, ("standalone question",)),
    Intent(
        "improved question",
        "all",
        r"(?i)improved question|rewrite the question",
        _better_question,
        ("the question", "improved question"),
    ),
    Intent(
        "search queries",
        "all",
        rf"(?i)generate (?:\w+ ){{0,3}}?{_COUNT} (?:\w+ ){{0,2}}(?:versions|search queries|queries)",
        _queries,
        ("queries", "versions"),
    ),
    Intent(
        "keywords",
        "all",
        rf"(?i)\b(?:give|extract|provide|list)\b[^.\n]{{0,40}}?(?:{_COUNT}\s+)?(?:\w+\s+)?keywords",
        _keywords,
        ("keywords",),
    ),
    Intent(
        "title",
        "all",
        r"(?i)\b(?:give|generate|write|suggest|what is|create|come up with)\b[^.?\n]{0,40}\btitle\b",
        _title,
        ("title",),
    ),
    Intent(
        "questions",
        "all",
        rf"(?i)\b(?:generate|write|create|setup)\s+(?:only\s+)?(?:{_COUNT}\s+)?(?:\w+\s+)?questions\b",
        _questions,
        ("questions",),
    ),
    Intent("summary", "request", r"(?i)\bsummari[sz]e\b|\bsummary (?:of|for)\b|\btl;?dr\b", _summary, ("summar", "dr")),
    Intent(
        "summary",
        "all",
        r"(?i)\b(?:write|create|provide|give)\b[^.\n]{0,30}\bsummary\b|\bdistill\b|extract the highest quality"
        r"|(?:^|\n)summari[sz]e\b",
        _summary,
        ("summar", "distill", "extract the highest quality"),
    ),
    Intent(
        "translation",
        "all",
        r"(?i)\btranslat(?:e|es|ing|ion|or)\b(?P<text>[^\n]*?)\b(?:in)?to\s+(?P<language>[A-Za-z]+)",
        _translation,
        ("translat",),
    ),
    Intent(
        "class",
        "all",
        r"(?i)\bclassif\w+\b[^.\n]*?\b(?:as|into|one of|:)\s*(?:either|being|about|being about|one of)?\s*"
        r"(?P<classes>[^.\n]+)|\b(?:is|are) (?:the|this|these)\b[^?\n]*?(?P<either>\w+(?:, \w+)*,? or \w+)\?",
        _class,
        ("classif", " or "),
    ),
    Intent(
        "list",
        "all",
        r"(?i)comma[- ]separated (?:values|list)|numbered list with|markdown list",
        _items,
        ("comma", "list"),
    ),
    Intent("things", "request", rf"(?i)^(?:please )?(?:list|name|give me) {_COUNT} \w+", _things),
    Intent(
        "extracts",
        "request",
        r"(?i)\b(?:extract|list|find|identify)\s+(?:all\s+)?(?:of\s+)?(?:the\s+)?(?P<kind>names?|people|persons?|e-?mails?"
        r"|phones?|phone numbers?|dates?|places?|cities|locations?|companies|links?|urls?)\b",
        _extracts,
        ("extract", "list", "find", "identify"),
    ),
    Intent("passage", "all", r"(?i)write a passage to answer", _passage, ("write a passage to answer",)),
    Intent(
        "rewritten text",
        "request",
        r"(?is)\b(?:improve|rewrite|polish|funnier|twist|shorten|expand)\b[^:]*:\s*(?P<text>.+)",
        _rewritten,
        ("improve", "rewrite", "polish", "funnier", "twist", "shorten", "expand"),
    ),
    Intent(
        "creative text",
        "request",
        rf"(?i)\b{_WRITE}\b[^.?!\n]{{0,60}}\b{_GENRES}\b",
        _creative,
        ("write", "compose", "tell", "make up", "create", "draft", "sing", "generate"),
    ),
)
_COMPILED = [(intent, re.compile(intent.pattern)) for intent in INTENTS]
_HEAD, _TAIL = 3000, 3000
_DOCUMENTS = re.compile(
    r"(?s)\n\s*-{4,}\s*\n.+?\n\s*-{4,}|<(context|documents?|sources?|text|article|passage|messages)>.*?</\1>"
)


def intent_answer(request: ChatRequest, reading: Reading) -> str | None:
    """Return the answer of the first matching intent; None if no intent matches."""
    everything = "\n".join([*(turn.text for turn in request.turns if turn.role == "system"), reading.text])
    prompt = Prompt(request, reading, reading.text, everything)
    shown = _DOCUMENTS.sub("\n", everything)
    if len(shown) > _HEAD + _TAIL:  # instructions are at the beginning or at the end
        shown = f"{shown[:_HEAD]}\n{shown[-_TAIL:]}"
    scopes = {"all": shown, "request": reading.request}
    lowered = {scope: text.lower() for scope, text in scopes.items()}
    for intent, pattern in _COMPILED:
        found = pattern.search(scopes[intent.scope]) if intent.may_match(lowered[intent.scope]) else None
        text = intent.answer(prompt, found) if found else None
        if text:
            return text
    return None
