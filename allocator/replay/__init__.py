"""Replay: the policy of production, and policies to compare it with, on what happened to a cluster."""

from allocator.replay.errors import MissingExtraError, ReplayError
from allocator.replay.options import ReplayOptions
from allocator.replay.policy import Idling, SchedulingPolicy, plain_decision
from allocator.replay.registry import make_policy, policy_names
from allocator.replay.report import compare, compare_lines, read_played, summary_lines
from allocator.replay.simulator import Simulator
from allocator.replay.summary import summarise, write_results
from allocator.replay.tables import frames_of, import_pandas

__all__ = [
    "Idling",
    "MissingExtraError",
    "ReplayError",
    "ReplayOptions",
    "SchedulingPolicy",
    "Simulator",
    "compare",
    "compare_lines",
    "frames_of",
    "import_pandas",
    "make_policy",
    "plain_decision",
    "policy_names",
    "read_played",
    "summarise",
    "summary_lines",
    "write_results",
]
