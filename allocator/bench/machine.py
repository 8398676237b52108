"""Facts of the machine and of the versions: what a reader needs to judge seconds."""

from __future__ import annotations

import os
import platform
from importlib import metadata
from pathlib import Path

_PACKAGES = {"ortools": "ortools", "highs": "highspy", "numpy": "numpy", "version": "gpu-epoch-allocator"}


def machine_facts() -> dict[str, str]:
    """CPU, number of CPUs, Python and solvers, and the version of this package."""
    facts = {"cpu": _cpu(), "cpus": str(_usable_cpus()), "python": platform.python_version()}
    return facts | {name: _version(package) for name, package in _PACKAGES.items()}


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "not installed"


def _usable_cpus() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _cpu() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass  # not Linux
    return platform.processor() or platform.machine()
