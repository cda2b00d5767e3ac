"""Map the rules and gaps of the most complete other client to rows and tests of this suite.

This client is workers-ai-provider 4.0.0 (https://github.com/cloudflare/ai/tree/main/packages/workers-ai-provider). Its
rules are numbered in the order of its source code. A row belongs to a rule if its ``source`` cites the rule.
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
        says: The required behaviour.
        differs: The difference here, and its reason.
        rows: Rows that test it without citing it, as ``"table: name"``. A name may end in ``*``.
        tests: Tests of it, as ``"file::name"`` under ``tests``.
    """

    says: str
    differs: str = ""
    rows: Sequence[str] = ()
    tests: Sequence[str] = ()


RULES: Final[dict[int, Traced]] = {
    1: Traced(
        "An assistant's or tool's content that is null becomes an empty text.",
        "workers-ai-provider does so on one of its two paths, this project for every role on both routes.",
    ),
    2: Traced("Text parts are joined. Reasoning is sent back in its own field, never in the text."),
    3: Traced(
        "An assistant's calls are sent back nested, with arguments as JSON text.", "They are not repeated in the text."
    ),
    4: Traced("A tool's result is unwrapped: text stays text, JSON is serialized once."),
    5: Traced("A tool's result has the name and id of its call."),
    6: Traced("Images become data URIs beside the text; links, documents and data without a type are rejected."),
    7: Traced("A forced call of any tool is sent as `required`; the service rejects `any`."),
    8: Traced("One tool that must be called is forced by its name. The list of tools is not changed."),
    9: Traced(
        "Unset fields are absent: descriptions, parameters, choice, response format.",
        "Tools are sent together with a response format: agents that answer in a schema send both.",
    ),
    10: Traced(
        "The native route accepts a bare JSON schema.",
        "Name and description are not added to the caller's schema. Chat completions receives the envelope.",
    ),
    11: Traced(
        "Effort and template switches are in the body. An effort of null is a value.",
        "Efforts that a model does not list are sent unchanged: the service validates them.",
    ),
    12: Traced(
        "Sampling settings are rejected or dropped.",
        "All set parameters are sent, including seed, stop, top_k and penalties.",
    ),
    13: Traced(
        "`run/` is put before the model once. Unknown settings become a query string.",
        "Nothing is put into the query string: an unknown setting is an error, or is passed in `extra_body`.",
    ),
    14: Traced("Session affinity and gateway options are headers, merged with the caller's own."),
    15: Traced(
        "Closing or cancelling a call ends its request, which is not retried.",
        tests=[
            "contract/test_giving_up.py::test_closing_a_stream_closes_its_reply",
            "contract/test_giving_up.py::test_a_cancelled_call_is_not_retried",
            "contract/test_giving_up.py::test_a_stream_whose_task_is_cancelled_closes_its_reply",
        ],
    ),
    16: Traced(
        "Both families of replies are read, with and without the envelope. If both are present, OpenAI's is used."
    ),
    17: Traced("`response` may be text, object, number, null or absent.", "A reply without an answer is an error."),
    18: Traced("Calls may be flat or nested, arguments an object or text, ids missing."),
    19: Traced(
        "Repeated ids are made unique, and sent back unchanged.",
        rows=["whole: two calls share an id", "streamed: two calls share an id*"],
        tests=["contract/test_sent.py::test_ids_stay_unique_over_turns_and_are_sent_back_unchanged"],
    ),
    20: Traced("Only a forced call that leaked as text is recovered."),
    21: Traced(
        "Finish reasons have one spelling. The reason of the choice outranks that of the reply.",
        "Calls always finish as `tool_calls`, and an answer of `max_tokens` tokens as `length`.",
    ),
    22: Traced("Usage may be missing or partial. Zero cached tokens are a value.", "Missing usage is None, not zeros."),
    23: Traced(
        "Events may be split anywhere, with or without a space, the last without a newline. Invalid JSON is skipped."
    ),
    24: Traced("Both families may be in one stream. Numbers become text. Events without a known field are ignored."),
    25: Traced("Reasoning streams under either name, separate from the text."),
    26: Traced(
        "Pieces of calls are joined by index. A piece with null values ends a call.",
        "Calls are not closed when the next begins: frameworks close them at the last piece.",
    ),
    27: Traced("A forced call that leaks into a stream is held back and recovered at its end."),
    28: Traced(
        "A stream with neither end mark nor finish reason is interrupted.",
        "It raises an error with the received text, and so does a stream without events.",
    ),
    29: Traced(
        "A stream request that is answered with plain JSON is yielded as a stream.",
        "The request is never sent a second time, because the answer was received and paid for.",
        tests=["contract/test_replies.py::test_whole_replies"],
    ),
    30: Traced(
        "Codes are mapped by a table.",
        "The table here also has recorded codes.",
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
        "The code is read from a field or from the beginning of the text.",
        "On every path, not only for the binding. Digits of ids are never read as a code.",
        rows=[
            "refused: bad input, from the binding",
            "refused: server error with a uuid that holds 404",
            "refused: bad input, errors as an object",
            "refused: error as an object",
            "refused: error as a text",
        ],
    ),
    32: Traced(
        "408, 409, 429 and 5xx are retried, with `Retry-After`.",
        "The code outranks the status: an exhausted allocation is also 429, and is never retried.",
        rows=[
            "refused: no capacity, told how long",
            "refused: limit of the API",
            "refused: daily allocation, as emitted",
            "refused: server error",
        ],
        tests=["core/test_retry.py::test_retry_after_is_read_in_every_spelling"],
    ),
    33: Traced(
        "An error body is an error on every route.",
        "Speech is not part of this project.",
        rows=["refused: a success that failed*", "refused: edge page", "refused: empty body", "whole: no answer: html"],
    ),
    34: Traced(
        "Embedding requests are `{text: [...]}`, and replies are `{shape, data}`.",
        "A request has at most 100 texts, or 32 for some models. Pooling is in the body.",
        tests=[
            "contract/test_vector_replies.py::test_vectors_of_every_shape",
            "contract/test_vector_replies.py::test_the_request_of_an_embedding_call",
            "contract/test_vector_replies.py::test_an_invalid_vector_is_never_returned",
        ],
    ),
    35: Traced(
        "Scores are matched by id, and sorted.",
        "A missing ranking is an error, not an empty ranking: texts would be lost silently.",
        tests=[
            "contract/test_vector_replies.py::test_scores_of_every_shape",
            "contract/test_vector_replies.py::test_scores_that_are_missing_are_an_error",
        ],
    ),
}

GAPS: Final[dict[str, Traced]] = {
    "`content` that is an object": Traced("It is returned as JSON text.", rows=["whole: content is an object"]),
    "an error inside a stream": Traced("It raises the class of its code.", rows=["streamed: *error frame*"]),
    "`success: false` with HTTP 200": Traced("It raises its code's class.", rows=["refused: a success that failed*"]),
    "arguments before the name": Traced("Both are in one call.", rows=["streamed: arguments before the name*"]),
    "native calls without a finish reason": Traced(
        "They finish as `tool_calls`.", rows=["whole: flat call*", "streamed: flat native call"]
    ),
    "retry of an exhausted allocation": Traced("One request, no wait.", rows=["refused: daily allocation*"]),
    "`seed`, `stop` and `top_k` dropped": Traced("They are sent.", rows=["sent: all that is set is sent"]),
    "a queued answer read as an empty answer": Traced("It is an error.", rows=["whole: no answer: queued"]),
    "a request paid for twice": Traced(
        "One request.", rows=["whole: *"], tests=["contract/test_replies.py::test_whole_replies"]
    ),
    "independent callers": Traced("One limiter per account.", tests=["core/test_soak.py::test_*"]),
    "the queue": Traced("Submit, poll, collect.", tests=["contract/test_cassettes.py::test_published_*"]),
}


def rows_of(pattern: str) -> list[str]:
    """Return the names of rows that match a pattern such as ``"whole: leaked*"``."""
    table, _, name = pattern.partition(": ")
    regex = re.compile(".*".join(re.escape(part) for part in name.split("*")))
    return [f"{table}: {row.name}" for row in TABLES[table] if regex.fullmatch(row.name)]


def cited() -> Iterator[tuple[int, str]]:
    """Yield (rule, row) for every rule that a row cites."""
    for table, rows in TABLES.items():
        for row in rows:
            for number in re.findall(r"rule (\d+)", row.source):
                yield int(number), f"{table}: {row.name}"


def evidence(number: int) -> list[str]:
    """Return all rows and tests of a rule."""
    rule = RULES[number]
    rows = [row for one, row in cited() if one == number] + [row for pattern in rule.rows for row in rows_of(pattern)]
    return [*dict.fromkeys(rows), *rule.tests]


def markdown() -> str:
    """Return the table for the README."""
    lines = ["| rule | behaviour | rows and tests | difference here |", "|---|---|---|---|"]
    for number, rule in RULES.items():
        names = "; ".join(name.replace("|", "\\|") for name in evidence(number))
        lines.append(f"| {number} | {rule.says} | {names} | {rule.differs} |")
    lines += ["", "| gap | here | rows and tests |", "|---|---|---|"]
    for name, gap in GAPS.items():
        lines.append(f"| {name} | {gap.says} | {'; '.join([*gap.rows, *gap.tests])} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    """Write the table between the marks of the README."""
    path = Path(__file__).with_name("README.md")
    before, _, rest = path.read_text(encoding="utf-8").partition(BEGIN)
    path.write_text(f"{before}{BEGIN}\n{markdown()}{END}{rest.partition(END)[2]}", encoding="utf-8")


if __name__ == "__main__":
    main()
