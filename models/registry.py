"""The exact engines by name, imported on first use: a greedy call never pays for a solver."""

from __future__ import annotations

from importlib import import_module
from typing import cast

from allocator.models.protocol import Engine

EXACT_ENGINES = ("cp-sat", "milp")

BOUND = "bound"
"""Not an engine to ask for by name: the step of the portfolio that bounds large problems."""

LADDER = "ladder"
"""Nor is this: the first part of that step alone, which tells CP-SAT where to look in smaller ones."""

_FUNCTIONS = {
    "cp-sat": ("allocator.models.cpsat.solver", "solve"),
    "milp": ("allocator.models.milp.solver", "solve"),
    BOUND: ("allocator.models.greedy.bound", "solve"),
    LADDER: ("allocator.models.greedy.bound", "descend"),
}


def exact_engine(name: str) -> Engine:
    """The solve function of an exact engine, or of one of the two steps before."""
    module, function = _FUNCTIONS[name]
    return cast(Engine, getattr(import_module(module), function))
