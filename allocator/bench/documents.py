"""The files that the benchmarks read: families and suites, limits, and what an instance says of itself."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

import msgspec
from msgspec import Meta

from allocator.domain import Issue, SnapshotError

Name = Annotated[str, Meta(pattern=r"^[a-z0-9]+([._/-][a-z0-9]+)*$")]
Seeds = tuple[Annotated[int, Meta(ge=0)], ...]
Positive = Annotated[float, Meta(gt=0)]


class Doc(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """Unknown fields are errors."""


class GeneratedDoc(Doc, kw_only=True):
    """A generated instance: a family of the generator with its parameters; one snapshot for every seed."""

    name: Name
    family: str
    special: Annotated[str, Meta(description="what makes it worth solving")]
    gpus: int | None = None
    pools: int | None = None
    queue: float | None = None
    leaves: int | None = None
    history: bool = True
    seeds: Seeds = (1,)


class PartDoc(Doc, kw_only=True):
    """An instance of a suite, perhaps with seeds of its own."""

    instance: Name
    seeds: Seeds | None = None


class SuiteDoc(Doc, kw_only=True):
    """What runs under one name: instances, engines, and the seconds that each call may take."""

    about: str
    engines: Annotated[list[str], Meta(min_length=1)]
    budgets: Annotated[list[Positive], Meta(min_length=1)]
    parts: list[PartDoc]


class FamiliesDoc(Doc, kw_only=True):
    """The file `families.toml`."""

    version: Literal[1]
    instance: list[GeneratedDoc]
    suite: dict[Name, SuiteDoc]


class SideDoc(Doc, kw_only=True):
    """One side of a ratio: a quantity of the runs of an engine on an instance. `per_gpu` divides it by the GPUs."""

    instance: Name
    engine: str
    quantity: str
    per_gpu: bool = False


class LimitDoc(Doc, kw_only=True):
    """A ratio of medians over the seeds, what it was when it was measured, and how much worse it may become."""

    name: Name
    about: str
    over: SideDoc
    under: SideDoc
    seeds: Seeds
    budget: Positive
    measured: Positive
    tolerance: Annotated[float, Meta(ge=1)]

    @property
    def most(self) -> float:
        """The largest ratio that is accepted."""
        return self.measured * self.tolerance


class LimitsDoc(Doc, kw_only=True):
    """The file `limits.toml`."""

    version: Literal[1]
    limit: list[LimitDoc]


class ProofDoc(Doc, kw_only=True):
    """Who proved optimum or bounds; `by_hand` where the folder has a README.md with the derivation."""

    engine: str
    version: Annotated[str, Meta(description="of the engine and of this package")]
    by_hand: bool = False


class ReservedDoc(Doc, kw_only=True):
    """A reservation that every right answer holds: nodes of a domain, from an instant on."""

    domain: list[str]
    nodes: int
    start: int


class ExpectDoc(Doc, kw_only=True):
    """What every right answer does; lists that are absent are not looked at."""

    starts: list[str] | None = None
    stops: list[str] | None = None
    promotions: list[str] | None = None
    renewals: list[str] | None = None
    placed: Annotated[dict[str, list[str]], Meta(description="by workload that starts: its nodes")] = {}
    reserved: Annotated[dict[str, ReservedDoc] | None, Meta(description="by workload: what is kept for it")] = None
    waits: Annotated[dict[str, str], Meta(description="by workload: the reason code")] = {}


class EntryDoc(Doc, kw_only=True):
    """The file `entry.json` beside a `snapshot.json`: everything about an instance that is not in the snapshot.

    `objective` and bounds are in GPU-seconds. Either `optimum` is given, or `lower_bound` and `upper_bound`.
    """

    version: Literal[1]
    title: Annotated[str, Meta(description="what the situation is, in one sentence", min_length=1)]
    special: Annotated[str, Meta(description="why the right answer is not obvious", min_length=1)]
    optimum: Annotated[float | None, Meta(description="GPU-seconds")] = None
    lower_bound: Annotated[float | None, Meta(description="GPU-seconds")] = None
    upper_bound: Annotated[float | None, Meta(description="GPU-seconds")] = None
    proof: ProofDoc
    licence: Annotated[str, Meta(description="SPDX identifier", min_length=1)]
    source: Annotated[str, Meta(description="who made it, or what it was taken from", min_length=1)]
    expect: ExpectDoc | None = None
    rule: Annotated[str | None, Meta(description="the hard rule that refused.json breaks")] = None
    also_broken: Annotated[list[str], Meta(description="rules that cannot but be broken with it")] = []
    instead: Annotated[str | None, Meta(description="what refused.json does wrong")] = None


DocT = TypeVar("DocT", bound=Doc)


def read_toml(path: Path, kind: type[DocT]) -> DocT:
    """Read a TOML file of one of the kinds above; problems name file and place."""
    return _read(path, kind, msgspec.toml.decode)


def read_entry(path: Path) -> EntryDoc:
    """Read an `entry.json`."""
    entry = _read(path, EntryDoc, msgspec.json.decode)
    bounds = (entry.lower_bound, entry.upper_bound)
    if (entry.optimum is None) == (None in bounds) or (entry.optimum is not None and bounds != (None, None)):
        raise _refusal(path, "neither an optimum nor both bounds, or all of them", "give `optimum`, or both bounds")
    return entry


def entry_schema() -> dict[str, Any]:
    """The JSON Schema of `entry.json`."""
    (schema,), parts = msgspec.json.schema_components([EntryDoc], ref_template="#/$defs/{name}")
    own = parts.pop(schema["$ref"].removeprefix("#/$defs/"))
    rest = _without_doc(parts)
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **_without_doc(own), "$defs": rest}


def _without_doc(value: Any) -> Any:
    """Names of definitions without the suffix that they have in the code."""
    if isinstance(value, Mapping):
        return {key.removesuffix("Doc"): _without_doc(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_without_doc(item) for item in value]
    return value.removesuffix("Doc") if isinstance(value, str) else value


def _read(path: Path, kind: type[DocT], decode: Any) -> DocT:
    try:
        found: DocT = decode(path.read_bytes(), type=kind)
    except OSError as error:
        raise _refusal(path, f"cannot be read ({error.strerror or error})", "give a file that exists") from error
    except (msgspec.DecodeError, ValueError) as error:  # tomllib raises ValueError
        raise _refusal(path, str(error), "see instances/FORMAT.md and docs/benchmarking.md") from error
    return found


def _refusal(path: Path, problem: str, remedy: str) -> SnapshotError:
    return SnapshotError([Issue(path=str(path), problem=problem, remedy=remedy)])
