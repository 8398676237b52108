"""Slurm: its commands, their many formats, and the launcher made of them."""
