"""`allocator generate`: snapshots from a seed, from a topology file, and from a job log; traces (see `generate_trace`)."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import typer

from allocator.cli.documents import OutFile, check_writable, write_lines, write_result
from allocator.cli.generate_trace import trace
from allocator.cli.status import tell
from allocator.generate import FAMILIES, generate_on_topology, generate_snapshot
from allocator.generate.instant import parse_span
from allocator.generate.topology_file import TopologyOptions
from allocator.generate.trace_snapshot import snapshot_from_trace
from allocator.wire import encode_snapshot

app = typer.Typer(
    add_completion=False,
    rich_markup_mode=None,
    no_args_is_help=True,
    help="Make snapshots and traces: synthetic ones, or from real topologies and job logs.",
)


@app.callback()
def main() -> None:
    """Make snapshots and traces: synthetic ones, or from real topologies and job logs."""


app.command()(trace)


@app.command()
def families() -> None:
    """List the families of synthetic snapshots."""
    write_lines([f"{name:10} {(family.__doc__ or '').strip().splitlines()[0]}" for name, family in FAMILIES.items()])


@app.command()
def snapshot(
    *,
    seed: Annotated[int, typer.Option(min=0, help="Seed; the same options and seed give the same bytes.")] = 0,
    gpus: Annotated[int | None, typer.Option(help="Installed GPUs; absent: the size of the family, form or trace.")] = None,
    pools: Annotated[int | None, typer.Option(help="1 (h100) or 3 (h100, b200, b300).")] = None,
    queue: Annotated[float | None, typer.Option(help="Running plus waiting demand in clusters; absent: 2.5.")] = None,
    leaves: Annotated[int | None, typer.Option(help="Researchers in the budget tree; absent: by size.")] = None,
    history: Annotated[bool, typer.Option(help="With a week of usage records, or cold.")] = True,
    family: Annotated[str | None, typer.Option(help="See `allocator generate families`; absent: mixed.")] = None,
    from_topology: Annotated[
        Path | None, typer.Option(help="Nodes from an ibnetdiscover dump or a Slurm topology.conf.")
    ] = None,
    gpus_per_node: Annotated[int | None, typer.Option(help="With --from-topology: GPUs of a node.")] = None,
    pool: Annotated[str | None, typer.Option(help="With --from-topology: name of the pool.")] = None,
    from_trace: Annotated[Path | None, typer.Option(help="Work from a job log, as `allocator generate trace --from`.")] = None,
    at: Annotated[str | None, typer.Option(help="With --from-trace: moment since its start, as 86400, 12h or 3d6h.")] = None,
    out: OutFile = None,
) -> None:
    """Write one snapshot."""
    check_writable(out)
    notes: tuple[str, ...] = ()
    if from_trace is not None:
        given = {"--pools": pools, "--queue": queue, "--leaves": leaves, "--family": family, "--from-topology": from_topology}
        _refuse_beside("--from-trace", {**given, "--gpus-per-node": gpus_per_node, "--pool": pool})
        if at is None:
            raise typer.BadParameter("--from-trace needs the moment: give for instance --at 3d", param_hint="--at")
        made, notes = snapshot_from_trace(from_trace, parse_span(at), gpus=gpus, history=history)
    elif at is not None:
        raise typer.BadParameter("--at belongs to --from-trace; give that too, or leave it out", param_hint="--at")
    elif from_topology is not None:
        _refuse_beside("--from-topology", {"--gpus": gpus, "--pools": pools, "--family": family})
        options = TopologyOptions(pool=pool, gpus_per_node=gpus_per_node)
        made, notes = generate_on_topology(from_topology, options, seed=seed, queue=queue, leaves=leaves, history=history)
    else:
        _refuse_beside("a synthetic cluster (no --from-topology)", {"--gpus-per-node": gpus_per_node, "--pool": pool})
        made = generate_snapshot(
            gpus=gpus, seed=seed, pools=pools, queue=queue, leaves=leaves, history=history, family=family or "mixed"
        )
    for note in notes:
        tell("note", note)
    write_result(encode_snapshot(made), out)


def _refuse_beside(option: str, given: Mapping[str, object]) -> None:
    """Refuse options that would have no effect."""
    for other, value in given.items():
        if value is not None:
            raise typer.BadParameter(f"has no effect beside {option}: leave one of them out", param_hint=other)
