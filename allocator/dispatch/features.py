"""Feature constraints (`h100&ib`, `[rack1|rack2]&ib`) against the features of a node."""

from __future__ import annotations

import re
from collections.abc import Collection

_PLAIN = re.compile(r"[\w.:+-]+(?:[&,][\w.:+-]+)*")
_TOKEN = re.compile(r"[\w.:+-]+|[&,|()\[\]!]")


def plain_labels(expression: str) -> list[str] | None:
    """The features that all have to be there; None where the expression says more than that."""
    if not expression:
        return []
    return re.split("[&,]", expression) if _PLAIN.fullmatch(expression) else None


def fulfils(expression: str, features: Collection[str]) -> bool:
    """Whether a node with these features may be used.

    `&` and `,` bind tighter than `|`; brackets group. Counts (`ib*2`) are about the whole job and left out of account.
    """
    tokens = _TOKEN.findall(re.sub(r"\*\d+", "", expression))
    value, rest = _either(tokens, features)
    return value and not rest


def _either(tokens: list[str], features: Collection[str]) -> tuple[bool, list[str]]:
    value, rest = _both(tokens, features)
    while rest and rest[0] == "|":
        other, rest = _both(rest[1:], features)
        value = value or other
    return value, rest


def _both(tokens: list[str], features: Collection[str]) -> tuple[bool, list[str]]:
    value, rest = _one(tokens, features)
    while rest and rest[0] in "&,":
        other, rest = _one(rest[1:], features)
        value = value and other
    return value, rest


def _one(tokens: list[str], features: Collection[str]) -> tuple[bool, list[str]]:
    if not tokens:
        return False, []
    head, rest = tokens[0], tokens[1:]
    if head == "!":
        value, rest = _one(rest, features)
        return not value, rest
    if head in "([":
        value, rest = _either(rest, features)
        return value, rest[1:]
    return head in features, rest
