"""The shared scenarios, imported from where they lie; nothing of them is copied here.

They are found in the folder `scenarios` of `ALLOCATOR_SHARED`, or of a folder `shared` beside the checkout.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
FOLDER = Path(os.environ.get("ALLOCATOR_SHARED", ROOT.parent / "shared")) / "scenarios"

MISSING = f"no scenarios in {FOLDER}: set ALLOCATOR_SHARED to the folder that holds them"

_MODULES = ("build", "advance", "scenarios")


@contextmanager
def _first_on_the_path(folder: Path) -> Iterator[None]:
    """Imports from that folder; afterwards its modules are forgotten, since `build` is also the name of a package."""
    hidden = {name: sys.modules.pop(name) for name in _MODULES if name in sys.modules}
    sys.path.insert(0, str(folder))
    try:
        yield
    finally:
        sys.path.remove(str(folder))
        for name in _MODULES:
            sys.modules.pop(name, None)
        sys.modules.update(hidden)


def _load() -> tuple[Any, ...]:
    if not (FOLDER / "scenarios.py").is_file():
        return (None,) * len(_MODULES)
    with _first_on_the_path(FOLDER):
        return tuple(import_module(name) for name in _MODULES)


build, advance, scenarios = _load()

SCENARIOS: dict[str, Any] = {} if scenarios is None else {scenario.name: scenario for scenario in scenarios.SCENARIOS}
