"""Greedy engine: always first; incumbent, hint and fallback."""
