"""Tests of the greedy engine alone; what all engines must do is tested in tests/engines."""
