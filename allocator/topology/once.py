"""Pure functions of one object that lives for an epoch: worked out when first wanted, and remembered as long as it lives."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import TypeVar
from weakref import WeakKeyDictionary

Subject = TypeVar("Subject")
Result = TypeVar("Result")


def once(function: Callable[[Subject], Result]) -> Callable[[Subject], Result]:
    """Remember the result for each subject, by its identity; nobody may change what comes back."""
    known: WeakKeyDictionary[Subject, Result] = WeakKeyDictionary()

    @wraps(function)
    def remembered(subject: Subject) -> Result:
        try:
            return known[subject]
        except KeyError:
            found = known[subject] = function(subject)
            return found

    return remembered
