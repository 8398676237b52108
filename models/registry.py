"""The exact engines by name, imported on first use: a greedy call never pays for a solver."""

from __future__ import annotations

from importlib import import_module
from typing import cast

from allocator.models.protocol import Engine

EXACT_ENGINES = ("cp-sat", "milp")

BOUND = "bound"
"""Not an engine to ask for by name: the step of the portfolio that bounds large problems."""

_MODULES = {
    "cp-sat": "allocator.models.cpsat.solver",
    "milp": "allocator.models.milp.solver",
    BOUND: "allocator.models.greedy.bound",
}


def exact_engine(name: str) -> Engine:
    """The solve function of an exact engine, or of the step `bound`."""
    return cast(Engine, import_module(_MODULES[name]).solve)
