"""A cluster from an `ibnetdiscover` dump of a rail-optimised fabric.

Adapters are hosts by the first word of their description (`a08-p1-dgx-04-c01 mlx5_5`). Hosts that share leaf switches form
a leaf group; where the hosts are 4-GPU trays in groups of up to 18, the group is an NVL72 rack, an NVLink domain. Groups
below the same second tier of switches form a unit, and what is connected at all forms a fabric.

Real dumps are incomplete. Adapters without a host name are counted as trays where more than half of the rails of a group
have one more of them, and named by the identifier of the first; missing leaf switches and links are reported. Aggregation
nodes and hosts with too few adapters (managers of the fabric) are left out, and reported.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction

import networkx as nx

from allocator.domain import Cluster, Node
from allocator.generate.files import refuse

TRAYS_PER_RACK = 18
SLOWDOWN = Fraction(1, 100)
"""Share of speed lost per further domain, the same at every level; a decimal, so that it survives JSON."""

_DEVICE = re.compile(r'^(Switch|Ca|Rt)\s+\d+\s+"([^"]+)"\s*#\s*"([^"]*)"')
_CABLE = re.compile(r'^\[(\d+)\](?:\([0-9a-fA-F]+\))?\s+"([^"]+)"\[(\d+)\]')
_HOST = re.compile(r"^(\S+)\s+(?:HCA-\d+|mlx\d+_\d+|[a-z]+\d+\w*)$")
_GENERIC = re.compile(r"^(MT\d+|localhost|ubuntu|\(none\)|unknown|Mellanox|NVIDIA)\b", re.IGNORECASE)
_AGGREGATION = "Aggregation Node"


@dataclass(slots=True)
class Fabric:
    """The dump as a graph: vertices are devices, `cables` counts the parallel cables of an edge."""

    graph: nx.Graph[str] = field(default_factory=nx.Graph)
    description: dict[str, str] = field(default_factory=dict)
    switches: set[str] = field(default_factory=set)
    port: dict[tuple[str, str], int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """A leaf group: its switches, its named hosts and its nameless trays."""

    name: str
    switches: tuple[str, ...]
    hosts: tuple[str, ...]
    nameless: tuple[str, ...]


def looks_like_fabric(text: str) -> bool:
    """Whether this is the output of ibnetdiscover."""
    return re.search(r'^Switch\s+\d+\s+"S-', text, re.MULTILINE) is not None


def read_fabric(
    text: str, place: str, *, pool: str | None = None, gpus_per_node: int | None = None
) -> tuple[Cluster, tuple[str, ...]]:
    """The cluster behind a dump, and notes on what the dump leaves open."""
    fabric = _parse(text)
    adapters = _adapters_by_host(fabric)
    hosts, rails, notes = _compute_hosts(adapters)
    if not hosts:
        raise refuse(place, "names no host with more than one adapter", "run ibnetdiscover with node descriptions set")
    groups = _find_groups(fabric, hosts, rails, notes)
    gpus = rails if gpus_per_node is None else gpus_per_node
    racks = gpus == 4 and all(len(group.hosts) + len(group.nameless) <= TRAYS_PER_RACK for group in groups)
    level = "nvlink" if racks else "leaf"
    notes.extend(_missing(fabric, groups))
    units = _find_units(fabric, groups)
    own_pool = ("gb200" if racks else "h100") if pool is None else pool
    many = len({unit[0] for unit in units.values()}) > 1
    nodes = [
        Node(
            name=name,
            pool=f"{own_pool}-{units[group.name][0]}" if many else own_pool,
            gpus=gpus,
            domains=(*units[group.name], group.name),
        )
        for group in groups
        for name in (*group.hosts, *group.nameless)
    ]
    slowdown = {"su": SLOWDOWN, level: SLOWDOWN}
    return Cluster(levels=("cluster", "su", level, "node"), nodes=tuple(nodes), slowdown=slowdown), tuple(notes)


def _parse(text: str) -> Fabric:
    """Devices and cables; every cable is listed at both ends and counted once."""
    fabric = Fabric()
    device = None
    cables: set[frozenset[tuple[str, int]]] = set()
    for line in text.splitlines():
        if match := _DEVICE.match(line):
            device = match[2]
            fabric.description[device] = match[3]
            fabric.graph.add_node(device)
            if match[1] == "Switch":
                fabric.switches.add(device)
        elif device is not None and (match := _CABLE.match(line)):
            here, there = (device, int(match[1])), (match[2], int(match[3]))
            fabric.port[device, match[2]] = int(match[1])
            cables.add(frozenset((here, there)))
            if match[2].startswith("S-"):
                fabric.switches.add(match[2])
    for cable in sorted(sorted(cable) for cable in cables):
        if len(cable) == 2:
            first, second = cable[0][0], cable[1][0]
            known = fabric.graph.get_edge_data(first, second, {"cables": 0})["cables"]
            fabric.graph.add_edge(first, second, cables=known + 1)
    return fabric


def _adapters_by_host(fabric: Fabric) -> dict[str, list[str]]:
    """Adapters of each named host."""
    hosts: dict[str, list[str]] = {}
    for device, description in sorted(fabric.description.items()):
        match = _HOST.match(description)
        if device in fabric.switches or _AGGREGATION in description or _GENERIC.match(description) or not match:
            continue
        hosts.setdefault(match[1], []).append(device)
    return hosts


def _compute_hosts(adapters: Mapping[str, Sequence[str]]) -> tuple[dict[str, Sequence[str]], int, list[str]]:
    """Hosts with at least three quarters of the usual number of adapters (a rail may be unseen), and that number."""
    if not adapters:
        return {}, 0, []
    counts = Counter(len(devices) for devices in adapters.values())
    rails = max(counts, key=lambda count: (counts[count], count))
    compute = {host: devices for host, devices in adapters.items() if 4 * len(devices) >= 3 * rails and len(devices) > 1}
    others = sorted(set(adapters) - set(compute))
    notes = [f"hosts with fewer than {rails} adapters left out: {', '.join(others)}"] if others else []
    return compute, rails, notes


def _find_groups(fabric: Fabric, hosts: Mapping[str, Sequence[str]], rails: int, notes: list[str]) -> list[Group]:
    """Connected components of hosts and the leaf switches that they share, with their nameless trays."""
    shared: nx.Graph[str] = nx.Graph()
    for host, devices in hosts.items():
        for device in devices:
            shared.add_edges_from((f"host {host}", switch) for switch in fabric.graph[device] if switch in fabric.switches)
    groups, spare = [], 0
    components = sorted((sorted(component) for component in nx.connected_components(shared)), key=_first_host)
    for component in components:
        switches = tuple(vertex for vertex in component if vertex in fabric.switches)
        named = tuple(vertex.removeprefix("host ") for vertex in component if vertex not in fabric.switches)
        nameless, left = _nameless_trays(fabric, switches)
        spare += left
        groups.append(Group(name=_group_name(fabric, named, switches), switches=switches, hosts=named, nameless=nameless))
    groups = _make_unique(fabric, groups)
    count = sum(len(group.nameless) for group in groups)
    if count:
        where = ", ".join(f"{group.name} {len(group.nameless)}" for group in groups if group.nameless)
        notes.append(f"{count} trays without a host name are called unnamed-<adapter>: {where}")
    if spare:
        notes.append(f"{spare} adapters without a host name belong to no tray of {rails} rails and are left out")
    return groups


def _first_host(component: Iterable[str]) -> str:
    return min(vertex for vertex in component if vertex.startswith("host "))


def _nameless_trays(fabric: Fabric, switches: Sequence[str]) -> tuple[tuple[str, ...], int]:
    """Trays behind adapters without a name: the k-th exists where most rails have a k-th such adapter, by port."""
    by_rail = []
    for switch in switches:
        nameless = [
            device
            for device in fabric.graph[switch]
            if device not in fabric.switches
            and _AGGREGATION not in fabric.description.get(device, "")
            and _GENERIC.match(fabric.description.get(device, ""))
        ]
        by_rail.append(sorted(nameless, key=lambda device: (fabric.port.get((switch, device), 0), device)))
    trays: list[str] = []
    while 2 * sum(len(rail) > len(trays) for rail in by_rail) > len(by_rail):
        first = next(rail[len(trays)] for rail in by_rail if len(rail) > len(trays))
        trays.append(f"unnamed-{first.removeprefix('H-')}")
    return tuple(trays), sum(max(0, len(rail) - len(trays)) for rail in by_rail)


def _group_name(fabric: Fabric, hosts: Sequence[str], switches: Sequence[str]) -> str:
    """What the host names have in common up to the last separator, or the first leaf switch."""
    first, last = min(hosts), max(hosts)
    length = next((index for index, (one, other) in enumerate(zip(first, last, strict=False)) if one != other), 0)
    common = first[:length]
    prefix = re.match(r"^(.*[^\W_])[-_.]", common)
    return prefix[1] if prefix else _switch_name(fabric, switches[0])


def _make_unique(fabric: Fabric, groups: list[Group]) -> list[Group]:
    """Groups whose hosts have the same prefix are called after their switches."""
    counts = Counter(group.name for group in groups)
    return [
        group
        if counts[group.name] == 1
        else Group(
            name=_switch_name(fabric, min(group.switches, key=lambda switch: _switch_name(fabric, switch))),
            switches=group.switches,
            hosts=group.hosts,
            nameless=group.nameless,
        )
        for group in groups
    ]


def _switch_name(fabric: Fabric, switch: str) -> str:
    """The name inside a switch description such as `MF0;A09-P1-IBLEAF-04-04:MQM9701/U1`; its identifier without one."""
    match = re.match(r"^(?:MF0;)?([^:;]+)", fabric.description.get(switch, ""))
    return match[1] if match and not _GENERIC.match(match[1]) else switch


def _find_units(fabric: Fabric, groups: Sequence[Group]) -> dict[str, tuple[str, str]]:
    """Fabric and unit of each group: what is connected, and what is connected through at most two tiers of switches."""
    switches = fabric.graph.subgraph(fabric.switches)
    leaves = [switch for group in groups for switch in group.switches]
    tier = nx.multi_source_dijkstra_path_length(switches, set(leaves), weight=None)
    inner = switches.subgraph([switch for switch, distance in tier.items() if distance <= 1])
    fabrics = [component for component in nx.connected_components(switches) if component & set(leaves)]
    units = [component for component in nx.connected_components(inner) if component & set(leaves)]
    fabric_order = sorted(fabrics, key=lambda component: _first_group(groups, component))
    unit_order = sorted(units, key=lambda component: _first_group(groups, component))
    found = {}
    for group in groups:
        leaf = group.switches[0]
        fabric_number = next(number for number, component in enumerate(fabric_order, start=1) if leaf in component)
        unit_number = next(number for number, component in enumerate(unit_order, start=1) if leaf in component)
        found[group.name] = (f"fabric{fabric_number}", f"su{unit_number}")
    return found


def _first_group(groups: Sequence[Group], component: set[str]) -> str:
    return min(group.name for group in groups if component & set(group.switches))


def _missing(fabric: Fabric, groups: Sequence[Group]) -> list[str]:
    """Notes on leaf switches and links that other groups have and these have not."""
    notes: list[str] = []
    usual = Counter(len(group.switches) for group in groups).most_common(1)[0][0]
    notes.extend(
        f"group {group.name}: {len(group.switches)} of {usual} leaf switches seen"
        for group in groups
        if len(group.switches) < usual
    )
    trays = {group.name: len(group.hosts) + len(group.nameless) for group in groups}
    most = max(trays.values())
    fewer = [f"{name} {most - count}" for name, count in trays.items() if count < most]
    if fewer:
        notes.append(f"hosts fewer than the {most} of the largest group, not seen at all: {', '.join(fewer)}")
    uplinks = {switch: _uplinks(fabric, switch) for group in groups for switch in group.switches}
    full = max(uplinks.values(), default=0)
    thin = sorted(_switch_name(fabric, switch) for switch, count in uplinks.items() if count < full)
    if thin:
        absent = sum(full - count for count in uplinks.values())
        notes.append(f"{absent} links of {full * len(uplinks)} between leaf and spine switches not seen, at {', '.join(thin)}")
    return notes


def _uplinks(fabric: Fabric, switch: str) -> int:
    return sum(int(edge["cables"]) for peer, edge in fabric.graph[switch].items() if peer in fabric.switches)
