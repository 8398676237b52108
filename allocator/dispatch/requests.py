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
    by_pool: dict[str, list[NodeFact]] = {}
    for name, pool in scope.pools.items():
        by_pool.setdefault(pool, []).append(view.nodes[name])
    return {
        key: _request(job, scope.accepted[key], by_pool, config, leaves, view.fabric.levels) for key, job in scope.jobs.items()
    }


def _request(
    job: JobFact,
    pools: Sequence[str],
    by_pool: Mapping[str, list[NodeFact]],
    config: Config,
    leaves: Collection[str],
    levels: Sequence[str],
) -> dict[str, Any]:
    nodes = [node for pool in pools for node in by_pool.get(pool, [])]
    shape = shape_of(job, nodes)
    defaults = {**config.qos.get(DEFAULT_QOS, {}), **config.qos.get(job.qos, {})}
    request: dict[str, Any] = {"min_runtime": 0, **defaults, **_from_comment(job, levels)}
    if job.min_runtime is not None:
        request["min_runtime"] = job.min_runtime
    labels = plain_labels(job.features)
    excluded = set(job.exclude) | {node.name for node in nodes if not _may_use(job, node, labels)}
    request |= {
        "id": job.id,
        "allocation": allocation_of(job, leaves),
        "user": job.user or None,
        "tasks": shape.tasks,
        "gpus_per_task": shape.gpus,
        "cpus_per_task": shape.cpus,
        "memory_gib_per_task": shape.memory_gib,
        "pools": list(pools),
        "node_labels": dict.fromkeys(labels or (), "yes"),
        "exclude_nodes": sorted(excluded & {node.name for node in nodes}),
        "resumable": job.resumable,
        "max_runtime": job.time_limit,
    }
    if shape.placement is not None:
        request["placement"] = dict(shape.placement)
    return {name: value for name, value in request.items() if value is not None}


def allocation_of(job: JobFact, leaves: Collection[str]) -> str:
    """The leaf that pays: the user under the account where there is one, else the account."""
    mine = f"{job.account}/{job.user}"
    return mine if mine in leaves or job.account not in leaves else job.account


def _may_use(job: JobFact, node: NodeFact, labels: Collection[str] | None) -> bool:
    """Whether partition and, where labels cannot say it, features allow a node."""
    inside = not job.partition or bool(set(job.partition.split(",")) & set(node.partitions))
    return inside and (labels is not None or fulfils(job.features, node.features))


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
