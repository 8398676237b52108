"""The simplest policy: in order of submission, whatever fits, nothing is ever stopped."""

from __future__ import annotations

from dataclasses import dataclass

from allocator.domain import Decision, NodeState, Snapshot, Start, Workload
from allocator.replay.policy import Idling, plain_decision


@dataclass
class FirstFit:
    name: str = "first_fit"
    idling: Idling = Idling.ALWAYS
    charged: bool = True

    def decide(self, snapshot: Snapshot, previous: Decision | None) -> Decision:
        free = {
            node.name: node.gpus
            for node in snapshot.cluster.nodes
            if node.state is NodeState.UP and (node.drain_deadline is None or node.drain_deadline > snapshot.now)
        }
        pools = {node.name: node.pool for node in snapshot.cluster.nodes}
        for work in snapshot.workloads:
            if work.run is not None:
                for name, tasks in work.run.placement.items():
                    if name in free:
                        free[name] -= tasks * work.gpus_per_task
        starts = []
        waiting = [work for work in snapshot.workloads if work.run is None]
        for work in sorted(waiting, key=lambda work: (work.submit_time, work.id)):
            placement = self._place(work, free, pools)
            if placement:
                for name, tasks in placement.items():
                    free[name] -= tasks * work.gpus_per_task
                charged = self.charged and work.min_runtime > 0
                starts.append(Start(workload=work.id, placement=placement, charged=charged, protected_until=None))
        return plain_decision(snapshot, self.name, starts)

    def wake(self, snapshot: Snapshot, decision: Decision) -> int | None:
        return None

    @staticmethod
    def _place(work: Workload, free: dict[str, int], pools: dict[str, str]) -> dict[str, int]:
        for pool in work.pools or sorted(set(pools.values())):
            placement: dict[str, int] = {}
            left = work.tasks
            for name, gpus in free.items():
                if left and pools[name] == pool and gpus >= work.gpus_per_task and name not in work.exclude_nodes:
                    placement[name] = min(left, gpus // work.gpus_per_task)
                    left -= placement[name]
            if not left:
                return placement
        return {}
