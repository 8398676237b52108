"""The map: which allocation is on which node at an hour, laid out by the topology."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from allocator.pages.figure import Sign, Table, signs_of, table
from allocator.pages.palette import DOWN, DRAIN, IDLE, LETTERS, MARKS, REST, ROLE_OF
from allocator.pages.source import Run
from allocator.pages.thin import spans_of
from allocator.pages.words import instant
from allocator.replay.tables import LEVEL, PLACES

if TYPE_CHECKING:
    import pandas as pd

Ints = npt.NDArray[np.int64]

PIECES = 8
"""Each cell of the map is shown in eighths: GPUs of a node, shares of a larger domain."""

MOST_CELLS = 512
MOST_LETTERS = 300_000
"""Of a map with all its hours: cells x eighths x hours; with more, hours are left out evenly."""

KINDS = (*LETTERS, REST, DRAIN, DOWN, IDLE)
"""What an eighth may be."""


OTHERS = {IDLE: "idle", DRAIN: "wanted empty", DOWN: "dead"}
"""What nobody holds, in words."""


@dataclass(frozen=True, slots=True)
class Group:
    """Cells that lie in one domain; `name` is its path."""

    name: str
    cells: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Floor:
    """The map of a replay.

    Attributes
    ----------
    unit
        What a cell is: a node, or a level of the topology.
    groups
        The cells, in the order of `states`.
    hours
        The instants that can be chosen, in words.
    states
        For each instant the eighths of all cells, `PIECES` letters each.
    chosen
        The instant that is shown first: with most GPUs in use.
    legend
        What letters mean.
    names
        The allocation of each letter, for the script of the page.
    table
        The same in words for the chosen instant.
    """

    key: str
    unit: str
    groups: tuple[Group, ...]
    hours: tuple[str, ...]
    states: tuple[str, ...]
    chosen: int
    legend: tuple[Sign, ...]
    names: Mapping[str, str]
    table: Table

    @property
    def state(self) -> list[str]:
        """The eighths of each cell at the chosen instant."""
        return eighths(self.states[self.chosen])


def eighths(state: str) -> list[str]:
    """The letters of each cell."""
    return [state[place : place + PIECES] for place in range(0, len(state), PIECES)]


def floor_of(run: Run) -> Floor | None:
    """The map, or None if the results were written without places."""
    frames = run.frames
    if any(name not in frames for name in PLACES) or frames["nodes"].empty:
        return None
    cells = _cells(frames["nodes"])
    moments = _moments(run, len(cells.gpus))
    runs, closures = _laid_runs(run, cells.nodes), _laid_closures(run, cells.nodes)
    counts = [_counts(moment, cells, runs, closures) for moment in moments]
    states = tuple("".join(_in_eighths(row) for row in count) for count in counts)
    busy = [int(count[:, : KINDS.index(REST) + 1].sum()) for count in counts]
    chosen = int(np.argmax(busy))
    seen = [kind for place, kind in enumerate(KINDS) if any(count[:, place].any() for count in counts)]
    names = {letter: run.names.name(letter) for letter in (*LETTERS, REST) if letter in seen}
    names |= OTHERS
    words = table(
        (cells.unit, "where", "who"),
        (
            (cell, group.name, in_words(state, names))
            for (cell, group), state in zip(cells.placed, eighths(states[chosen]), strict=True)
        ),
        "placements.csv",
    )
    return Floor(
        f"{run.key}-floor", cells.unit, cells.groups, tuple(f"{instant(moment)} UTC" for moment in moments), states, chosen,
        _legend(run, seen), names, words,
    )  # fmt: skip


def in_words(state: str, names: Mapping[str, str]) -> str:
    """Who is on a cell, in words; the script of the page says it the same way."""
    parts = {letter: state.count(letter) for letter in dict.fromkeys(state)}
    return ", ".join(f"{letter} {names[letter]} {count}/{PIECES}" if letter in LETTERS else f"{names[letter]} {count}/{PIECES}"
                     for letter, count in parts.items())  # fmt: skip


def label_of(state: str) -> str:
    """The letters that stand on a cell: of its largest holder, and a plus if there are others."""
    held = {letter for letter in state if letter in LETTERS or letter == REST}
    held_most = sorted(held, key=lambda letter: (-state.count(letter), letter == REST, letter))
    if held_most:
        return held_most[0] + (REST if len(held) > 1 and held_most[0] != REST else "")
    return MARKS[state[0]]


def gradient(state: str) -> str:
    """The eighths of a cell as the colours of a bar."""
    stops, begin = [], 0
    for place in range(1, PIECES + 1):
        if place == PIECES or state[place] != state[begin]:
            stops.append(f"var(--{ROLE_OF[state[begin]]}) {begin * 100 / PIECES:g}% {place * 100 / PIECES:g}%")
            begin = place
    return f"linear-gradient(90deg,{','.join(stops)})"


@dataclass(frozen=True, slots=True)
class _Cells:
    """Cells, in the order of their domains, with the GPUs of each, shape (num_cells,). `nodes` are the places of nodes in
    `of_node`, which says in which cell each is, shape (num_nodes,)."""

    unit: str
    groups: tuple[Group, ...]
    gpus: Ints
    nodes: Mapping[str, int]
    of_node: Ints

    @property
    def placed(self) -> list[tuple[str, Group]]:
        """Each cell with its group."""
        return [(cell, group) for group in self.groups for cell in group.cells]


def _cells(nodes: pd.DataFrame) -> _Cells:
    """Nodes; or, if they are too many, the finest domains that are few enough."""
    levels = [name for name in nodes.columns if name.startswith(LEVEL)]
    unit, keys = "node", [*levels, "node"]
    while len(nodes.groupby(["pool", *keys])) > MOST_CELLS and len(keys) > 1:
        keys = keys[:-1]
        unit = keys[-1].removeprefix(LEVEL)
    grouped = nodes.groupby(["pool", *keys], sort=True)
    paths = [tuple(map(str, path)) for path, _ in grouped]
    members: dict[str, list[str]] = {}
    for path in paths:
        members.setdefault(" > ".join(path[:-1]), []).append(path[-1])
    groups = tuple(Group(name, tuple(cells)) for name, cells in members.items())
    places = {str(node): place for place, node in enumerate(nodes.node)}
    return _Cells(unit, groups, _ints(grouped.gpus.sum()), places, _ints(grouped.ngroup()))


def _moments(run: Run, num_cells: int) -> list[int]:
    """The instants that can be chosen: the middles of spans, as many as fit."""
    spans = spans_of(run.start, run.end, most=max(1, min(168, MOST_LETTERS // (PIECES * num_cells))))
    return [int(edge) for edge in (spans.edges[:-1] + spans.edges[1:]) // 2]


@dataclass(frozen=True, slots=True)
class _Laid:
    """GPUs of runs, or of closed nodes, from `start` to `end` on a node; arrays of one length. `kind` indexes KINDS."""

    start: Ints
    end: Ints
    node: Ints
    kind: Ints
    gpus: Ints

    def at(self, moment: int) -> _Laid:
        """What is there at an instant."""
        now = (self.start <= moment) & (moment < self.end)
        return _Laid(*(values[now] for values in (self.start, self.end, self.node, self.kind, self.gpus)))


def _laid_runs(run: Run, nodes: Mapping[str, int]) -> _Laid:
    frames = run.frames
    runs = frames["runs"][["job", "number", "start", "end"]]
    rows = frames["placements"].merge(runs, on=["job", "number"])
    projects = frames["jobs"].set_index("job").project
    kinds = {job: KINDS.index(run.names.letter(project)) for job, project in projects.items()}
    return _Laid(*map(_ints, (rows.start, rows.end, rows.node.map(nodes), rows.job.map(kinds), rows.gpus)))


def _laid_closures(run: Run, nodes: Mapping[str, int]) -> _Laid:
    rows = run.frames["closures"]
    kinds = rows.state.map({"down": KINDS.index(DOWN), "drain": KINDS.index(DRAIN)})
    gpus = rows.node.map(run.frames["nodes"].set_index("node").gpus)
    return _Laid(*map(_ints, (rows.start, rows.end, rows.node.map(nodes), kinds, gpus)))


def _ints(values: pd.Series) -> Ints:
    return values.to_numpy(dtype=np.int64)


def _counts(moment: int, cells: _Cells, runs: _Laid, closures: _Laid) -> Ints:
    """GPUs of each cell by kind at an instant, shape (num_cells, len(KINDS)); of a closed node those that nobody holds."""
    found = np.zeros((len(cells.gpus), len(KINDS)), dtype=np.int64)
    now, closed = runs.at(moment), closures.at(moment)
    np.add.at(found, (cells.of_node[now.node], now.kind), now.gpus)
    used = np.zeros(len(cells.of_node), dtype=np.int64)
    np.add.at(used, now.node, now.gpus)
    np.add.at(found, (cells.of_node[closed.node], closed.kind), closed.gpus - used[closed.node])
    found[:, KINDS.index(IDLE)] = cells.gpus - found.sum(axis=1)
    return found


def _in_eighths(counts: Ints) -> str:
    """Eighths by largest remainder, so that they add up; equal remainders in the order of kinds."""
    whole = int(counts.sum())
    exact = counts * PIECES
    parts = exact // whole
    order = np.argsort(-(exact % whole), kind="stable")
    parts[order[: PIECES - int(parts.sum())]] += 1
    return "".join(kind * int(part) for kind, part in zip(KINDS, parts, strict=True))


def _legend(run: Run, seen: Sequence[str]) -> tuple[Sign, ...]:
    """Allocations in use, and what else an eighth may be."""
    named = signs_of(run.names, [kind for kind in seen if kind in LETTERS or kind == REST])
    return (*named, *(Sign(ROLE_OF[kind], text, letter=MARKS[kind]) for kind, text in OTHERS.items() if kind in seen))
