"""The answer as plain data, which JSON can hold and `allocator.explain.render` shows."""

from __future__ import annotations

from typing import Any

from allocator.advise.model import Advice, Displaced, Trial, WhatIf
from allocator.domain import Decision
from allocator.entitlement import entitle
from allocator.explain import workload_view

View = dict[str, Any]


def what_if_view(answer: WhatIf, decided: Decision | None = None) -> View:
    """Everything that was found, and everything that was tried.

    Parameters
    ----------
    answer
        What `what_if` found.
    decided
        The decision that was made on the snapshot, if there is one: the view says whether the one that displacement is
        compared with moves the same work.
    """
    asked = answer.as_asked
    return {
        "view": "what_if",
        "now": answer.without.now,
        "id": answer.request.id,
        "starts": asked.start is not None,
        "request": workload_view(entitle(asked.snapshot), asked.decision, answer.request.id),
        "makes_room": [stop.workload for stop in asked.makes_room],
        "displaced": [_displaced(row) for row in asked.displaced],
        "advice": [_advice(row) for row in answer.advice],
        "engine": answer.engine,
        "calls": answer.calls,
        "agrees_with_decision": None if decided is None else _moves(decided) == _moves(answer.without),
    }


def _displaced(row: Displaced) -> View:
    return {
        "workload": row.workload,
        "effect": row.effect.value,
        "gpus": row.gpus,
        "lost_gpu_seconds": row.lost_gpu_seconds,
    }


def _advice(row: Advice) -> View:
    return {
        "kind": row.kind.value,
        "best": None if row.best is None else row.best.value,
        "helps": row.best is not None,
        "tried": [_trial(trial) for trial in row.tried],
    }


def _trial(trial: Trial) -> View:
    start, waiting = trial.outcome.start, trial.outcome.waiting
    return {
        "value": trial.value,
        "helps": trial.helps,
        "gpus": trial.workload.gpus,
        "starts": start is not None,
        "charged": trial.outcome.charged,
        "protected_until": None if start is None else start.protected_until,
        "displaced": [_displaced(row) for row in trial.outcome.displaced],
        "reason": None if waiting is None else waiting.reason.value,
        "detail": None if waiting is None else waiting.detail,
        "not_before": None if waiting is None else waiting.not_before,
        "never": waiting is not None and waiting.never,
    }


def _moves(decision: Decision) -> object:
    """What a decision does."""
    return (
        {(row.workload, row.charged) for row in decision.starts},
        {row.workload for row in decision.preemptions},
        {row.workload for row in decision.promotions},
    )
