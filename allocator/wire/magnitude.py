"""Whether the sums of a snapshot can be counted: every term of the objective and every usage fits 64 bits.

Each field alone is in its range by then; products of several are judged here, so that no array has to look out for overflow.
"""

from __future__ import annotations

import math

from allocator.wire.draft import Draft
from allocator.wire.snapshot_doc import UsageDoc, WeightsDoc

LARGEST_OBJECTIVE = 1 << 60
"""In 1/1000 GPU-second, a quarter of a 64-bit number at its sign."""

LARGEST_USAGE = 4 * 10**15
"""GPU-seconds; a million GPUs for more than a century."""

LARGEST_DECAYED_USAGE = 8 * 10**12
"""GPU-seconds: where usage fades it is counted in units of 2**-20."""

_UNIT = 1_000
_MOST_LOST_STEPS = 4


def check_magnitude(draft: Draft) -> None:
    """Refuse a snapshot whose objective or usage could leave the range in which integers are exact."""
    if draft.cluster_known:
        _check_objective(draft)
    _check_usage(draft)


def _check_objective(draft: Draft) -> None:
    """Ensures that no term overflows: every GPU that is there or asked for, at every weight, for as long as it can count.

    A stop throws away a few planning steps, or, where nothing else is left, all since the start, times the stops so far.
    """
    doc = draft.doc
    policy, weights = doc.policy, doc.policy.weights
    installed = sum(node.gpus for node in doc.cluster.nodes)
    asked = sum(work.tasks * work.gpus_per_task for work in doc.workloads)
    begun = [work.run.start_time for work in doc.workloads if work.run is not None and work.run.start_time is not None]
    longest = max(0, doc.now - min(begun, default=doc.now)) + max((work.restart_time for work in doc.workloads), default=0)
    total = math.ceil(sum(getattr(weights, name) for name in WeightsDoc.__struct_fields__))
    times = 1 + max((work.preempted for work in doc.workloads), default=0)
    lost = math.ceil(weights.lost_work) * max(_MOST_LOST_STEPS * policy.planning_step, longest * times)
    reach = _UNIT * (policy.planning_step * total * (installed + asked) + lost * installed)
    if reach > LARGEST_OBJECTIVE:
        problem = f"the objective could reach {reach:.1e}, beyond {LARGEST_OBJECTIVE:.1e} (1/1000 GPU-second)"
        remedy = "lower the weights or the planning_step, or correct a start_time or restart_time of years, or preempted"
        draft.refuse("$.policy.weights", problem, remedy)


def _check_usage(draft: Draft) -> None:
    """Ensures that the records can be added up; the largest is named."""
    records, policy = draft.doc.usage, draft.doc.policy
    largest = LARGEST_USAGE if policy.half_life is None else LARGEST_DECAYED_USAGE
    span = policy.window if policy.half_life is None else math.ceil(policy.half_life / math.log(2))
    if max((record.gpus for record in records), default=0) * span * len(records) <= largest:
        return
    amounts = [_counted(record, draft.doc.now, span, policy.half_life) for record in records]
    if (total := sum(amounts)) > largest:
        row = max(range(len(records)), key=amounts.__getitem__)
        problem = f"{records[row].gpus} GPUs in the largest of the records, which add up to {total:.1e} GPU-seconds"
        remedy = f"correct the records: at most {largest:.1e} GPU-seconds can be counted"
        draft.refuse(f"{draft.path('usage', row)}.gpus", problem, remedy)


def _counted(record: UsageDoc, now: int, span: int, half_life: int | None) -> float:
    """GPU-seconds of a record that count at most."""
    faded = 1.0 if half_life is None else 2.0 ** (-max(0, now - record.end) / half_life)
    return record.gpus * min(max(0, record.end - record.start), span) * faded
