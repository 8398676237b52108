"""What each job asks for, as the fields of its workload in a snapshot: from the scheduler, its comment, and its QOS.

A comment counts where it is a JSON object with the key "allocator":

    sbatch --comment='{"allocator": {"checkpoint_interval": "30m", "topology": {"required": "leaf"}}}' ...

What it may say is in `config.Wishes`, and nothing else: whose budget pays and who comes first are not the job's to say. A
comment that cannot be understood makes a waiting job be refused by name; a running one goes on as if it had none, since
users can change comments at any time.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping, Sequence
from functools import cache
from typing import Any

import msgspec

from allocator.dispatch.config import DEFAULT_QOS, Config, Wishes, plain_wishes
from allocator.dispatch.facts import JobFact, JobState, NodeFact, View
from allocator.dispatch.features import fulfils, plain_labels
from allocator.dispatch.scope import Requests, Scope
from allocator.dispatch.shape import shape_of
from allocator.domain import SnapshotError

logger = logging.getLogger(__name__)

KEY = "allocator"


def requests_of(view: View, scope: Scope, config: Config, leaves: Collection[str]) -> Requests:
    """The request of every job in the scope. `leaves` are the ids of budgets that work can belong to."""
    targets = _Targets(view, scope)
    return {key: _request(job, scope.accepted[key], targets, config, leaves) for key, job in scope.jobs.items()}


class _Targets:
    """Which nodes a job could lie on. Jobs are many and their kinds are few: every answer is remembered."""

    def __init__(self, view: View, scope: Scope) -> None:
        self.levels = view.fabric.levels
        self._by_pool: dict[str, list[NodeFact]] = {}
        for name, pool in scope.pools.items():
            self._by_pool.setdefault(pool, []).append(view.nodes[name])
        self.nodes = cache(self._nodes)
        self.forbidden = cache(self._forbidden)

    def _nodes(self, pools: tuple[str, ...]) -> list[NodeFact]:
        """The nodes of some pools."""
        return [node for pool in pools for node in self._by_pool.get(pool, [])]

    def _forbidden(self, pools: tuple[str, ...], partition: str, features: str) -> frozenset[str]:
        """Those of the nodes that partition or, where labels cannot say it, features forbid."""
        partitions, labels = set(partition.split(",")), plain_labels(features)
        return frozenset(
            node.name
            for node in self.nodes(pools)
            if (partition and not partitions & set(node.partitions))
            or (labels is None and not fulfils(features, node.features))
        )


def _request(
    job: JobFact, pools: tuple[str, ...], targets: _Targets, config: Config, leaves: Collection[str]
) -> dict[str, Any]:
    nodes = targets.nodes(pools)
    shape = shape_of(job, nodes)
    defaults = {**config.qos.get(DEFAULT_QOS, {}), **config.qos.get(job.qos, {})}
    request: dict[str, Any] = {"min_runtime": 0, **defaults, **_from_comment(job, targets.levels)}
    if job.min_runtime is not None:
        request["min_runtime"] = job.min_runtime
    labels = plain_labels(job.features)
    excluded = targets.forbidden(pools, job.partition, job.features)
    if job.exclude:
        excluded |= {node.name for node in nodes} & set(job.exclude)
    request |= {
        "id": job.id,
        "allocation": allocation_of(job.account, job.user, leaves),
        "user": job.user or None,
        "tasks": shape.tasks,
        "gpus_per_task": shape.gpus,
        "cpus_per_task": shape.cpus,
        "memory_gib_per_task": shape.memory_gib,
        "pools": list(pools),
        "node_labels": dict.fromkeys(labels or (), "yes"),
        "exclude_nodes": sorted(excluded),
        "resumable": job.resumable,
        "max_runtime": job.time_limit,
    }
    if shape.placement is not None:
        request["placement"] = dict(shape.placement)
    return {name: value for name, value in request.items() if value is not None}


def allocation_of(account: str, user: str, leaves: Collection[str]) -> str:
    """The leaf that pays: the user under the account where there is one, else the account."""
    mine = f"{account}/{user}"
    return mine if mine in leaves or account not in leaves else account


def _from_comment(job: JobFact, levels: Sequence[str]) -> dict[str, Any]:
    """What the comment asks for; for a waiting job, what is wrong with it as a field that the snapshot's reader refuses."""
    said = _said(job.comment)
    if said is None:
        return {}
    try:
        wishes = plain_wishes(msgspec.convert(said, Wishes))
        unknown = _levels_of(wishes) - set(levels)
    except (msgspec.ValidationError, SnapshotError) as error:
        return _refused(job, str(error))
    if unknown and job.state is not JobState.WAITING:
        return _refused(job, f"unknown level {', '.join(sorted(unknown))}")
    return wishes


def _said(comment: str) -> Any:
    """The object under the key; None where the comment is free text."""
    if not comment.lstrip().startswith("{"):
        return None
    try:
        found = msgspec.json.decode(comment)
    except msgspec.DecodeError:
        return comment if f'"{KEY}"' in comment else None
    return found.get(KEY) if isinstance(found, dict) else None


def _refused(job: JobFact, problem: str) -> dict[str, Any]:
    if job.state is JobState.WAITING:
        return {f"comment ({problem})": True}
    logger.warning("job %s runs, and its comment is passed over: %s", job.id, problem)
    return {}


def _levels_of(wishes: Mapping[str, Any]) -> set[str]:
    topology = wishes.get("topology") or {}
    named = {topology.get("required"), topology.get("preferred"), (topology.get("segment") or {}).get("level")}
    return {name for name in named if name is not None}
