"""The service under load: many clients, some of them with malformed or huge documents, for a bounded time.

    python -m benchmarks.service_load --clients 200 --seconds 60

A server of its own is started on a free port of this machine. A client that is told to come back later does so. Counted are
answers by kind and status, how long accepted calls took beside their time budget, calls that got no answer, and the memory of
server, workers and solvers. Exit status 1 if a bar is missed: an answer 5xx other than 503, a lost call, or the 99th percentile
of accepted calls beyond the budget by more than a tenth.
"""

from __future__ import annotations

import argparse
import asyncio
import gzip
import json
import os
import random
import re
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import numpy as np

from allocator.generate import generate_snapshot
from allocator.wire import encode_snapshot

SLACK = 1.1
"""Accepted calls may take this part of their time budget."""

MALFORMED, HUGE = 0.10, 0.01
"""Parts of the calls."""

MOST_RETRY_SECONDS = 5.0


Kinds = dict[str, list[bytes]]
"""Documents by kind."""


@dataclass
class Tally:
    """What came of all calls; seconds are those of accepted ones."""

    answers: Counter[tuple[str, str]] = field(default_factory=Counter)
    seconds: list[float] = field(default_factory=list)
    lost: list[str] = field(default_factory=list)
    memory: list[int] = field(default_factory=list)
    seen: list[tuple[float, float, float]] = field(default_factory=list)
    status: int = 0

    def report(self, budget: float) -> list[str]:
        """The lines for people."""
        mib = [size / 2**20 for size in self.memory]
        first, last = np.mean(mib[2:7] or mib), np.mean(mib[-5:])
        lines = [f"{kind:10} {status:>6} {count:7,}" for (kind, status), count in sorted(self.answers.items())]
        lines.append(f"{len(self.seconds)} accepted, budget {budget:g} s: as clients saw it {_percentiles(self.seconds)}")
        names = ("until the body was there", "in the worker", "in all")
        for at, name in enumerate(names):
            lines.append(f"as the server saw it, {name}: {_percentiles([row[at] for row in self.seen])}")
        lines.append(f"MiB of all processes: {first:,.0f} at first, {last:,.0f} at last, {max(mib):,.0f} at most")
        return [*lines, f"calls without an answer: {len(self.lost)} {dict(Counter(self.lost))}"]

    def wrong(self) -> list[str]:
        """What must not happen on any machine."""
        failed = Counter[str]()
        for (_, status), count in self.answers.items():
            failed[status] += count
        wrong = [f"{count} answers {status}" for status, count in failed.items() if status[0] == "5" and status != "503"]
        wrong += [f"{len(self.lost)} calls without an answer"] if self.lost else []
        return wrong + ([f"the server ended with status {self.status}"] if self.status else [])

    def late(self, budget: float) -> list[str]:
        """Whether accepted calls took too long, which a busy machine may be guilty of."""
        on_time = self.seconds and np.percentile(self.seconds, 99) <= SLACK * budget
        return [] if on_time else ["no accepted call, or too late"]


def _percentiles(seconds: Sequence[float]) -> str:
    p50, p99, most = np.percentile(seconds or [0.0], [50, 99, 100])
    return f"p50 {p50:.2f} s, p99 {p99:.2f} s, most {most:.2f} s"


class Server:
    """`allocator serve` with one token for each 8 clients."""

    def __init__(self, folder: Path, clients: int, options: list[str]) -> None:
        tokens = folder / "tokens"
        self.tokens = [f"token-{at:04}-of-the-load-test" for at in range(-(-clients // 8))]
        tokens.write_text("".join(f"c{at} decide {token}\n" for at, token in enumerate(self.tokens)))
        tokens.chmod(0o600)
        self._log = folder / "log"
        command = [sys.executable, "-m", "allocator", "serve", "--port", "0", "--tokens", str(tokens), *options]
        with self._log.open("wb") as log:
            self.process = subprocess.Popen(command, stderr=log)
        self.url = self._find(r"running on (http://[0-9.:]+)")

    def _find(self, pattern: str) -> str:
        for _ in range(3000):
            if found := re.search(pattern, self._log.read_text()):
                return found[1]
            time.sleep(0.1)
        raise SystemExit("the server does not start")

    def ready(self) -> None:
        """Wait for a worker."""
        while httpx.get(f"{self.url}/readyz").status_code != 200:
            time.sleep(0.2)

    def memory(self) -> int:
        """Resident bytes of the server and of all below it."""
        parents = {}
        for stat in Path("/proc").glob("[0-9]*/stat"):
            try:
                parts = stat.read_text().rpartition(")")[2].split()
            except OSError:
                continue
            parents[int(stat.parent.name)] = (int(parts[1]), int(parts[21]) * os.sysconf("SC_PAGE_SIZE"))
        family, total = {self.process.pid}, 0
        for pid in sorted(parents):
            if parents[pid][0] in family:
                family.add(pid)
        for pid in family & parents.keys():
            total += parents[pid][1]
        return total

    def seconds(self) -> list[tuple[float, float, float]]:
        """Of each accepted call, as the server saw it: until the body was there, in the worker, and in all."""
        lines = [json.loads(line) for line in self._log.read_text().splitlines()]
        return [(line["body_seconds"], line["call_seconds"], line["seconds"]) for line in lines if line.get("rung")]

    def stop(self) -> int:
        """Its exit status."""
        self.process.terminate()
        return self.process.wait(300)


def bodies(gpus: int) -> Kinds:
    """Documents by kind: good ones (half of them compressed), malformed and huge ones."""
    good = [encode_snapshot(generate_snapshot(gpus=gpus, seed=seed)) for seed in range(1, 5)]
    broken = json.loads(good[0])
    broken["budgets"][0]["parent"] = "nobody"
    malformed = [good[0][:-100], json.dumps(broken).encode(), b"[" * 200_000, b'{"version": 1}', gzip.compress(good[1])[:-30]]
    huge = [b" " * (40 << 20), gzip.compress(b" " * (300 << 20))]
    return {"good": good + [gzip.compress(body) for body in good], "malformed": malformed, "huge": huge}


class Connection:
    """HTTP in a few lines: a client library costs more than the answer when 200 of them share a processor with the service."""

    def __init__(self, url: str) -> None:
        self._host, self._port = url.removeprefix("http://").split(":")
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def post(self, body: bytes, headers: dict[str, str]) -> tuple[int, dict[str, str]]:
        """Status and headers of the answer; its body is read and dropped. Raises OSError or EOFError if there is none."""
        if self._streams is None:
            self._streams = await asyncio.open_connection(self._host, int(self._port))
        reader, writer = self._streams
        lines = ["POST /v1/decisions HTTP/1.1", f"host: {self._host}", f"content-length: {len(body)}"]
        writer.write("\r\n".join([*lines, *(f"{name}: {value}" for name, value in headers.items()), "", ""]).encode())
        writer.write(body)
        await writer.drain()
        first, *rest = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        answer = dict(line.lower().split(": ", 1) for line in rest if line)
        await reader.readexactly(int(answer["content-length"]))
        if answer.get("connection") == "close":
            self.close()
        return int(first.split()[1]), answer

    def close(self) -> None:
        """The next call opens a connection anew."""
        if self._streams is not None:
            self._streams[1].close()
        self._streams = None


async def client(url: str, headers: dict[str, str], until: float, rng: random.Random, kinds: Kinds, tally: Tally) -> None:
    """One client: call, and come back when told."""
    connection = Connection(url)
    await asyncio.sleep(rng.random())
    while time.monotonic() < until:
        draw = rng.random()
        kind = "huge" if draw < HUGE else "malformed" if draw < HUGE + MALFORMED else "good"
        begun = time.monotonic()
        try:
            status, answer = await connection.post(rng.choice(kinds[kind]), headers)
        except (OSError, EOFError) as error:
            tally.lost.append(f"{kind} {type(error).__name__}")
            connection.close()
            continue
        tally.answers[kind, str(status)] += 1
        if status == 200:
            tally.seconds.append(time.monotonic() - begun)
        elif status in (408, 429, 503):
            await asyncio.sleep(min(float(answer.get("retry-after", "1")), MOST_RETRY_SECONDS) * (0.5 + rng.random()))
    connection.close()


async def load(server: Server, clients: int, budget: float, seconds: float, kinds: Kinds) -> Tally:
    """All clients at once, each with a connection of its own."""
    tally, until = Tally(), time.monotonic() + seconds

    async def watch() -> None:
        while True:
            tally.memory.append(server.memory())
            await asyncio.sleep(1)

    watching = asyncio.create_task(watch())
    common = {"content-type": "application/json", "allocator-time-limit": f"{budget:g}"}
    calls = []
    for at in range(clients):
        headers = {**common, "authorization": f"Bearer {server.tokens[at % len(server.tokens)]}"}
        calls.append(client(server.url, headers, until, random.Random(at), kinds, tally))
    await asyncio.gather(*calls)
    watching.cancel()
    return tally


def measure(clients: int, seconds: float, gpus: int, budget: float, options: list[str]) -> Tally:
    """Start a server with further options of the command, load it, and end it."""
    kinds = bodies(gpus)
    with tempfile.TemporaryDirectory() as folder:
        server = Server(Path(folder), clients, options)
        server.ready()
        tally = asyncio.run(load(server, clients, budget, seconds, kinds))
        tally.status = server.stop()
        tally.seen = server.seconds()
    return tally


def main(args: list[str] | None = None) -> int:
    """Measure and report."""
    parser = argparse.ArgumentParser(description="The service under load.", epilog="Further options go to allocator serve.")
    parser.add_argument("--clients", type=int, default=200)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--gpus", type=int, default=1024)
    parser.add_argument("--budget", type=float, default=5.0, help="time budget of each call")
    options, rest = parser.parse_known_args(args)
    tally = measure(options.clients, options.seconds, options.gpus, options.budget, rest)
    wrong = [*tally.wrong(), *tally.late(options.budget)]
    print(*tally.report(options.budget), *(f"MISSED: {line}" for line in wrong), sep="\n")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
