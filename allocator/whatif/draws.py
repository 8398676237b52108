"""The trace that each seed begins with."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from allocator.domain.trace import Trace
from allocator.generate.any_trace import TraceRecipe, make_trace
from allocator.generate.drawn_days import draw_days
from allocator.generate.files import refuse
from allocator.generate.offered import jitter
from allocator.whatif.scenario import Base, Scenario
from allocator.wire import load_named_trace


def bases(scenario: Scenario) -> Iterator[tuple[int, Trace]]:
    """Each seed with its trace; without seeds the trace as it is, under seed 0.

    - `days`: days are drawn with replacement;
    - `jitter`: submissions move a little;
    - `generator`: the trace is made anew with that seed.

    Raises
    ------
    SnapshotError
        If the trace cannot be read or made.
    """
    if not scenario.seeds:
        yield 0, _trace(scenario.base)
    elif scenario.draw == "generator":
        assert scenario.base.recipe is not None
        yield from ((seed, make_trace(replace(scenario.base.recipe, seed=seed))) for seed in scenario.seeds)
    else:
        trace = _trace(scenario.base)
        for seed in scenario.seeds:
            yield seed, draw_days(trace, seed) if scenario.draw == "days" else jitter(trace, scenario.jitter, seed)


def _trace(base: Base) -> Trace:
    if base.trace is None:
        return make_trace(base.recipe or TraceRecipe())
    if not base.trace.is_file():
        raise refuse("$.base.trace", f"{base.trace} is no file", "give a file that exists")
    return load_named_trace(base.trace)
