"""Benchmarks of this checkout: the limits, and a naive formulation as the yardstick. Run by `python -m benchmarks`."""
