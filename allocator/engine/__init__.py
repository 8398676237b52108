"""`allocate`: the order of steps, the portfolio and the rungs."""

from allocator.engine.allocate import allocate
from allocator.engine.portfolio import ENGINES
from allocator.engine.session import Session

__all__ = ["ENGINES", "Session", "allocate"]
