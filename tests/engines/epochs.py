"""A small cluster over many epochs: work comes and goes, nodes die and drain, decisions are carried out at once or in part."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from fractions import Fraction
from random import Random

from allocator.domain import (
    Allocation,
    Cluster,
    Decision,
    LastStop,
    Node,
    NodeState,
    Policy,
    Run,
    Segment,
    Snapshot,
    SolverReport,
    StopReason,
    TopologyWish,
    Unfunded,
    Workload,
)
from allocator.transition import apply, finish

T0 = 1_764_430_000
MINUTE, HOUR = 60, 3600
NOTHING = SolverReport(rung="keep", engine="greedy", status="feasible", objective=0, bound=None, gap=None, terms={}, seed=0)
AT_ONCE = (StopReason.NODE_DOWN, StopReason.DRAIN)


@dataclass
class World:
    """The snapshot of the next epoch, and what has happened that may put a bound off."""

    rng: Random
    snapshot: Snapshot
    in_part: bool
    epoch: int
    gangs: float
    failures: float
    launches_fail: float
    count: int = 0
    disturbed: bool = False
    repairs: dict[str, int] = field(default_factory=dict)

    @classmethod
    def new(cls, seed: int) -> World:
        """A cluster of two to four racks of two nodes, and three allocations."""
        rng = Random(seed)
        nodes = [
            Node(name=f"n{i}", pool="a", gpus=4, domains=("c", f"r{i // 2}")) for i in range(2 * rng.randint(2, 4))
        ]  # fmt: skip
        budgets = [
            Allocation(
                id=key, parent=None, share=Fraction(share), interactive_limit=rng.choice([None, 2, 4]),
                gpu_limit=rng.choice([None, None, None, 8, 12]),
            )
            for key, share in (("x", rng.choice([1, 2])), ("y", 1), ("z", rng.choice([0, 1])))
        ]  # fmt: skip
        budgets += [
            Allocation(id=f"y{i}", parent="y", share=Fraction(1), funds=rng.random() < 0.3) for i in rng.choice([[], [1, 2]])
        ]
        policy = Policy(
            protection_cap=2 * HOUR, window=24 * HOUR, horizon=2 * HOUR, reserve_from=Fraction(1, 4),
            max_preemptions=rng.choice([None, None, 1]), preempt_under_entitlement=rng.random() < 0.1,
        )  # fmt: skip
        cluster = Cluster(levels=("cluster", "rack", "node"), nodes=tuple(nodes), slowdown={"rack": Fraction(1, 50)})
        snapshot = Snapshot(now=T0, cluster=cluster, budgets=tuple(budgets), workloads=(), policy=policy).canonical()
        world = cls(
            rng, snapshot, in_part=rng.random() < 0.4, epoch=rng.choice([5, 10, 20]) * MINUTE,
            gangs=rng.choice([0.2, 0.2, 0.5]), failures=rng.choice([0.0, 0.01, 0.01, 0.04]),
            launches_fail=rng.choice([0.0, 0.0, 0.2]),
        )  # fmt: skip
        for _ in range(6):
            world._arrive()
        return world

    def carry_out(self, decision: Decision) -> None:
        """The dispatcher does what was decided, and an epoch passes with all that happens in it."""
        self.disturbed = False
        self._finish_late_victims()
        decision = self._with_failed_launches(decision)
        if self.in_part and self.rng.random() < 0.5:
            self.snapshot = self._with_notice(decision)
            decision = Decision(
                now=self.snapshot.now, snapshot="", solver=NOTHING, reservations=decision.reservations, waiting=decision.waiting
            )
        self.snapshot = apply(self.snapshot, decision, self.epoch)
        self._end_work()
        for _ in range(self.rng.choice([0, 0, 1, 1, 2])):
            self._arrive()
        self._change_nodes()

    def _with_failed_launches(self, decision: Decision) -> Decision:
        """Some starts do not happen, and the next snapshot shows it."""
        failed = {row.workload for row in decision.starts if self.rng.random() < self.launches_fail}
        self.disturbed |= bool(failed)
        return replace(decision, starts=tuple(row for row in decision.starts if row.workload not in failed))

    def _with_notice(self, decision: Decision) -> Snapshot:
        """Stops take their notice, and starts in their place wait for it; the rest happens at once. Some never leave."""
        soft = {row.workload for row in decision.preemptions if row.reason not in AT_ONCE}
        works = {work.id: work for work in self.snapshot.workloads}
        runs = {key: works[key].run for key in soft}
        soft = {key for key, run in runs.items() if run is not None and not (run.start_time and run.start_time > decision.now)}
        nodes = {name for key in soft if (run := runs[key]) is not None for name in run.placement}
        later = [row for row in decision.starts if not nodes.isdisjoint(row.placement) and row.workload not in soft]
        hard = replace(
            decision,
            preemptions=tuple(row for row in decision.preemptions if row.workload not in soft),
            starts=tuple(row for row in decision.starts if row not in later and row.workload not in soft),
        )
        after = {work.id: work for work in apply(self.snapshot, hard).workloads}
        gone = decision.now + self.snapshot.policy.notice
        for key in soft:
            run = after[key].run
            assert run is not None
            stopped = LastStop(at=decision.now - 1, pool="a", gpus=after[key].gpus, charged=run.charged)
            leaving = replace(run, terminating_until=gone)
            after[key] = replace(after[key], run=leaving, stopped=stopped, preempted=after[key].preempted + 1)
            if self.rng.random() < 0.1:
                self.repairs[f"late {key}"] = gone + 2 * self.epoch
        for row in later:
            run = Run(
                placement=row.placement, charged=row.charged, start_time=gone, charged_since=gone if row.charged else None,
                granted_at=decision.now if row.charged else None, protected_until=row.protected_until, express=row.express,
            )  # fmt: skip
            after[row.workload] = replace(after[row.workload], run=run)
        kept = apply(self.snapshot, hard)
        waiting = tuple(held for held in kept.reservations if after[held.workload].run is None)
        return replace(kept, workloads=tuple(after.values()), reservations=waiting).canonical()

    def _finish_late_victims(self) -> None:
        """Victims that do not leave hang on for some epochs: their time is put off beyond what `apply` would end."""
        works = []
        for work in self.snapshot.workloads:
            until = None if work.run is None else work.run.terminating_until
            if work.run is not None and until is not None and until <= self.snapshot.now:
                self.disturbed = True
                if self.repairs.get(f"late {work.id}", 0) <= self.snapshot.now:
                    works.append(replace(work, run=None))
                    continue
            works.append(work)
        self.snapshot = replace(self.snapshot, workloads=tuple(works)).canonical()

    def _end_work(self) -> None:
        ends = []
        for work in self.snapshot.workloads:
            run = work.run
            if (
                run is not None
                and run.start_time is not None
                and run.start_time < self.snapshot.now
                and run.terminating_until is None
            ):
                ran = self.snapshot.now - run.start_time
                if self.rng.random() < (0.25 if ran >= work.min_runtime else 0.02):
                    ends.append(work.id)
        ends += [work.id for work in self.snapshot.workloads if work.run is None and self.rng.random() < 0.01]
        self.snapshot = finish(self.snapshot, *ends)

    def _arrive(self) -> None:
        rng, size = self.rng, len(self.snapshot.cluster.nodes)
        if len(self.snapshot.workloads) > 4 * size:
            return
        self.count += 1
        kind = rng.random()
        tasks, gpus = (
            (rng.randint(size // 4, size), 4) if kind < self.gangs else (rng.choice([1, 1, 2]), rng.choice([1, 1, 2, 4]))
        )
        unallocated = kind > 0.75
        leaves = ["y1", "y2"] if any(vertex.parent for vertex in self.snapshot.budgets) else ["y", "y"]
        work = Workload(
            id=f"w{self.count:04d}", allocation=rng.choice(["x", "x", *leaves, "z"]), submit_time=self.snapshot.now,
            tasks=tasks, gpus_per_task=gpus,
            min_runtime=0 if unallocated else rng.choice([20 * MINUTE, HOUR, 2 * HOUR, 4 * HOUR]), resumable=rng.random() < 0.8,
            checkpoint_on_notice=rng.random() < 0.7, checkpoint_interval=rng.choice([None, 600]),
            restart_time=rng.choice([60, 300]),
            user=rng.choice([None, "u", "v"]), unfunded=rng.choice([Unfunded.RUN, Unfunded.RUN, Unfunded.WAIT]),
            renew=not unallocated and tasks == 1 and rng.random() < 0.3,
            topology=self._wish(tasks), priority=rng.choice([0, 0, 0, 1]),
            max_runtime=rng.choice([None, 6 * HOUR]),
        )  # fmt: skip
        self.snapshot = replace(self.snapshot, workloads=(*self.snapshot.workloads, work)).canonical()

    def _wish(self, tasks: int) -> TopologyWish:
        chance = self.rng.random()
        if 1 < tasks <= 2 and chance < 0.4:
            return TopologyWish(required="rack")
        if tasks > 2 and chance < 0.2:
            return TopologyWish(segment=Segment(level="rack", tasks=2))
        return TopologyWish(preferred="rack") if chance > 0.9 else TopologyWish()

    def _change_nodes(self) -> None:
        rng, now = self.rng, self.snapshot.now
        nodes = []
        for node in self.snapshot.cluster.nodes:
            healthy = node.state is NodeState.UP and node.drain_deadline is None
            if not healthy and self.repairs.get(node.name, 0) <= now:
                nodes.append(replace(node, state=NodeState.UP, drain_deadline=None))
            elif healthy and rng.random() < self.failures:
                self.disturbed = True
                self.repairs[node.name] = now + rng.choice([1, 4, 12]) * self.epoch
                change: dict[str, object] = rng.choice(
                    [{"state": NodeState.DOWN}, {"state": NodeState.DRAIN}, {"drain_deadline": now + HOUR},
                     {"state": NodeState.DRAIN, "drain_deadline": now + HOUR}]
                )  # fmt: skip
                nodes.append(replace(node, **change))  # type: ignore[arg-type]
            else:
                nodes.append(node)
        self.snapshot = replace(self.snapshot, cluster=replace(self.snapshot.cluster, nodes=tuple(nodes))).canonical()
