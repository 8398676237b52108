"""Runs that nobody ran, for the tests of what becomes of them."""

from __future__ import annotations

from typing import Any

from allocator.bench.instances import Facts, Instance
from allocator.bench.runs import Case, Run

FACTS = Facts(gpus=8, nodes=1, pools=1, leaves=2, running=1, waiting=2, step=28_800_000)


def instance(name: str = "one", seed: int | None = 1, **fields: Any) -> Instance:
    return Instance(name=name, family="f", seed=seed, read=lambda: b"", **fields)


def run(name: str = "one", seed: int | None = 1, engine: str = "greedy", budget: float = 10.0, **fields: Any) -> Run:
    """A run; `objective`, `bound`, `seconds`, ... may be given."""
    usual: dict[str, Any] = {
        "case": Case(instance=instance(name, seed), engine=engine, budget=budget),
        "facts": FACTS,
        "digest": "sha256:0",
        "rung": "greedy",
        "status": "feasible",
        "objective": 2_880_000,
        "bound": None,
        "seconds": 1.0,
        "cpu_seconds": 0.5,
        "steps": {"compile": 0.25, "verify": 0.125},
        "starts": 1,
        "stops": 0,
        "violations": (),
        "notes": (),
    }
    return Run(**(usual | fields))
