"""What can be run, by name: suites, instances of `families.toml`, families, folders and files."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from allocator.bench.documents import FamiliesDoc, GeneratedDoc, SuiteDoc, read_toml
from allocator.bench.instances import ENTRY, SNAPSHOT, Instance, Known, from_file, generated
from allocator.bench.record import read_record
from allocator.bench.runs import Case
from allocator.domain import Issue, SnapshotError

FAMILIES_FILE, BOUNDS_FILE = "families.toml", "bounds.csv"

DEFAULT_SUITE = "smoke"
DEFAULT_ENGINES = ("portfolio",)
DEFAULT_BUDGETS = (10.0,)


def find_folder(given: Path | None) -> Path:
    """The folder of the instances: as given, `instances` where one is, or that of the checkout which this code lies in.

    Raises
    ------
    SnapshotError
        If there is none.
    """
    tried = [given] if given else [Path("instances"), Path(__file__).resolve().parents[2] / "instances"]
    for folder in tried:
        if (folder / FAMILIES_FILE).is_file():
            return folder
    problem = f"no {FAMILIES_FILE} in {' or '.join(map(str, tried))}"
    raise SnapshotError([Issue(path="instances", problem=problem, remedy="run in a checkout, or name its folder instances/")])


@dataclass(frozen=True, slots=True)
class Catalogue:
    """The content of a folder of instances."""

    folder: Path
    doc: FamiliesDoc
    known: Mapping[tuple[str, int], Known]

    @classmethod
    def open(cls, given: Path | None = None) -> Catalogue:
        """Read `families.toml`, and the known bounds if there are any; every instance of a suite must exist."""
        folder = find_folder(given)
        rows = read_record(folder / BOUNDS_FILE) if (folder / BOUNDS_FILE).exists() else []
        known = {(row.instance, row.seed): row for row in rows}
        found = cls(folder, read_toml(folder / FAMILIES_FILE, FamiliesDoc), known)
        for suite in found.doc.suite.values():
            for part in suite.parts:
                found.generated(part.instance)
        return found

    def generated(self, name: str) -> GeneratedDoc:
        """The generated instance of a name."""
        for doc in self.doc.instance:
            if doc.name == name:
                return doc
        raise self._unknown(name)

    def folders(self) -> list[Path]:
        """All instances that are folders with a snapshot and an entry."""
        return sorted(path.parent for path in self.folder.glob(f"*/*/{ENTRY}") if (path.parent / SNAPSHOT).is_file())

    def cases(
        self,
        names: Sequence[str],
        *,
        engines: Sequence[str] = (),
        budgets: Sequence[float] = (),
        seeds: Sequence[int] = (),
    ) -> list[Case]:
        """All runs that the names stand for; engines, budgets and seeds that are given replace those of suites."""
        cases: list[Case] = []
        for name in names or (DEFAULT_SUITE,):
            suite = self.doc.suite.get(name)
            instances = self._of_suite(suite, seeds) if suite else self._named(name, seeds)
            own_engines = engines or (suite.engines if suite else DEFAULT_ENGINES)
            own_budgets = budgets or (suite.budgets if suite else DEFAULT_BUDGETS)
            cases += [
                Case(instance=instance, engine=engine, budget=budget)
                for instance in instances
                for engine in own_engines
                for budget in own_budgets
            ]
        return cases

    def instance(self, name: str, seed: int) -> Instance:
        """A generated instance with a seed, or one that is a folder."""
        if any(doc.name == name for doc in self.doc.instance):
            return self._seed(self.generated(name), seed)
        return next(iter(self._named(name, (seed,))))

    def _of_suite(self, suite: SuiteDoc, seeds: Sequence[int]) -> Iterator[Instance]:
        for part in suite.parts:
            doc = self.generated(part.instance)
            yield from (self._seed(doc, seed) for seed in seeds or part.seeds or doc.seeds)

    def _named(self, name: str, seeds: Sequence[int]) -> Iterable[Instance]:
        """An instance of the catalogue, all of a family, a folder of it, or any snapshot file."""
        docs = [doc for doc in self.doc.instance if doc.name == name]
        docs = docs or [doc for doc in self.doc.instance if doc.family == name]
        if docs:
            return [self._seed(doc, seed) for doc in docs for seed in seeds or doc.seeds]
        inside = [path for path in self.folders() if name in (_relative(path, self.folder), path.parent.name)]
        if inside:
            return [from_file(path, _relative(path, self.folder)) for path in inside]
        path = Path(name)
        if path.is_file() or (path / ENTRY).is_file():
            return [from_file(path, path.name.removesuffix(".gz").removesuffix(".json"))]
        raise self._unknown(name)

    def _seed(self, doc: GeneratedDoc, seed: int) -> Instance:
        return generated(doc, seed, self.known.get((doc.name, seed)))

    def _unknown(self, name: str) -> SnapshotError:
        known = [*self.doc.suite, *sorted({doc.family for doc in self.doc.instance})]
        remedy = f"give a file, an instance (--list shows them), or one of {', '.join(known)}"
        return SnapshotError([Issue(path="name", problem=f"nothing is called {name!r}", remedy=remedy)])


def _relative(path: Path, folder: Path) -> str:
    return path.relative_to(folder).as_posix()
