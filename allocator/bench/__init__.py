"""Benchmarks: what runs, how its times are taken, and what becomes of them. The command is `allocator bench`."""

from allocator.bench.catalogue import Catalogue
from allocator.bench.engines import engine_names, register
from allocator.bench.instances import Instance
from allocator.bench.measure import run_cases
from allocator.bench.runs import Case, Run, as_csv
from allocator.bench.summary import summarise

__all__ = ["Case", "Catalogue", "Instance", "Run", "as_csv", "engine_names", "register", "run_cases", "summarise"]
