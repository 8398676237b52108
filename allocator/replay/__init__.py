"""Replay: the policy of production, and policies to compare it with, on what happened to a cluster."""
