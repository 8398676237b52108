"""What makes no sense in edits, whatever the trace is."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from allocator.domain import Issue
from allocator.whatif.scenario_doc import AddDoc, EditsDoc, JobsDoc, NodesDoc
from allocator.whatif.spans import seconds, span_issues
from allocator.wire.shapes import show


def edit_issues(edits: EditsDoc, path: str) -> list[Issue]:
    """Every contradiction of the edits that stand at `path`."""
    issues: list[Issue] = []
    for at, jobs in enumerate(edits.jobs):
        issues += _job_issues(jobs, f"{path}.jobs[{at}]")
    for at, nodes in enumerate(edits.remove):
        issues += _which_nodes(nodes, f"{path}.remove[{at}]")
    for at, bought in enumerate(edits.add):
        issues += _add_issues(bought, f"{path}.add[{at}]")
    for at, failing in enumerate(edits.fail):
        where = f"{path}.fail[{at}]"
        issues += [*_which_nodes(failing, where), *span_issues(f"{where}.at", failing.at)]
        issues += _lasting(failing.lasts, f"{where}.lasts")
    for at, work in enumerate(edits.maintenance):
        where = f"{path}.maintenance[{at}]"
        issues += _which_nodes(work, where)
        issues += [issue for name in ("at", "notice") for issue in span_issues(f"{where}.{name}", getattr(work, name))]
        issues += _lasting(work.lasts, f"{where}.lasts")
    return issues


def empty_issues(raw: Mapping[str, Any], path: str) -> Iterator[Issue]:
    """Edits that are there and hold nothing: somebody meant something by them."""
    for name, value in raw.items():
        if value in ([], {}):
            yield Issue(path=f"{path}.{name}", problem=f"{show(value)} changes nothing", remedy="fill it, or leave it out")


def _lasting(span: str | None, path: str) -> Iterator[Issue]:
    """What is wrong with a span that has to be more than nothing."""
    wrong = list(span_issues(path, span))
    yield from wrong
    if span is not None and not wrong and seconds(span) == 0:
        yield Issue(path=path, problem=f"{show(span)} is no time at all", remedy="give a span of a second or more, as 12h")


def _which_nodes(doc: NodesDoc, path: str) -> Iterator[Issue]:
    if doc.pool is None and doc.domain is None and doc.node is None:
        yield Issue(path=path, problem="it names no nodes", remedy="give pool, domain or node")


def _add_issues(doc: AddDoc, path: str) -> Iterator[Issue]:
    if (doc.architecture is None) == (doc.like is None):
        yield Issue(path=path, problem="it says not once what is bought", remedy="give one of architecture and like")
    if (doc.racks is None) == (doc.nodes is None):
        yield Issue(path=path, problem="it says not once how much is bought", remedy="give one of racks and nodes")


def _job_issues(doc: JobsDoc, path: str) -> Iterator[Issue]:
    yield from span_issues(f"{path}.shift", doc.shift, signed=True)
    if doc.set is not None and all(getattr(doc.set, name) is None for name in doc.set.__struct_fields__):
        yield Issue(
            path=f"{path}.set", problem="{} changes nothing", remedy="give class, pools or another field, or leave it out"
        )
    elif doc.times is None and doc.shift is None and doc.set is None and doc.speed is None:
        yield Issue(path=path, problem="nothing happens to these jobs", remedy="give times, shift or set")
    if doc.speed is not None and (doc.set is None or doc.set.pools is None or len(doc.set.pools) != 1):
        problem = "it is the speed of a pool, and these jobs are not moved to one"
        yield Issue(path=f"{path}.speed", problem=problem, remedy='give it together with set = { pools = ["the pool"] }')
