"""Reads the rows of a decision against its snapshot; whatever makes no sense becomes a violation and is left out."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import NoneType
from typing import TypeVar

from allocator.domain import (
    AllocationRow,
    BrokenContract,
    Decision,
    DrainRow,
    Lapse,
    Preemption,
    Promotion,
    Renewal,
    Reservation,
    Start,
    StopReason,
    WaitingRow,
    Workload,
)
from allocator.entitlement.model import Entitlement
from allocator.verify.verdict import Violation

MAX_TASKS = 1 << 20
"""More tasks than this on one node are a typing error, not a placement; keeps all sums inside 64 bits."""

_FIELDS: Mapping[type, Mapping[str, tuple[type, ...]]] = {
    Start: {"workload": (str,), "charged": (bool,), "express": (bool,), "protected_until": (int, NoneType)},
    Preemption: {
        "workload": (str,),
        "reason": (StopReason,),
        "lost_gpu_seconds": (int,),
        "stop_by": (int,),
        "beneficiaries": (tuple,),
    },
    Promotion: {"workload": (str,), "protected_until": (int,)},
    Renewal: {"workload": (str,), "protected_until": (int,)},
    Lapse: {"workload": (str,), "at": (int,), "renewable": (bool,)},
    Reservation: {
        "workload": (str,),
        "pool": (str,),
        "domain": (tuple,),
        "nodes": (int,),
        "start": (int,),
        "eligible_since": (int,),
        "bound": (int,),
        "waits_for": (tuple,),
    },
    BrokenContract: {"workload": (str,), "promised": (int,), "cause": (str,)},
    WaitingRow: {"workload": (str,), "entitled_since": (int, NoneType)},
    DrainRow: {"node": (str,), "drained": (bool,)},
    AllocationRow: {"id": (str,), "pool": (str,)},
}
"""Exact types of the fields that the rules read (bool is no int here)."""

Row = TypeVar("Row")


@dataclass(frozen=True, slots=True, eq=False)
class Rows:
    """The rows that could be read, by workload row of the canonical snapshot.

    `placements` holds the placement of each start as node index -> tasks, without nodes that do not exist. The lists stand
    as in the decision. `violations` are what could not be read.
    """

    starts: Mapping[int, Start]
    placements: Mapping[int, Mapping[int, int]]
    stops: Mapping[int, Preemption]
    promotions: Mapping[int, Promotion]
    renewals: Sequence[Renewal]
    reservations: Sequence[Reservation]
    lapsing: Sequence[Lapse]
    broken: Sequence[BrokenContract]
    waiting: Sequence[WaitingRow]
    drains: Sequence[DrainRow]
    allocations: Sequence[AllocationRow]
    violations: tuple[Violation, ...]


def read_rows(ent: Entitlement, decision: Decision) -> Rows:
    """Read the decision; never raises, whatever stands in it."""
    reader = _Reader(ent)
    stops = reader.by_workload("preemptions", decision.preemptions, Preemption, reader.stop)
    starts = reader.by_workload("starts", decision.starts, Start, lambda row, start: reader.start(row, start, row in stops))
    promotions = reader.by_workload(
        "promotions", decision.promotions, Promotion, lambda row, _: reader.promotion(row, row in stops)
    )
    return Rows(
        starts=starts,
        placements={row: reader.placement(row, start) for row, start in starts.items()},
        stops=stops,
        promotions=promotions,
        renewals=list(reader.well_typed("renewals", decision.renewals, Renewal)),
        lapsing=list(reader.well_typed("lapsing", decision.lapsing, Lapse)),
        reservations=list(reader.well_typed("reservations", decision.reservations, Reservation)),
        broken=list(reader.well_typed("contract_broken", decision.contract_broken, BrokenContract)),
        waiting=list(reader.well_typed("waiting", decision.waiting, WaitingRow)),
        drains=list(reader.well_typed("drains", decision.drains, DrainRow)),
        allocations=list(reader.well_typed("allocations", decision.allocations, AllocationRow)),
        violations=tuple(reader.violations),
    )


@dataclass(slots=True)
class _Reader:
    """Collects the violations while rows are read."""

    ent: Entitlement
    violations: list[Violation] = field(default_factory=list)

    @property
    def index(self) -> Mapping[str, int]:
        """The row of each workload, by id."""
        return self.ent.columns.index

    def say(self, rule: str, subject: str, detail: str) -> None:
        """Note one violation."""
        self.violations.append(Violation(rule, subject, detail))

    def well_typed(self, name: str, rows: object, kind: type[Row]) -> Iterator[Row]:
        """The rows whose fields have the types that they should have."""
        if not isinstance(rows, tuple):
            self.say("document", name, f"a list is expected, not {type(rows).__name__}")
            return
        for position, row in enumerate(rows):
            where = f"{name}[{position}]"
            if not isinstance(row, kind):
                self.say("document", where, f"a {kind.__name__} is expected, not {type(row).__name__}")
                continue
            wrong = [key for key, kinds in _FIELDS[kind].items() if type(getattr(row, key)) not in kinds]
            if wrong:
                self.say("document", where, f"{wrong[0]} has the wrong type: {getattr(row, wrong[0])!r:.80}")
            else:
                yield row

    def by_workload(
        self, name: str, rows: Sequence[Row], kind: type[Row], accept: Callable[[int, Row], bool]
    ) -> dict[int, Row]:
        """Rows by the workload they name; unknown, repeated and refused ones are left out."""
        found: dict[int, Row] = {}
        for row in self.well_typed(name, rows, kind):
            workload: str = row.workload  # type: ignore[attr-defined]
            index = self.index.get(workload)
            if index is None:
                self.say("document", workload, f"stands in {name}, but the snapshot has no such workload")
            elif index in found:
                rule = "gang" if kind is Start else "document"
                self.say(rule, workload, f"stands in {name} more than once")
            elif accept(index, row):
                found[index] = row
        return found

    def stop(self, row: int, stop: Preemption) -> bool:
        """Whether there is something to stop."""
        if not all(isinstance(name, str) for name in stop.beneficiaries):
            self.say("document", stop.workload, f"has beneficiaries that are no ids: {stop.beneficiaries!r:.80}")
        elif self._work(row).run is None:
            self.say("document", stop.workload, "stands in preemptions, but does not run")
        else:
            return True
        return False

    def start(self, row: int, start: Start, stopped: bool) -> bool:
        """Whether there is something to start."""
        work = self._work(row)
        if work.run is None or stopped:
            return True
        moved = bool(self.ent.works.protected[row])
        self.say("protection" if moved else "gang", work.id, "is started, but runs already and is not stopped")
        return False

    def promotion(self, row: int, stopped: bool) -> bool:
        """Whether there is something to promote."""
        work = self._work(row)
        if work.run is not None and not work.run.charged and not stopped:
            return True
        why = "does not run" if work.run is None else "is charged already" if work.run.charged else "is stopped as well"
        self.say("document", work.id, f"stands in promotions, but {why}")
        return False

    def placement(self, row: int, start: Start) -> dict[int, int]:
        """The placement as node index -> tasks; what cannot be meant is left out and noted."""
        work, index = self._work(row), self.ent.layout.index
        placement: object = start.placement
        if not isinstance(placement, Mapping):
            self.say("document", work.id, f"a placement is expected, not {placement!r:.80}")
            return {}
        found: dict[int, int] = {}
        for name, tasks in placement.items():
            if name not in index:
                self.say("eligibility", work.id, f"is placed on {name!r:.80}, which is no node of the cluster")
            elif type(tasks) is not int:
                self.say("single_node_task", work.id, f"has {tasks!r:.80} tasks on {name}: a task lies on one node or not")
            elif not 0 < tasks <= MAX_TASKS:
                self.say("gang", work.id, f"has {tasks} tasks on {name}")
            else:
                found[index[name]] = tasks
        return found

    def _work(self, row: int) -> Workload:
        return self.ent.snapshot.workloads[row]
