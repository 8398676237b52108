"""What a dispatcher records is a trace: of a scheduler with nodes that die and jobs that come back by themselves."""

from __future__ import annotations

from pathlib import Path

from allocator.generate.recorded import trace_from_record
from allocator.record import Recorder
from tests.dispatch.site import PROMISE, Site


def test_what_a_dispatcher_records_is_replayable(tmp_path: Path) -> None:
    site = Site(tmp_path)
    site.recorder = Recorder(tmp_path / "epochs")
    scheduler = site.scheduler
    for number in range(1, 5):
        scheduler.submit(f"a{number}", "a")
    start = scheduler.now
    site.epochs(3)
    scheduler.now = start + PROMISE
    scheduler.submit("b1", "b", num_nodes=2)
    site.epochs(4)
    stopped = {row.workload for decision in site.decisions for row in decision.preemptions}
    assert len(stopped) == 2
    (kept, *_) = sorted({"a1", "a2", "a3", "a4"} - stopped)
    ended = scheduler.now
    scheduler.end(kept)
    (node,) = scheduler.jobs[kept].nodes
    scheduler.fail_node(node)
    site.epochs(2)
    scheduler.resume([node])
    site.epochs(20)
    trace = trace_from_record(tmp_path / "epochs")
    jobs = {job.workload.id: job for job in trace.jobs}
    assert set(jobs) == {"a1", "a2", "a3", "a4", "b1"}
    assert (jobs[kept].work, jobs["b1"].workload.gpus) == (ended - start, 16)
    assert [(outage.node, outage.start) for outage in trace.outages] == [(node, ended)]
    assert trace.maintenance == ()
    assert "usage record of their own" not in "; ".join(trace.notes)
