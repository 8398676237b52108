"""What a decision means to people: why work waits, who is owed what, what a change of budgets would do.

`annotate` completes a decision; the `..._view` functions give plain data, `allocator.explain.render` shows it.
"""

from allocator.explain.annotate import annotate
from allocator.explain.budget_views import budgets_view, try_view
from allocator.explain.budgets import apply_changes
from allocator.explain.views import allocation_view, epoch_view, workload_view

__all__ = [
    "allocation_view",
    "annotate",
    "apply_changes",
    "budgets_view",
    "epoch_view",
    "try_view",
    "workload_view",
]
