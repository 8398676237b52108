"""The exact engines by name, imported on first use: a greedy call never pays for a solver."""

from __future__ import annotations

from importlib import import_module
from typing import cast

from allocator.models.protocol import Engine

_MODULES = {"cp-sat": "allocator.models.cpsat.solver", "milp": "allocator.models.milp.solver"}

EXACT_ENGINES = tuple(_MODULES)


def exact_engine(name: str) -> Engine:
    """The solve function of an exact engine."""
    return cast(Engine, import_module(_MODULES[name]).solve)
