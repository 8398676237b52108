"""`allocate`: the order of steps, the portfolio and the rungs."""

from allocator.engine.allocate import allocate
from allocator.engine.portfolio import ENGINES

__all__ = ["ENGINES", "allocate"]
