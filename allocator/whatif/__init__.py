"""What if: a trace played with other nodes, budgets, rules or load, and compared with itself as it is."""

from allocator.whatif.budget_edits import BudgetEdit
from allocator.whatif.errors import WhatIfError
from allocator.whatif.run import run_scenario
from allocator.whatif.scenario import Base, Scenario, Variant, load_scenario, read_scenario
from allocator.whatif.scenario_doc import ReplayDoc

__all__ = [
    "Base",
    "BudgetEdit",
    "ReplayDoc",
    "Scenario",
    "Variant",
    "WhatIfError",
    "load_scenario",
    "read_scenario",
    "run_scenario",
]
