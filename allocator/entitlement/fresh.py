"""What started at this very instant, by a decision that has been carried out already."""

from __future__ import annotations

from allocator.entitlement.forced import UNFORCED
from allocator.entitlement.model import Entitlement
from allocator.topology import BoolArray


def ordinary_starts(ent: Entitlement) -> BoolArray:
    """Runs that started at `now` outside the express lane, shape (num_workloads,).

    An express start needs the place of charged work only if that place is missing without them: they came with it or after it.
    """
    works = ent.works
    found: BoolArray = works.running & works.fresh & ~works.ordered & ~ent.columns.express & (works.forced == UNFORCED)
    return found
