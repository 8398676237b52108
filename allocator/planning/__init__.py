"""Capacity planning: which units to buy in which quarter, so that what is owed is delivered, for least discounted cost."""

from allocator.planning.check import Comparison, replay_plan
from allocator.planning.measure import as_toml, measure_utilisation
from allocator.planning.plan import Plan
from allocator.planning.question import Question
from allocator.planning.read import read_question, read_trace
from allocator.planning.render import as_text, render
from allocator.planning.solver import Answer, solve
from allocator.planning.templates import Templates
from allocator.planning.view import plan_view

__all__ = [
    "Answer",
    "Comparison",
    "Plan",
    "Question",
    "Templates",
    "as_text",
    "as_toml",
    "measure_utilisation",
    "plan_view",
    "read_question",
    "read_trace",
    "render",
    "replay_plan",
    "solve",
]
