"""The compiled epoch: from entitlement to arrays, from solutions to nodes."""

from allocator.epoch.compile import compile_epoch
from allocator.epoch.problem import EpochProblem
from allocator.epoch.solution import EpochSolution, value_of

__all__ = ["EpochProblem", "EpochSolution", "compile_epoch", "value_of"]
