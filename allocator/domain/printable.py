"""Text that people see, whatever stands in the names that it repeats."""

from __future__ import annotations


def printable(line: str) -> str:
    """The line with everything escaped that would break it or steer a terminal."""
    return line if line.isprintable() else "".join(char if char.isprintable() else f"\\u{ord(char):04x}" for char in line)
