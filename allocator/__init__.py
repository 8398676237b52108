"""Epoch allocator for shared GPU clusters: a snapshot of the cluster in, a proven and explained decision out.

    import allocator

    snapshot = allocator.load_snapshot("snapshot.json")
    decision = allocator.allocate(snapshot, time_limit=5)
    assert allocator.verify(snapshot, decision).ok
    later = allocator.apply(snapshot, decision, advance=60)

Everything is imported on first use, so that `import allocator` costs nothing.
"""

from __future__ import annotations

import sys
from importlib import import_module, metadata
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from allocator.domain import Decision as Decision
    from allocator.domain import Snapshot as Snapshot
    from allocator.domain import SnapshotError as SnapshotError
    from allocator.engine import Session as Session
    from allocator.engine import allocate as allocate
    from allocator.transition import apply as apply
    from allocator.transition import finish as finish
    from allocator.verify import verify as verify
    from allocator.wire import decode_decision as decode_decision
    from allocator.wire import decode_snapshot as decode_snapshot
    from allocator.wire import encode_decision as encode_decision
    from allocator.wire import encode_snapshot as encode_snapshot
    from allocator.wire import load_decision as load_decision
    from allocator.wire import load_snapshot as load_snapshot
    from allocator.wire import snapshot_digest as snapshot_digest

_HOMES = {
    "Decision": "domain",
    "Session": "engine",
    "Snapshot": "domain",
    "SnapshotError": "domain",
    "allocate": "engine",
    "apply": "transition",
    "decode_decision": "wire",
    "decode_snapshot": "wire",
    "encode_decision": "wire",
    "encode_snapshot": "wire",
    "finish": "transition",
    "load_decision": "wire",
    "load_snapshot": "wire",
    "snapshot_digest": "wire",
}
"""By public name, the part of the package it comes from."""

__all__ = ["Decision", "Session", "Snapshot", "SnapshotError", "__version__", "allocate", "apply", "decode_decision"]
__all__ += ["decode_snapshot", "encode_decision", "encode_snapshot", "finish", "load_decision", "load_snapshot"]
__all__ += ["snapshot_digest", "verify"]

try:
    __version__ = metadata.version("gpu-epoch-allocator")
except metadata.PackageNotFoundError:  # a checkout that is not installed
    __version__ = "0+unknown"


class _Verifier(ModuleType):
    """The module `allocator.verify`, which can be called like the function of that name in it."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.verify(*args, **kwargs)


class _Package(ModuleType):
    """The package itself. Importing a part of it binds the part's name here; `verify` is to be the function all the same."""

    def __setattr__(self, name: str, value: Any) -> None:
        if name == "verify" and isinstance(value, ModuleType):
            value.__class__ = _Verifier
        super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package


def __getattr__(name: str) -> Any:
    """Import a public name on first use."""
    if name == "verify":
        return import_module("allocator.verify")
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"allocator.{_HOMES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
