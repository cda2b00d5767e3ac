"""General knowledge of the fake model: related words, word lists, facts."""

from __future__ import annotations

import re

from workers_ai_emulator.rules.tokens import content_stems, stem, word_set, words_of

# Topics and their words; used to match tools, classes and routes.
RELATED = {
    "weather": "weather forecast temperature rain raining rainy sun sunny umbrella snow degrees outside"
    " hot cold warm hotter colder warmer",
    "time": "time clock hour o'clock",
    "billing": "billing bill charge charged invoice refund payment pay paid subscription price card money",
    "technical": "technical error errors crash crashes crashing bug bugs broken login password install fails slow code",
    "shipping": "shipping delivery deliver delivered package parcel order track arrive arrived late",
    "account": "account profile username email password login",
    "urgent": "urgent urgently asap immediately critical high emergency now soon possible",
    "calendar": "calendar schedule meeting appointment event conference standup slot slots availability available book",
    "email": "email mail e-mail send reminder remind message inbox",
    "math": "math maths calculate calculator arithmetic compute multiply divide add subtract sum plus minus",
    "science": "science physics physical chemistry biology quantum atom planet force gravity energy",
    "history": "history historical war century ancient empire king revolution",
    "population": "population people inhabitants bigger biggest larger largest",
    "memory": "memory memories remember note notes",
    "research": "research researcher find search investigate",
    "news": "news headlines latest today",
    "stock": "stock stocks share shares ticker",
    "summary": "summary summarize summarise summarization overview",
}  # fmt: skip
_TOPICS = {topic: {stem(word) for word in words.split()} for topic, words in RELATED.items()}

POSITIVE = word_set(
    "good great love loved like liked happy excellent amazing wonderful fantastic best perfect nice enjoy "
    "enjoyed fast awesome pleased delighted glad contento feliz amigos bueno buenos bien heureux content "
    "genial glücklich gut toll"
)
NEGATIVE = word_set(
    "bad terrible hate hated awful horrible worst broken poor sad angry annoyed annoying slow "
    "disappointed disappointing late rude useless expensive wrong fail failed enojado enfadado triste "
    "malo mal terrible schlecht traurig wütend verdad insultar culpa"
)
_SENTIMENTS = {
    1: ("positive", "happy", "joyful", "good", "pos"),
    -1: ("negative", "sad", "angry", "unhappy", "bad", "frustrated", "neg"),
    0: ("neutral", "mixed", "calm"),
}

_COMMON_WORDS = {
    "Spanish": word_set(
        "el los las una estoy que muy por para con es de haberte seremos buenos creo esta pero como te voy su"
    ),
    "French": word_set("le les une je vous est et pour avec très nous des dans pas que suis mais ce"),
    "German": word_set("der die das ich und ist nicht ein eine sehr mit wir sie auf für bin aber"),
    "Italian": word_set("il gli una sono che molto per con di è non questo della ma"),
    "English": word_set("the is a and of to in i you it that my was for with on are this"),
}
COLORS = word_set(
    "black white red green blue yellow orange purple pink brown blond blonde grey gray silver gold turquoise"
)

FACTS = """
Paris is the capital of France. Rome is the capital of Italy. Berlin is the capital of Germany.
Madrid is the capital of Spain. London is the capital of the United Kingdom. Tokyo is the capital of Japan.
The sky is blue because air scatters blue light more than red light.
LangChain is a framework for building applications with large language models.
LangGraph is a framework for building stateful agents as graphs.
LlamaIndex is a framework for connecting language models with your data.
A large language model predicts the next words of a text and is trained on much text.
Retrieval augmented generation gives a language model documents to answer from.
Python is a programming language that is known for readable code.
Parrots talk and have colorful feathers because they learn sounds and signals from their flock.
A hot dog is sausage in a bun, so many people call it a sandwich.
Water boils at 100 degrees Celsius at sea level.
The Earth orbits the Sun once a year. The Moon orbits the Earth once a month.
Neil Armstrong was the first person to walk on the Moon, in 1969.
William Shakespeare wrote Romeo and Juliet and Hamlet.
Albert Einstein published the theory of relativity.
Photosynthesis is how plants turn light into sugar.
Gravity is the force that pulls masses together.
Machine learning means that programs learn from examples instead of fixed rules.
Paul Graham is a programmer, essayist and founder of Y Combinator.
"""

LISTS = {
    "color": "red, green, blue, yellow, purple",
    "fruit": "apple, banana, cherry, orange, pear",
    "planet": "Mercury, Venus, Earth, Mars, Jupiter",
    "animal": "cat, dog, horse, lion, eagle",
    "country": "Norway, France, Japan, Brazil, Kenya",
    "flavor": "vanilla, chocolate, strawberry, mint, pistachio",
    "city": "Oslo, Paris, Tokyo, Nairobi, Lima",
}
TRANSLATIONS = {
    "i love programming": {
        "french": "J'adore la programmation.",
        "german": "Ich liebe das Programmieren.",
        "italian": "Amo programmare.",
        "spanish": "Me encanta programar.",
        "chinese": "我喜欢编程。",
    },
    "i love building applications": {
        "french": "J'adore créer des applications.",
        "german": "Ich liebe es, Anwendungen zu bauen.",
        "italian": "Amo creare applicazioni.",
        "spanish": "Me encanta crear aplicaciones.",
    },
    "hi": {"french": "Bonjour !", "german": "Hallo!", "italian": "Ciao!", "spanish": "¡Hola!"},
    "hello": {"french": "Bonjour !", "german": "Hallo!", "italian": "Ciao!", "spanish": "¡Hola!"},
    "thank you": {"french": "Merci !", "german": "Danke!", "italian": "Grazie!", "spanish": "¡Gracias!"},
    "cat": {"french": "chat", "german": "Katze", "italian": "gatto", "spanish": "gato"},
}  # fmt: skip


def with_related(stems: set[str]) -> set[str]:
    """Return stems and their topics."""
    return stems | {topic for topic, words in _TOPICS.items() if stems & words}


def topic_stems(text: str) -> set[str]:
    """Return the stems of a text's content words, and their topics."""
    return with_related(content_stems(text))


def sentiment_of(text: str) -> int:
    """Return 1 for a positive text, -1 for a negative text, else 0."""
    words = words_of(text)
    balance = sum(word in POSITIVE for word in words) - sum(word in NEGATIVE for word in words)
    return (balance > 0) - (balance < 0)


def sentiment_word(text: str, values: list[str]) -> str | None:
    """Return the value for the sentiment of a text; None if the values are not sentiments."""
    named = {sign: [value for value in values if value.lower() in names] for sign, names in _SENTIMENTS.items()}
    if not (named[1] and named[-1]):
        return None
    return next((found[0] for sign in (sentiment_of(text), 0, 1) if (found := named[sign])), None)


def language_of(text: str) -> str:
    """Return the language of a text, by its number of common words of each language; English by default."""
    words = words_of(text)
    counts = {name: sum(word in common for word in words) for name, common in _COMMON_WORDS.items()}
    best = max(counts, key=lambda name: counts[name])
    return best if counts[best] else "English"


def known_list(text: str) -> list[str]:
    """Return the members of the first known class in a text, such as colors."""
    words = words_of(text)
    singular = {stem(word) for word in words} | {f"{word[:-3]}y" for word in words if word.endswith("ies")}
    return next((members.split(", ") for name, members in LISTS.items() if name in singular), [])


def translation(text: str, language: str) -> str:
    """Return the translation of a phrase. An unknown phrase is returned with the language as a prefix."""
    known = TRANSLATIONS.get(re.sub(r"[^\w\s]", "", text).strip().lower(), {})
    return known.get(language.lower(), f"({language.capitalize()}) {text}")
