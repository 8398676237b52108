"""Slurm's topology.conf as topology levels.

Tree form (`SwitchName=leaf1 Nodes=n[001-032]`, `SwitchName=spine Switches=leaf[1-4]`): every tier of switches becomes a
level; a branch that is shallower than the others repeats its name. Several roots are fabrics of their own, and as no gang
may span them, pools of their own. Block form (`BlockName=b1 Nodes=..`, `BlockSizes=18,36`): a block is an NVLink domain,
and each further size a level of that many nodes, made of consecutive blocks as Slurm does.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction

import networkx as nx

from allocator.domain import Cluster, Issue, Node, SnapshotError
from allocator.generate.files import refuse
from allocator.generate.hostlist import expand_hosts

TIER_NAMES = ("leaf", "su", "core")
CLUSTER_NAME = "fabric"
TREE_GPUS, BLOCK_GPUS = 8, 4
TREE_POOL, BLOCK_POOL = "h100", "gb200"
SLOWDOWN = Fraction(1, 100)
"""Share of speed lost per further domain, the same at every level; a decimal, so that it survives JSON."""

_KEY = re.compile(r"(\w+)\s*=\s*(\S+)")


@dataclass(slots=True)
class Lines:
    """The statements of a file with their line numbers, and the issues found so far."""

    place: str
    switches: dict[str, tuple[int, list[str], list[str]]] = field(default_factory=dict)
    blocks: dict[str, tuple[int, list[str]]] = field(default_factory=dict)
    block_sizes: list[int] = field(default_factory=list)
    issues: list[Issue] = field(default_factory=list)

    def complain(self, line: int, problem: str, remedy: str) -> None:
        """Note an issue of a line."""
        self.issues.append(Issue(path=f"{self.place}, line {line}", problem=problem, remedy=remedy))


def looks_like_slurm(text: str) -> bool:
    """Whether this is a topology.conf."""
    return re.search(r"^\s*(SwitchName|BlockName)\s*=", text, re.IGNORECASE | re.MULTILINE) is not None


def read_slurm_topology(
    text: str, place: str, *, pool: str | None = None, gpus_per_node: int | None = None
) -> tuple[Cluster, tuple[str, ...]]:
    """The cluster of a topology.conf, and notes. Every problem of the file is reported at once."""
    lines = _parse(text, place)
    if lines.switches and lines.blocks:
        lines.complain(1, "both SwitchName and BlockName are given", "give one form per file")
    if lines.issues:
        raise SnapshotError(lines.issues)
    if lines.blocks:
        return _from_blocks(lines, pool or BLOCK_POOL, gpus_per_node or BLOCK_GPUS)
    return _from_tree(lines, pool or TREE_POOL, gpus_per_node or TREE_GPUS)


def _parse(text: str, place: str) -> Lines:
    lines = Lines(place=place)
    for number, raw in enumerate(text.splitlines(), start=1):
        line = raw.split("#", 1)[0].strip()
        if not line:
            continue
        fields = {key.lower(): value for key, value in _KEY.findall(line)}
        try:
            _take_line(lines, number, fields)
        except ValueError as error:
            lines.complain(number, str(error), "write names as in n[001-032],n040")
    return lines


def _take_line(lines: Lines, number: int, fields: Mapping[str, str]) -> None:
    if "switchname" in fields:
        names = expand_hosts(fields["switchname"])
        nodes, children = expand_hosts(fields.get("nodes", "")), expand_hosts(fields.get("switches", ""))
        if len(names) != 1 or names[0] in lines.switches:
            lines.complain(number, f"switch {fields['switchname']} is not one new name", "give each switch one line of its own")
            return
        if not nodes and not children:
            lines.complain(number, f"switch {names[0]} has neither Nodes nor Switches", "name what it connects")
        lines.switches[names[0]] = (number, nodes, children)
    elif "blockname" in fields:
        name = fields["blockname"]
        if name in lines.blocks:
            lines.complain(number, f"block {name} is given twice", "give each block one line")
            return
        lines.blocks[name] = (number, expand_hosts(fields.get("nodes", "")))
    elif "blocksizes" in fields:
        sizes = fields["blocksizes"].split(",")
        if not all(size.isdigit() and int(size) > 0 for size in sizes):
            lines.complain(number, f"BlockSizes={fields['blocksizes']}", "give positive numbers of nodes, smallest first")
            return
        lines.block_sizes = sorted(int(size) for size in sizes)
    else:
        lines.complain(number, "the line is neither a switch, a block nor BlockSizes", "remove it, or comment it out")


def _from_blocks(lines: Lines, pool: str, gpus_per_node: int) -> tuple[Cluster, tuple[str, ...]]:
    """Blocks are NVLink domains; the larger sizes are levels above them."""
    _check_nodes_once(lines, [(number, nodes) for number, nodes in lines.blocks.values()])
    notes = []
    base = lines.block_sizes[0] if lines.block_sizes else max(len(nodes) for _, nodes in lines.blocks.values())
    larger = [size for size in lines.block_sizes[1:] if size % base == 0]
    if len(larger) + 1 < len(lines.block_sizes):
        notes.append(f"BlockSizes that are no multiple of {base} are left out")
    levels = ("cluster", *(f"block{size}" for size in reversed(larger)), "nvlink", "node")
    nodes: list[Node] = []
    for position, (block, (_, names)) in enumerate(lines.blocks.items()):
        if len(names) < base:
            notes.append(f"block {block} has {len(names)} of {base} nodes")
        above = [f"block{size}-{position // (size // base) + 1}" for size in reversed(larger)]
        nodes.extend(Node(name=name, pool=pool, gpus=gpus_per_node, domains=(CLUSTER_NAME, *above, block)) for name in names)
    slowdown = dict.fromkeys(levels[1:-1], SLOWDOWN)
    return Cluster(levels=levels, nodes=tuple(nodes), slowdown=slowdown), tuple(notes)


def _from_tree(lines: Lines, pool: str, gpus_per_node: int) -> tuple[Cluster, tuple[str, ...]]:
    """Every tier of switches is a level; roots are fabrics."""
    tree = _build_tree(lines)
    paths = {switch: path for switch, path in _leaf_paths(tree).items() if lines.switches[switch][1]}
    depth = max(len(path) for path in paths.values())
    roots = list(dict.fromkeys(path[0] for path in paths.values()))
    notes = []
    ragged = sorted(switch for switch, path in paths.items() if len(path) < depth)
    if ragged:
        notes.append(f"switches less deep than others, names repeated: {', '.join(ragged)}")
    if len(roots) > 1:
        notes.append(f"{len(roots)} separate fabrics, a pool for each: {', '.join(roots)}")
    # A single switch tier is the leaf tier of one fabric; otherwise the roots are the fabrics.
    flat = depth == 1
    levels = ("cluster", *reversed(_tier_names(depth if flat else depth - 1)), "node")
    nodes: list[Node] = []
    for switch, (_, names, _) in lines.switches.items():
        if not names:
            continue
        path = paths[switch]
        padded = (*path, *[switch] * (depth - len(path)))
        domains = (CLUSTER_NAME, *padded) if flat else padded
        own = pool if flat or len(roots) == 1 else f"{pool}-{path[0]}"
        nodes.extend(Node(name=name, pool=own, gpus=gpus_per_node, domains=domains) for name in names)
    slowdown = dict.fromkeys(levels[1:-1], SLOWDOWN)
    return Cluster(levels=levels, nodes=tuple(nodes), slowdown=slowdown), tuple(notes)


def _tier_names(tiers: int) -> list[str]:
    """Level names from the leaf tier upwards."""
    return [TIER_NAMES[tier] if tier < len(TIER_NAMES) else f"tier{tier + 1}" for tier in range(tiers)]


def _build_tree(lines: Lines) -> nx.DiGraph[str]:
    """The switches as a forest, or every reason why they are none."""
    tree: nx.DiGraph[str] = nx.DiGraph()
    tree.add_nodes_from(lines.switches)
    for switch, (number, _, children) in lines.switches.items():
        for child in children:
            if child not in lines.switches:
                lines.complain(number, f"switch {child} is not defined", "add its line, or remove it here")
            elif tree.in_degree(child):
                lines.complain(number, f"switch {child} hangs under two switches", "keep one of them")
            else:
                tree.add_edge(switch, child)
    _check_nodes_once(lines, [(number, nodes) for number, nodes, _ in lines.switches.values()])
    if not nx.is_directed_acyclic_graph(tree):
        circle = " > ".join(edge[0] for edge in nx.find_cycle(tree))
        lines.complain(lines.switches[circle.split(" > ")[0]][0], f"switches form a circle: {circle}", "break it")
    if not any(nodes for _, nodes, _ in lines.switches.values()):
        lines.complain(1, "no switch has nodes", "add Nodes= to the leaf switches")
    if lines.issues:
        raise SnapshotError(lines.issues)
    return tree


def _leaf_paths(tree: nx.DiGraph[str]) -> dict[str, tuple[str, ...]]:
    """Path from its root to each switch."""
    paths: dict[str, tuple[str, ...]] = {}
    for switch in nx.topological_sort(tree):
        above = next(iter(tree.predecessors(switch)), None)
        paths[switch] = (*(paths[above] if above is not None else ()), switch)
    return paths


def _check_nodes_once(lines: Lines, groups: list[tuple[int, list[str]]]) -> None:
    seen: dict[str, int] = {}
    for number, names in groups:
        for name in names:
            if name in seen:
                lines.complain(number, f"node {name} is given in line {seen[name]} too", "keep it in one place")
            seen[name] = number
    if lines.issues:
        raise SnapshotError(lines.issues)
    if not seen:
        raise refuse(lines.place, "names no node", "add Nodes= to the switches or blocks")
