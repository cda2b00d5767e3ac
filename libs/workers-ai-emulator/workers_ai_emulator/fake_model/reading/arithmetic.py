"""Parse and compute the arithmetic in a text: ``What is 3 * 12? Also, what is 11 + 49?`` has two steps."""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass
from functools import reduce
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

_NUMBER = r"(?<![\w.])-?\d+(?:\.\d+)?"
_EARLIER = r"(?:the\s+)?(?:previous\s+|last\s+)?(?:result|output|answer|outcome)(?:\s+of\s+(?:that|this|it))?"
_OPERAND = rf"({_NUMBER}|\bANS\b)"
_PRONOUN = rf"({_NUMBER}|\bANS\b|\b(?:it|that|this)\b)"
# Patterns of words and their symbols. The first rows shift the positions slightly. Only their order matters.
_WORDS = (
    (r"(?<=\d),(?=\d{3}\b)", ""),
    (_EARLIER, "ANS"),
    (rf"\b(?:add|sum)\s+{_PRONOUN}\s+(?:and|to|with|plus)\s+{_PRONOUN}", r"(\1 + \2)"),
    (rf"\b(?:the\s+)?sum\s+of\s+{_OPERAND}\s+and\s+{_OPERAND}", r"(\1 + \2)"),
    (rf"\bmultiply\s+{_PRONOUN}\s+(?:and|by|with|times)\s+{_PRONOUN}", r"(\1 * \2)"),
    (rf"\b(?:the\s+)?product\s+of\s+{_OPERAND}\s+and\s+{_OPERAND}", r"(\1 * \2)"),
    (rf"\bsubtract\s+{_PRONOUN}\s+from\s+{_PRONOUN}", r"(\2 - \1)"),
    (rf"\b(?:the\s+)?difference\s+(?:between|of)\s+{_OPERAND}\s+and\s+{_OPERAND}", r"(\1 - \2)"),
    (rf"\bdivide\s+{_PRONOUN}\s+(?:by|and)\s+{_PRONOUN}", r"(\1 / \2)"),
    (rf"\b(?:the\s+)?quotient\s+of\s+{_OPERAND}\s+and\s+{_OPERAND}", r"(\1 / \2)"),
    (rf"\b(?:multiply|times)\s+(?:it\s+)?by\s+{_OPERAND}", r"(ANS * \1)"),
    (rf"\bdivide\s+(?:it\s+)?by\s+{_OPERAND}", r"(ANS / \1)"),
    (rf"\badd\s+{_OPERAND}(?!\s*(?:and|to|[-+*/]))", r"(ANS + \1)"),
    (rf"\bsubtract\s+{_OPERAND}(?!\s*(?:from|[-+*/]))", r"(ANS - \1)"),
    (r"\b(?:it|that|this)\b(?=\s*(?:[-+*/)]|\d|times|plus|minus|multiplied|divided))", "ANS"),
    (r"(?<=[-+*/(] )(?:it|that|this)\b", "ANS"),
    (r"\bplus\b", "+"),
    (r"\b(?:times|multiplied\s+by)\b|(?<=\d)\s*[x\u00d7]\s*(?=\d)", " * "),
    (r"\bminus\b", " - "),
    (r"\bdivided\s+by\b|\u00f7", "/"),
    (r"\b(?:to\s+the\s+power\s+of|raised\s+to)\b|\^", "**"),
    (r"\bsquared\b", "** 2"),
)  # fmt: skip
_COMPILED = [(re.compile(pattern, re.IGNORECASE), symbol) for pattern, symbol in _WORDS]
# A text without a digit, or without an operator as a symbol or a word of _WORDS, has no step.
_OPERATOR = re.compile(
    r"[+*/^\u00d7\u00f7]|(?<=\s)-(?=\s)|-(?=\()|\d\s*x|\b(?:add|sum|plus|subtract|difference|minus|multiply|multiplied|product"
    r"|times|divide|divided|quotient|power|squared)\b",
    re.IGNORECASE,
)
_DIGIT = re.compile(r"\d|\bsquared\b", re.IGNORECASE)
_DATE = re.compile(r"\d{4}-\d\d-\d\d|\d{1,2}/\d{1,2}/\d{2,4}|\b24/7\b")
_RUN = re.compile(
    r"(?:\(\s*)*(?:-?\d+(?:\.\d+)?|ANS)(?:\s*\)|\s*(?:\*\*|[+*/]|(?<=\s)-(?=\s)"
    r"|-(?=\())\s*(?:\(\s*)*(?:-?\d+(?:\.\d+)?|ANS))+"
)
_OPERATIONS = {ast.Add: "add", ast.Sub: "subtract", ast.Mult: "multiply", ast.Div: "divide", ast.Pow: "power"}
_COMPUTE: dict[str, Callable[[float, float], float]] = {
    "add": lambda a, b: a + b,
    "subtract": lambda a, b: a - b,
    "multiply": lambda a, b: a * b,
    "divide": lambda a, b: a / b if b else float("nan"),
    "power": lambda a, b: float(a**b) if abs(b) < 100 else float("nan"),
}


@dataclass(frozen=True, slots=True)
class Ref:
    """The result of an earlier step."""

    step: int


Operand = int | float | Ref


@dataclass(frozen=True, slots=True)
class Step:
    """One operation on two operands.

    Attributes:
        operation: ``add``, ``subtract``, ``multiply``, ``divide`` or ``power``.
        operands: Numbers, or references to results of earlier steps.
        place: Position of the expression in the text.
        expression: The whole expression of the step.
    """

    operation: str
    operands: tuple[Operand, Operand]
    place: int
    expression: str


def steps_of(text: str) -> list[Step]:
    """Return the operations in a text, innermost first."""
    undated = _DATE.sub(" ", text)
    if not (_DIGIT.search(undated) and _OPERATOR.search(undated)):
        return []
    symbols = reduce(lambda held, rule: rule[0].sub(rule[1], held), _COMPILED, undated)
    steps: list[Step] = []
    for found in _RUN.finditer(symbols):
        expression = _balanced(found.group().strip())
        place = text.find(expression)
        before = len(steps)
        try:
            _collect(ast.parse(expression, mode="eval").body, steps, found.start() if place < 0 else place, expression)
        except (SyntaxError, ValueError):
            del steps[before:]
    return steps


def compute(steps: list[Step]) -> list[int | float]:
    """Return the result of each step."""
    results: list[int | float] = []
    for step in steps:
        first, second = (results[one.step] if isinstance(one, Ref) else one for one in step.operands)
        try:
            value = _COMPUTE[step.operation](first, second)
        except (OverflowError, ZeroDivisionError):
            value = float("nan")
        results.append(plain(value))
    return results


def plain(value: float) -> int | float:
    """Return a whole number as an integer."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _balanced(expression: str) -> str:
    """Remove unbalanced parentheses."""
    surplus = expression.count("(") - expression.count(")")
    if surplus > 0:
        return expression.replace("(", "", surplus)
    return (
        expression[: len(expression) + surplus] if surplus < 0 and expression.endswith(")" * -surplus) else expression
    )


def _collect(node: ast.expr, steps: list[Step], place: int, expression: str) -> Operand:
    """Append the steps of a syntax tree; return its operand."""
    if isinstance(node, ast.BinOp) and type(node.op) in _OPERATIONS:
        first = _collect(node.left, steps, place, expression)
        second = _collect(node.right, steps, place, expression)
        steps.append(Step(_OPERATIONS[type(node.op)], (first, second), place, expression))
        return Ref(len(steps) - 1)
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        inner = _collect(node.operand, steps, place, expression)
        if not isinstance(inner, Ref):
            return -inner
    if isinstance(node, ast.Constant) and isinstance(node.value, int | float):
        return node.value
    if isinstance(node, ast.Name) and steps:
        return Ref(len(steps) - 1)
    raise ValueError(expression)
