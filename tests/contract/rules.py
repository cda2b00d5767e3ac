"""The rules that the most complete peer keeps, and the gaps it leaves, each traced to rows and tests of this suite.

The peer is workers-ai-provider 4.0.0 (https://github.com/cloudflare/ai/tree/main/packages/workers-ai-provider); its
rules are numbered in the order in which its sources state them. A row belongs to a rule when its ``source`` cites it.
``uv run python tests/contract/rules.py`` writes the table into the README.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from odd_streams import ODD_STREAMS
from refusals import REFUSED
from sent import SENT
from streamed_replies import STREAMS
from whole_replies import WHOLE

__all__ = ["BEGIN", "END", "GAPS", "RULES", "TABLES", "Traced", "evidence", "markdown", "rows_of"]

BEGIN: Final = "<!-- written by rules.py -->"
END: Final = "<!-- end -->"

TABLES: Final[dict[str, Sequence[Any]]] = {
    "sent": SENT,
    "whole": WHOLE,
    "streamed": [*STREAMS, *ODD_STREAMS],
    "refused": REFUSED,
}


class Traced(NamedTuple):
    """A rule, or a gap.

    Attributes:
        says: What it asks for.
        differs: What of it is not wanted here, and why.
        rows: Rows that show it and do not cite it, as ``"table: name"``; a name may end in ``*``.
        tests: Tests that show it, as ``"file::name"`` under ``tests``.
    """

    says: str
    differs: str = ""
    rows: Sequence[str] = ()
    tests: Sequence[str] = ()


RULES: Final[dict[int, Traced]] = {
    1: Traced(
        "An assistant's or tool's content that is null becomes an empty text.",
        "The peer does so on one of its two paths; here it holds for every role on both routes.",
    ),
    2: Traced("Text parts are joined; reasoning goes back in a field of its own, never in the text."),
    3: Traced(
        "An assistant's calls go back nested, with arguments as JSON text.", "They are not repeated in the text."
    ),
    4: Traced("A tool's result is unwrapped: text stays text, JSON is written once."),
    5: Traced("A tool's result carries name and id of its call."),
    6: Traced("Images become data URIs beside the text; links, documents and data without a type are rejected."),
    7: Traced("A forced call of any tool is sent as `required`; the service rejects `any`."),
    8: Traced("One tool that must be called is named; the list of tools stays whole."),
    9: Traced(
        "What is not set is absent: descriptions, parameters, choice, response format.",
        "Tools stay beside a response format: agents that answer in a schema send both.",
    ),
    10: Traced(
        "The native route takes a bare JSON schema.",
        "Name and description are not folded into it: the schema is the caller's. Chat completions gets the envelope.",
    ),
    11: Traced(
        "Effort and template switches are in the body; an effort of null is a value.",
        "Efforts that a model does not list are sent as given: the service knows its models.",
    ),
    12: Traced(
        "Sampling settings are rejected or dropped.",
        "All that is set is sent: seed, stop, top_k and penalties included.",
    ),
    13: Traced(
        "`run/` is put before the model once; settings it does not know become a query string.",
        "Nothing goes into the query string: what is not known is an error, or `extra_body`.",
    ),
    14: Traced("Session affinity and gateway options are headers, merged with the caller's own."),
    15: Traced(
        "A caller who gives up ends the request, and it is not tried again.",
        tests=[
            "contract/test_giving_up.py::test_a_stream_that_is_given_up_closes_its_reply",
            "contract/test_giving_up.py::test_a_call_that_is_cancelled_is_not_tried_again",
            "contract/test_giving_up.py::test_a_stream_whose_task_is_cancelled_closes_its_reply",
        ],
    ),
    16: Traced("Both families of replies are read, inside the envelope and without it; OpenAI's wins."),
    17: Traced("`response` may be text, object, number, null or absent.", "What holds no answer at all is an error."),
    18: Traced("Calls may be flat or nested, arguments an object or text, ids missing."),
    19: Traced(
        "Ids that repeat are made unique, and go back as they came.",
        rows=["whole: two calls share an id", "streamed: two calls share an id*"],
        tests=["contract/test_sent.py::test_ids_stay_unique_over_turns_and_go_back_as_they_came"],
    ),
    20: Traced("A forced call that leaked as text is recovered, and nothing else is."),
    21: Traced(
        "Finish reasons have one spelling; the choice's outranks the top's.",
        "Calls always finish as `tool_calls`, and an answer as long as `max_tokens` as `length`, whatever is said.",
    ),
    22: Traced("Usage may be missing or partial; no cached tokens is a value.", "Missing usage is None, not zeros."),
    23: Traced(
        "Events split anywhere, with or without a space, the last without a newline; what is no JSON is skipped."
    ),
    24: Traced("Both families in one stream; numbers are text; what has no known field is ignored."),
    25: Traced("Reasoning streams under either name, apart from the text."),
    26: Traced(
        "Pieces of calls are joined by index; a piece of nulls ends one.",
        "Calls are not closed when the next begins: frameworks close them at the one last piece.",
    ),
    27: Traced("A forced call that leaks into a stream is held back and recovered at its end."),
    28: Traced(
        "A stream with neither end mark nor finish reason is cut off.",
        "It raises, with the text so far; so does one without a single event.",
    ),
    29: Traced(
        "A stream answered with plain JSON is yielded as a stream.",
        "The request is never sent a second time: the answer is there, and was paid for.",
        tests=["contract/test_replies.py::test_whole_replies"],
    ),
    30: Traced(
        "Codes have a table.",
        "Ours has what the service was seen to send as well.",
        rows=[
            "refused: no such model",
            "refused: private model",
            "refused: request too large",
            "refused: timeout inside the service",
            "refused: aborted inside the service",
            "refused: no capacity",
            "refused: daily allocation, documented",
        ],
        tests=["core/test_errors.py::test_*"],
    ),
    31: Traced(
        "The code is read from a field or from the front of the text.",
        "On every path, not for the binding alone; digits of ids are never taken for one.",
        rows=[
            "refused: bad input, from the binding",
            "refused: server error with a uuid that holds 404",
            "refused: bad input, errors as an object",
            "refused: error as an object",
            "refused: error as a text",
        ],
    ),
    32: Traced(
        "408, 409, 429 and 5xx are tried again; `Retry-After` is kept.",
        "The code outranks the status: a used-up allocation is also 429, and is never retried.",
        rows=[
            "refused: no capacity, told how long",
            "refused: limit of the API",
            "refused: daily allocation, as emitted",
            "refused: server error",
        ],
        tests=["core/test_retry.py::test_retry_after_is_read_in_every_spelling"],
    ),
    33: Traced(
        "An error body is an error, whatever it was asked for.",
        "Speech is not part of this project.",
        rows=["refused: a success that failed*", "refused: edge page", "refused: empty body", "whole: no answer: html"],
    ),
    34: Traced(
        "Embeddings go out as `{text: [...]}` and come back as `{shape, data}`.",
        "At most 100 texts a request, 32 where the model says so; pooling is in the body.",
        tests=[
            "contract/test_vector_replies.py::test_vectors_of_every_shape",
            "contract/test_vector_replies.py::test_what_an_embedding_sends",
            "contract/test_vector_replies.py::test_an_invalid_vector_is_never_returned",
        ],
    ),
    35: Traced(
        "Scores come back by id, and are sorted.",
        "A ranking that is missing is an error, not an empty one: texts would be lost silently.",
        tests=[
            "contract/test_vector_replies.py::test_scores_of_every_shape",
            "contract/test_vector_replies.py::test_scores_that_are_missing_are_an_error",
        ],
    ),
}

GAPS: Final[dict[str, Traced]] = {
    "`content` that is an object": Traced("It is returned as JSON text.", rows=["whole: content is an object"]),
    "an error inside a stream": Traced("It raises the class of its code.", rows=["streamed: *error frame*"]),
    "`success: false` with HTTP 200": Traced("It raises, by its code.", rows=["refused: a success that failed*"]),
    "arguments before the name": Traced("Both meet in one call.", rows=["streamed: arguments before the name*"]),
    "native calls without a finish reason": Traced(
        "They finish as `tool_calls`.", rows=["whole: flat call*", "streamed: flat native call"]
    ),
    "a used-up allocation tried again": Traced("One request, no wait.", rows=["refused: daily allocation*"]),
    "`seed`, `stop` and `top_k` dropped": Traced("They are sent.", rows=["sent: all that is set is sent"]),
    "a queued answer taken for an empty one": Traced("It is an error.", rows=["whole: no answer: queued"]),
    "a request paid for twice": Traced(
        "One request.", rows=["whole: *"], tests=["contract/test_replies.py::test_whole_replies"]
    ),
    "callers that do not know of each other": Traced(
        "One limiter for an account.", tests=["core/test_soak.py::test_*"]
    ),
    "the queue": Traced("Submitted, asked for, collected.", tests=["contract/test_cassettes.py::test_published_*"]),
}


def rows_of(pattern: str) -> list[str]:
    """Names of rows that a pattern like ``"whole: leaked*"`` means."""
    table, _, name = pattern.partition(": ")
    regex = re.compile(".*".join(re.escape(part) for part in name.split("*")))
    return [f"{table}: {row.name}" for row in TABLES[table] if regex.fullmatch(row.name)]


def cited() -> Iterator[tuple[int, str]]:
    """(rule, row) for every rule that a row cites."""
    for table, rows in TABLES.items():
        for row in rows:
            for number in re.findall(r"rule (\d+)", row.source):
                yield int(number), f"{table}: {row.name}"


def evidence(number: int) -> list[str]:
    """All rows and tests of a rule."""
    rule = RULES[number]
    rows = [row for one, row in cited() if one == number] + [row for pattern in rule.rows for row in rows_of(pattern)]
    return [*dict.fromkeys(rows), *rule.tests]


def markdown() -> str:
    """The table for the README."""
    lines = ["| rule | what it asks | rows and tests | where we differ |", "|---|---|---|---|"]
    for number, rule in RULES.items():
        names = "; ".join(name.replace("|", "\\|") for name in evidence(number))
        lines.append(f"| {number} | {rule.says} | {names} | {rule.differs} |")
    lines += ["", "| gap of the peer | here | rows and tests |", "|---|---|---|"]
    for name, gap in GAPS.items():
        lines.append(f"| {name} | {gap.says} | {'; '.join([*gap.rows, *gap.tests])} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    """Write the table into the README, between its marks."""
    path = Path(__file__).with_name("README.md")
    before, _, rest = path.read_text(encoding="utf-8").partition(BEGIN)
    path.write_text(f"{before}{BEGIN}\n{markdown()}{END}{rest.partition(END)[2]}", encoding="utf-8")


if __name__ == "__main__":
    main()
