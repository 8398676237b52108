"""Workers that hang, crash or cannot be started: with a worker that does so on demand."""

from __future__ import annotations

import asyncio
import os
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from allocator.service.calls import Call, Reply
from allocator.service.pool import Pool, WorkerError
from allocator.service.settings import Settings
from tests.service import fake_worker

FAR = 600.0
"""Seconds that no test needs."""


@pytest.fixture(autouse=True)
def fake(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("allocator.service.pool._BOOT", fake_worker.BOOT)
    monkeypatch.setattr("allocator.service.pool.RETRY_SECONDS", 0.01)


def call(engine: str = "answer") -> Call:
    return Call(operation="decisions", body=b"x" * 1000, instance="1", seconds=FAR, max_document=1, engine=engine)


async def ask(pool: Pool, engine: str = "answer", *, wait: float = FAR, seconds: float = FAR) -> Reply:
    now = time.monotonic()
    return await pool.run(call(engine), wait_until=now + wait, deadline=now + wait + seconds)


def play(use: Callable[[Pool, Counter[str]], Awaitable[None]], **settings: object) -> None:
    """Run a coroutine with a pool."""

    async def run() -> None:
        replaced: Counter[str] = Counter()
        pool = Pool(Settings(**{"workers": 1, **settings}), lambda why: replaced.update([why]))  # type: ignore[arg-type]
        pool.start()
        try:
            await use(pool, replaced)
        finally:
            await pool.close()
        assert pool.alive == 0

    asyncio.run(run())


def runs(pid: int) -> bool:
    """Whether a process runs; one that has ended and waits to be noticed does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in ("Z", "X")
    except FileNotFoundError:
        return False


async def gone(pid: int) -> None:
    """Wait until a process has ended: a killed one needs a moment."""
    async with asyncio.timeout(FAR):
        while runs(pid):
            await asyncio.sleep(0.01)


def test_one_worker_answers_again_and_again() -> None:
    async def use(pool: Pool, replaced: Counter[str]) -> None:
        pids = {(await ask(pool)).facts["pid"] for _ in range(3)}
        assert len(pids) == 1
        assert not replaced
        assert (pool.alive, pool.idle) == (1, 1)

    play(use)


def test_a_worker_that_hangs_is_killed_together_with_its_child() -> None:
    async def use(pool: Pool, replaced: Counter[str]) -> None:
        before = (await ask(pool)).facts
        with pytest.raises(TimeoutError):
            await ask(pool, "hang", wait=0.0, seconds=0.2)
        after = (await ask(pool)).facts
        assert after["pid"] != before["pid"]
        assert replaced == {"deadline": 1}
        await gone(before["pid"])
        await gone(before["child"])
        assert runs(after["child"])

    play(use)


def test_one_that_hangs_does_not_stop_the_others() -> None:
    async def use(pool: Pool, replaced: Counter[str]) -> None:
        hanging = asyncio.create_task(ask(pool, "hang"))
        await asyncio.sleep(0)  # it is the first to wait for a worker
        for _ in range(5):
            await ask(pool)
        assert not hanging.done()
        hanging.cancel()
        with pytest.raises(asyncio.CancelledError):
            await hanging
        assert replaced == {"abandoned": 1}

    play(use, workers=2)


def test_nobody_waits_for_ever() -> None:
    async def use(pool: Pool, replaced: Counter[str]) -> None:
        await ask(pool)
        hanging = asyncio.create_task(ask(pool, "hang"))
        await asyncio.sleep(0)
        with pytest.raises(LookupError):
            await ask(pool, wait=0.05)
        assert not replaced
        hanging.cancel()
        await asyncio.gather(hanging, return_exceptions=True)

    play(use)


def test_a_crash_is_told_and_the_worker_replaced() -> None:
    async def use(pool: Pool, replaced: Counter[str]) -> None:
        with pytest.raises(WorkerError, match="ended with status 7"):
            await ask(pool, "crash")
        assert (await ask(pool)).status == 200
        assert replaced == {"crash": 1}

    play(use)


def test_a_worker_that_says_it_is_its_last_answer_is_replaced() -> None:
    async def use(pool: Pool, replaced: Counter[str]) -> None:
        first = await ask(pool, "memory")
        assert (first.status, first.last) == (200, True)
        assert (await ask(pool)).facts["pid"] != first.facts["pid"]
        assert replaced == {"memory": 1}

    play(use)


def test_a_worker_that_died_while_it_was_idle_costs_no_call() -> None:
    async def use(pool: Pool, replaced: Counter[str]) -> None:
        first = (await ask(pool)).facts["pid"]
        os.kill(first, 9)
        async with asyncio.timeout(FAR):
            while pool.alive:
                await asyncio.sleep(0.01)
        assert (await ask(pool)).facts["pid"] != first
        assert replaced == {"crash": 1}

    play(use)


def test_a_worker_that_cannot_be_started_is_tried_again(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "broken").touch()

    async def use(pool: Pool, replaced: Counter[str]) -> None:
        assert (await ask(pool)).status == 200

    play(use, record=tmp_path)
    assert "a worker cannot be started: worker" in caplog.text


def test_time_that_waiting_took_is_not_given_to_the_engines() -> None:
    async def use(pool: Pool, replaced: Counter[str]) -> None:
        await ask(pool)
        first, second = await asyncio.gather(ask(pool), ask(pool))
        assert second.facts["left"] < first.facts["left"] < FAR

    play(use)


def test_closing_ends_workers_that_are_still_starting() -> None:
    async def use(pool: Pool, replaced: Counter[str]) -> None:
        assert pool.alive == 0

    play(use)
