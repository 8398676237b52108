"""Measures what a policy makes of a fleet, by replays: the figures of `Utilisation`.

One pool of 8-GPU nodes, three projects with shares of 50, 30 and 20 % that each ask for their share of the load, jobs as in the
replay of a plan.
"""

from __future__ import annotations

from collections import Counter
from fractions import Fraction

from allocator.generate.params import HOUR
from allocator.planning.check import asked_by_key, ran_of
from allocator.planning.document import ReplayDoc
from allocator.planning.played import PoolPlan, play_trace, with_failures
from allocator.planning.scenarios import Key
from allocator.planning.templates import Templates
from allocator.planning.utilisation import Utilisation

POOL = "measured"
SHARES: dict[Key, Fraction] = {
    ("large", POOL): Fraction(1, 2),
    ("middle", POOL): Fraction(3, 10),
    ("small", POOL): Fraction(1, 5),
}
LOADS = (0.7, 0.8, 0.9, 1.0, 1.1)


def measure_utilisation(replay: ReplayDoc, templates: Templates) -> Utilisation:
    """Play all loads as the replay of a plan would be played."""
    shares: list[float] = []
    for load in LOADS:
        ran, asked = _play(replay, templates, load)
        share = sum(min(ran[key], asked[key]) for key in SHARES) / asked.total()
        shares.append(min([round(share, 3), *shares]))
    return Utilisation(loads=LOADS, delivered=tuple(shares))


def as_toml(found: Utilisation) -> list[str]:
    """The lines for the file of a question."""
    return [
        "[utilisation]",
        f"loads = {list(found.loads)}",
        f"delivered = {list(found.delivered)}",
    ]


def _pool(replay: ReplayDoc) -> PoolPlan:
    return PoolPlan(name=POOL, gpus_per_node=8, num_nodes=replay.gpus // 8)


def _play(replay: ReplayDoc, templates: Templates, load: float) -> tuple[Counter[Key], Counter[Key]]:
    """GPU-seconds that ran and that were asked for, by project; of all draws."""
    ran: Counter[Key] = Counter()
    asked: Counter[Key] = Counter()
    pool = _pool(replay)
    wanted = {key: load * float(share) * pool.gpus for key, share in SHARES.items()}
    got = {key: min(load, 1.0) * float(share) * pool.gpus for key, share in SHARES.items()}
    for draw in range(replay.draws):
        trace = play_trace("measured", (pool,), SHARES, wanted, templates, got, replay.hours * HOUR, draw)
        ran.update(ran_of(with_failures(trace, replay.failures, draw), replay.policy, replay.tick))
        asked.update(asked_by_key(trace))
    return ran, asked
