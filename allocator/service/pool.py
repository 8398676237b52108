"""Worker processes that can be killed: each answers one call at a time, and none outlives the deadline of its call."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import struct
import sys
import time
from collections.abc import Callable, Coroutine, Mapping
from contextlib import suppress
from typing import Any

import msgspec

from allocator.service.calls import Call, Reply
from allocator.service.settings import Settings

logger = logging.getLogger(__name__)

START_SECONDS = 60.0
"""A worker that has not said hello by then is given up."""

CLOSE_SECONDS = 3.0
"""An idle worker needs this long at most to notice that its input has ended, and its solver too."""

RETRY_SECONDS = 1.0
"""Between two attempts to start a worker."""

_BOOT = "import sys; sys.path[:] = {path!r}; from allocator.service.worker import main; main({memory}, {level}, {folder!r})"
_REPLIES = msgspec.msgpack.Decoder(Reply)
_THREADS = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")


class WorkerError(Exception):
    """A worker ended without an answer. Names how."""


class Worker:
    """One process, and the pipes to it."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    @classmethod
    async def start(cls, settings: Settings) -> Worker:
        """Start a process and wait until it is warm. It leads a process group: its solver ends with it."""
        boot = _BOOT.format(
            path=sys.path,
            memory=settings.worker_memory,
            level=logging.getLogger().getEffectiveLevel(),
            folder=None if settings.record is None else str(settings.record),
        )
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-c", boot),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            start_new_session=True,
            env={**os.environ, **_THREADS},
        )
        worker = cls(process)
        try:
            async with asyncio.timeout(START_SECONDS):
                await worker._read()
        except BaseException:
            await worker.kill()
            raise
        return worker

    @property
    def alive(self) -> bool:
        """Whether the process still runs."""
        return self._process.returncode is None

    async def ask(self, call: Call, deadline: float) -> Reply:
        """The reply to a call.

        Raises
        ------
        TimeoutError
            If there is none by the deadline (`time.monotonic`). The worker is then of no more use.
        WorkerError
            If the process ends.
        """
        async with asyncio.timeout(max(0.0, deadline - time.monotonic())):
            await self._write(msgspec.msgpack.encode(call))
            return _REPLIES.decode(await self._read())

    async def kill(self) -> None:
        """End the process and its solver at once."""
        with suppress(ProcessLookupError):  # it has ended by itself
            os.killpg(self._process.pid, signal.SIGKILL)
        await self._process.wait()

    async def close(self) -> None:
        """Let the process end by itself, and kill what is left of its group."""
        if self._process.stdin is not None:
            self._process.stdin.close()
        try:
            async with asyncio.timeout(CLOSE_SECONDS):
                await self._process.wait()
        except TimeoutError:
            logger.debug("worker %d does not end by itself", self._process.pid)
        await self.kill()

    async def _write(self, message: bytes) -> None:
        pipe = self._process.stdin
        assert pipe is not None
        try:
            pipe.write(struct.pack("<Q", len(message)))
            pipe.write(message)
            await pipe.drain()
        except (BrokenPipeError, ConnectionResetError) as error:
            raise WorkerError(await self._ended()) from error

    async def _read(self) -> bytes:
        pipe = self._process.stdout
        assert pipe is not None
        try:
            (size,) = struct.unpack("<Q", await pipe.readexactly(8))
            return await pipe.readexactly(size)
        except asyncio.IncompleteReadError as error:
            raise WorkerError(await self._ended()) from error

    async def _ended(self) -> str:
        await self.kill()  # what is left of its group, which might hold the pipes
        return f"worker {self._process.pid} ended with status {self._process.returncode}"


_CAUSES: Mapping[type[BaseException], str] = {TimeoutError: "deadline", WorkerError: "crash"}


class Pool:
    """All workers: whoever calls waits for an idle one; one that is killed or dies is replaced."""

    def __init__(self, settings: Settings, count: Callable[[str], None]) -> None:
        """`count` is told why a worker was replaced: deadline, crash, memory or abandoned."""
        self._settings, self._count = settings, count
        self._idle: asyncio.Queue[Worker] = asyncio.Queue()
        self._workers: set[Worker] = set()
        self._starting: set[asyncio.Task[None]] = set()
        self._ending: set[asyncio.Task[None]] = set()
        self._closing = False

    @property
    def alive(self) -> int:
        """Workers that are up."""
        return sum(worker.alive for worker in self._workers)

    @property
    def idle(self) -> int:
        """Workers that wait for a call."""
        return self._idle.qsize()

    def start(self) -> None:
        """Bring up all workers, without waiting for them."""
        for _ in range(self._settings.workers):
            _spawn(self._starting, self._bring_up())

    async def run(self, call: Call, *, wait_until: float, deadline: float) -> Reply:
        """Give a call to a worker.

        Parameters
        ----------
        wait_until
            Until when to wait for an idle worker (`time.monotonic`).
        deadline
            When the worker is killed. What is left of it less what waiting took is `call.seconds`, which is set here.

        Raises
        ------
        LookupError
            If no worker was idle in time.
        TimeoutError
            If there was no reply by the deadline.
        WorkerError
            If the worker crashed.
        """
        aim = time.monotonic() + call.seconds
        worker = await self._next(wait_until)
        call.seconds = max(aim - time.monotonic(), 0.0)
        try:
            reply = await worker.ask(call, deadline)
        except BaseException as error:
            self._replace(worker, _CAUSES.get(type(error), "abandoned"))
            raise
        if reply.last:
            self._replace(worker, "memory")
        else:
            self._idle.put_nowait(worker)
        return reply

    async def close(self) -> None:
        """End all workers."""
        self._closing = True
        for task in self._starting:
            task.cancel()
        ending = [*self._starting, *self._ending, *(worker.close() for worker in self._workers)]
        await asyncio.gather(*ending, return_exceptions=True)
        self._workers.clear()

    async def _next(self, wait_until: float) -> Worker:
        """The next idle worker that lives."""
        while True:
            try:
                async with asyncio.timeout(max(0.0, wait_until - time.monotonic())):
                    worker = await self._idle.get()
            except TimeoutError:
                raise LookupError("no worker was idle in time") from None
            if worker.alive:
                return worker
            self._replace(worker, "crash")

    def _replace(self, worker: Worker, why: str) -> None:
        self._count(why)
        self._workers.discard(worker)
        _spawn(self._ending, worker.kill())
        _spawn(self._starting, self._bring_up())

    async def _bring_up(self) -> None:
        """Start a worker, however often it takes: without workers the service is of no use, and /readyz says so."""
        while not self._closing:
            try:
                worker = await Worker.start(self._settings)
            except (OSError, TimeoutError, WorkerError) as error:
                logger.error("a worker cannot be started: %s", error)
                await asyncio.sleep(RETRY_SECONDS)
                continue
            self._workers.add(worker)
            self._idle.put_nowait(worker)
            return


def _spawn(tasks: set[asyncio.Task[None]], work: Coroutine[Any, Any, None]) -> None:
    """Run in the background; the set keeps the task from being collected as garbage."""
    task = asyncio.create_task(work)
    tasks.add(task)
    task.add_done_callback(tasks.discard)
