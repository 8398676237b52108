"""What would happen to a workload that has not been submitted, and what would make it start sooner."""

from allocator.advise.model import Advice, Displaced, Effect, Kind, Outcome, Trial, WhatIf
from allocator.advise.view import what_if_view
from allocator.advise.what_if import what_if

__all__ = ["Advice", "Displaced", "Effect", "Kind", "Outcome", "Trial", "WhatIf", "what_if", "what_if_view"]
