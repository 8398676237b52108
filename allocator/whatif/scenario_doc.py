"""The scenario file as it is written: what is played, what is changed, and how."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import Meta, field

from allocator.wire.scalars import Count, Multiplier, Name, PositiveCount, PositiveSpan, Priority, Span
from allocator.wire.schema import schema_of
from allocator.wire.snapshot_doc import Doc, PolicyDoc

SpanText = Annotated[str, Meta(min_length=1, description="a span as 12h or 3d6h, or seconds")]
Moment = Annotated[str, Meta(min_length=1, description="so long after the start of the trace, as 1d12h")]
Speed = Annotated[float, Meta(ge=0.01, le=1000)]
Key = Annotated[str, Meta(min_length=1, description="letters, digits and . _ + - only, for it names folders")]


class GenerateDoc(Doc, kw_only=True, rename={"log": "from"}):
    """The options of `allocator generate trace`."""

    log: Annotated[Name | None, Meta(description="a job log")] = None
    format: Annotated[Name | None, Meta(description="name of its form; absent: found by its columns")] = None
    scenario: Annotated[Name | None, Meta(description="a shipped scenario, or a recipe file")] = None
    gpus: Annotated[PositiveCount | None, Meta(description="installed GPUs")] = None
    pools: Annotated[int | None, Meta(description="1 or 3")] = None
    days: Annotated[Name | None, Meta(description='a number in quotes, or of a log its days as "7:14"')] = None
    load: Annotated[Multiplier | None, Meta(description="offered load")] = None
    seed: Annotated[Count | None, Meta(description="of all that is drawn")] = None
    jitter: Annotated[SpanText | None, Meta(description="most that the jobs of a log move; needs a seed")] = None
    budgets: Annotated[Name | None, Meta(description="of a log: a file with a tree of shares")] = None
    failures: Annotated[Multiplier | None, Meta(description="node failures per GPU and day")] = None
    squatters: Annotated[Multiplier | None, Meta(description="part of the users who keep idle sessions")] = None
    deadline: Annotated[Count | None, Meta(description="day of a conference deadline")] = None
    tenants: Annotated[Name | None, Meta(description="of a log: only these, with commas between them")] = None
    on_top: Annotated[Name | None, Meta(description="of a log: a second one, laid over it day by day")] = None


class BaseDoc(Doc, kw_only=True):
    """The trace that everything begins with: a file, or how it is made."""

    trace: Annotated[Name | None, Meta(description="a trace file")] = None
    generate: Annotated[GenerateDoc | None, Meta(description="the options of `allocator generate trace`")] = None


class ReplayDoc(Doc, kw_only=True):
    """The options of `allocator replay`; spans of seconds may be written as 5m."""

    policy: Annotated[Name | None, Meta(description="policy to play, by name; absent: budgets_greedy")] = None
    engine: Annotated[Name | None, Meta(description="with policy budgets: one engine instead of the portfolio")] = None
    time_limit: Annotated[Multiplier | None, Meta(description="seconds for each decision; absent: 10")] = None
    gap: Annotated[Multiplier | None, Meta(description="gap at which our own policies stop improving; absent: 0")] = None
    tick: Annotated[PositiveSpan | None, Meta(description="seconds between decisions; absent: 15")] = None
    drift: Annotated[PositiveSpan | None, Meta(description="while work waits, decide at least so often; absent: 300")] = None
    until: Annotated[PositiveSpan | None, Meta(description="stop so long after the start; absent: at the end")] = None


class NodesDoc(Doc, kw_only=True):
    """Which nodes: all that fit everything that is given."""

    pool: Annotated[Name | None, Meta(description="all nodes of a pool")] = None
    domain: Annotated[Name | None, Meta(description="all nodes of a leaf, rack or other domain")] = None
    node: Annotated[Name | None, Meta(description="one node")] = None
    nodes: Annotated[PositiveCount | None, Meta(description="only so many of them, the first by name")] = None


class AddDoc(Doc, kw_only=True):
    """Nodes that are bought: of a known architecture, or like one that is there. They make racks of their own."""

    architecture: Annotated[Literal["b200", "b300", "gb200", "gb300", "h100"] | None, Meta(description="kind of node")] = None
    like: Annotated[Name | None, Meta(description="a node of the trace to be copied, with its pool and labels")] = None
    racks: Annotated[PositiveCount | None, Meta(description="whole racks or leaf groups")] = None
    nodes: Annotated[PositiveCount | None, Meta(description="single nodes")] = None
    pool: Annotated[Name | None, Meta(description="their pool; absent: the architecture, or that of the node")] = None


class FailDoc(NodesDoc, kw_only=True):
    """Nodes that are dead for a while."""

    at: Annotated[Moment, Meta(description="when they die")]
    lasts: Annotated[SpanText | None, Meta(description="until they are back; absent: to the end")] = None


class MaintainDoc(NodesDoc, kw_only=True):
    """Nodes that are wanted empty, batch by batch."""

    at: Annotated[Moment, Meta(description="when the first of them has to be empty")]
    lasts: Annotated[SpanText, Meta(description="how long each of them is away")]
    notice: Annotated[SpanText, Meta(description="how long before it is announced")] = "1d"
    batch: Annotated[PositiveCount | None, Meta(description="so many at a time; absent: all")] = None
    drain: Annotated[bool, Meta(description="false: what ends in time may start until then")] = True


class WhichJobsDoc(Doc, kw_only=True, rename={"job_class": "class"}):
    """Which jobs: all that fit everything that is given."""

    job_class: Annotated[Name | None, Meta(description="of this class")] = None
    allocation: Annotated[Name | None, Meta(description="of this budget or one below it")] = None
    user: Annotated[Name | None, Meta(description="of this user")] = None
    pool: Annotated[Name | None, Meta(description="that name this pool")] = None
    min_gpus: Annotated[PositiveCount | None, Meta(description="of at least so many GPUs")] = None
    max_gpus: Annotated[PositiveCount | None, Meta(description="of at most so many GPUs")] = None


class NewJobDoc(Doc, kw_only=True, rename={"job_class": "class"}):
    """What jobs declare instead."""

    job_class: Annotated[Name | None, Meta(description="another class")] = None
    allocation: Annotated[Name | None, Meta(description="another leaf of the budgets")] = None
    pools: Annotated[tuple[Name, ...] | None, Meta(description="other pools, best first; empty: any")] = None
    priority: Annotated[Priority | None, Meta(description="another priority")] = None
    min_runtime: Annotated[Span | None, Meta(description="another min runtime, in seconds or as 4h")] = None


class JobsDoc(Doc, kw_only=True):
    """Some jobs, and what happens to them."""

    where: Annotated[WhichJobsDoc, Meta(description="which jobs; absent: all")] = field(default_factory=WhichJobsDoc)
    times: Annotated[Multiplier | None, Meta(description="so many times their GPU time; 0: leave them out")] = None
    shift: Annotated[SpanText | None, Meta(description="submitted so much later; with - earlier")] = None
    speed: Annotated[
        Speed | None, Meta(description="with one pool in set.pools: a GPU there does the work of so many of before")
    ] = None
    set: Annotated[NewJobDoc | None, Meta(description="what they declare instead")] = None


class EditsDoc(Doc, kw_only=True):
    """What is changed in the base."""

    replay: Annotated[ReplayDoc, Meta(description="other options of the replay, the policy among them")] = field(
        default_factory=ReplayDoc
    )
    policy: Annotated[PolicyDoc, Meta(description="fields of the trace's policy, as protection_cap")] = field(
        default_factory=PolicyDoc
    )
    load: Annotated[Multiplier | None, Meta(description="offered load, over the cluster of the base")] = None
    jobs: Annotated[tuple[JobsDoc, ...], Meta(description="more, fewer, other, or moved jobs")] = ()
    remove: Annotated[tuple[NodesDoc, ...], Meta(description="nodes that go")] = ()
    add: Annotated[tuple[AddDoc, ...], Meta(description="nodes that come")] = ()
    fail: Annotated[tuple[FailDoc, ...], Meta(description="nodes that die for a while")] = ()
    maintenance: Annotated[tuple[MaintainDoc, ...], Meta(description="nodes that are serviced")] = ()


class VariantDoc(EditsDoc, kw_only=True):
    """A variant: its name and its edits. `budgets` stand beside them, and are described above."""

    name: Key
    title: Annotated[Name | None, Meta(description="for people; absent: the name")] = None


class AxisDoc(Doc, kw_only=True):
    """An axis of the matrix: `set` and an array `values`, or named `variants`."""

    name: Key
    set: Annotated[Name | None, Meta(description="the edit that takes each of the values, as policy.protection_cap")] = None


class BudgetsFileDoc(Doc, kw_only=True):
    """Budgets from a file."""

    file: Annotated[Name, Meta(description="a change set or a budget file, JSON")]
    at: Annotated[Moment | None, Meta(description="a change set counts from then on, whatever date it has")] = None


class RunDoc(Doc, kw_only=True):
    """Where the cells are played. It changes no result."""

    jobs: Annotated[int, Meta(description="cells at a time; -1: one for each core", ge=-1, le=100_000)] = -1
    backend: Annotated[Literal["local", "dask", "ray"], Meta(description="who runs them")] = "local"
    address: Annotated[Name | None, Meta(description="of the Dask scheduler or Ray cluster; absent: one on this machine")] = (
        None
    )


class ScenarioDoc(Doc, kw_only=True):
    """The whole file, but for `variants` and `matrix`, which are checked one by one."""

    title: Annotated[Name, Meta(description="the question, for people")]
    base: Annotated[BaseDoc, Meta(description="the trace that everything begins with")]
    replay: Annotated[ReplayDoc, Meta(description="options for all variants")] = field(default_factory=ReplayDoc)
    baseline: Annotated[Name | None, Meta(description="variant to compare with; absent: the base as it is")] = None
    seeds: Annotated[tuple[Count, ...], Meta(description="each variant is played for each; absent: once, nothing drawn")] = ()
    draw: Annotated[Literal["days", "jitter", "generator"] | None, Meta(description="what a seed draws")] = None
    jitter: Annotated[SpanText | None, Meta(description="with draw = jitter: most that submissions move; absent: 10m")] = None
    run: Annotated[RunDoc, Meta(description="where the cells are played")] = field(default_factory=RunDoc)


class WholeScenarioDoc(ScenarioDoc, kw_only=True):
    """The whole file, for its reference."""

    variants: Annotated[tuple[VariantDoc, ...], Meta(description="named variants")] = ()
    matrix: Annotated[tuple[AxisDoc, ...], Meta(description="axes that are multiplied out")] = ()


def scenario_schema() -> dict[str, Any]:
    """The JSON Schema of scenarios, but for what `budgets`, `values` and the variants of an axis hold."""
    return schema_of(WholeScenarioDoc, "scenario")
