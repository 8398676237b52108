"""Two searches at the same time, and an answer that does not depend on which of them is quicker.

HiGHS lets other threads of Python go on while it runs. What the second search finds is kept until the first one has ended, and
taken in then, in the order in which it was found: as if it had been made afterwards. So it is, where there is one core alone.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from contextlib import suppress
from threading import Lock, Thread

from allocator.models.greedy.news import FloatArray
from allocator.models.greedy.relaxation import Heard

Search = Callable[[Heard], FloatArray | None]
"""Tells what it finds, ends when it hears that it is enough, and gives the best choices that it found."""

GIVES_WAY = 10
"""By so much the second search is nicer than the first: on a busy machine it takes what is left."""


def num_cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1


def one_beside(
    first: Callable[[], None], second: Search, heard: Heard, enough: Callable[[], bool], cores: int
) -> FloatArray | None:
    """Make two searches; what the second one gives, None where it is `enough` after the first or by what is `heard`.

    They must not use the same things: what the second one finds is told to `heard` once the first has ended.
    """
    later = _Later(heard, enough)
    if cores > 1:
        _at_once(first, second, later)
    else:
        first()
        if later.open():
            later.search(second)
    return later.given


def _at_once(first: Callable[[], None], second: Search, later: _Later) -> None:
    errors: list[Exception] = []
    thread = Thread(target=_aside, args=(later, second, errors), daemon=True)
    thread.start()
    try:
        first()
        later.open()
    except BaseException:
        later.stop()
        raise
    finally:
        thread.join()
    if errors:
        raise errors[0]


def _aside(later: _Later, search: Search, errors: list[Exception]) -> None:
    """Make a search in this thread, which gives way to others; what it raises is kept."""
    if sys.platform == "linux":  # there 0 is this thread, elsewhere the process
        with suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, 0, os.getpriority(os.PRIO_PROCESS, 0) + GIVES_WAY)
    try:
        later.search(search)
    except Exception as error:
        errors.append(error)


class _Later:
    """Keeps what it is told until it is opened, then hands it on in that order.

    Attributes
    ----------
    given
        What the search gave; None if it was ended, because then it depends on the clock how far it came.
    """

    def __init__(self, heard: Heard, enough: Callable[[], bool]) -> None:
        self._heard, self._enough, self._lock = heard, enough, Lock()
        self._kept: list[tuple[FloatArray | None, float]] = []
        self._opened = self._ended = False
        self._given: FloatArray | None = None

    @property
    def given(self) -> FloatArray | None:
        return None if self._ended else self._given

    def search(self, search: Search) -> None:
        """Make the search."""
        self._given = search(self.tell)

    def tell(self, choices: FloatArray | None, bound: float) -> bool:
        """As `Heard`."""
        with self._lock:
            if self._opened and not self._ended:
                self._ended = self._heard(choices, bound)
            elif not self._ended:
                self._kept.append((choices, bound))
            return self._ended

    def open(self) -> bool:
        """Hand on what was kept, up to what is enough, and from now on what is told at once; whether more is wanted."""
        with self._lock:
            self._ended = self._enough() or any(self._heard(*found) for found in self._kept)
            self._opened = True
            return not self._ended

    def stop(self) -> None:
        """End the search; nobody hears what it has found."""
        with self._lock:
            self._ended = True
