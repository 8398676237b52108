"""The command itself: options, and a server from its start to its orderly end, over TLS."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from allocator.generate import generate_snapshot
from allocator.record import recorded
from allocator.service.run import Address, AddressError, listen
from allocator.verify import verify
from allocator.wire import decode_decision, encode_snapshot, load_decision, load_snapshot
from tests.cli import conftest as cli
from tests.cli.conftest import Invoke
from tests.service.conftest import DECIDE, JSON, READ, bearer

invoke = cli.invoke  # the fixture

PATIENCE = 300.0
"""Seconds that a loaded machine may need."""


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ([], "give a file, or --no-tokens"),
        (["--tokens", "x", "--no-tokens"], "give a file, or --no-tokens"),
        (["--no-tokens", "--host", "0.0.0.0"], "others can reach this address"),
        (["--no-tokens", "--host", "gpu.example.org"], "others can reach this address"),
        (["--no-tokens", "--key", "x"], "TLS needs --certificate and --key"),
        (["--no-tokens", "--clients", "x"], "TLS needs --certificate and --key"),
        (["--no-tokens", "--key", "x", "--certificate", "x"], "x cannot be read"),
        (["--no-tokens", "--time-limit", "61"], "61 is above --max-time-limit 60"),
        (["--no-tokens", "--log-level", "loud"], "give one of debug, info"),
        (["--tokens", "nowhere"], "nowhere: cannot be read"),
    ],
)
def test_options_are_checked_before_anything_starts(invoke: Invoke, options: list[str], problem: str) -> None:
    result = invoke("serve", *options)
    assert result.status == 2
    assert problem in " ".join(re.sub(r"[│╭╮╰╯─]", " ", result.err).split())


def test_a_folder_of_records_that_cannot_be_made(invoke: Invoke, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    result = invoke("serve", "--no-tokens", "--record", tmp_path / "file")
    assert result.status == 2
    assert "cannot be made" in result.err


def test_files_that_are_no_certificates(invoke: Invoke, tmp_path: Path, certificate: tuple[Path, Path]) -> None:
    cert, key = certificate
    (wrong := tmp_path / "wrong.pem").write_text("no certificate")
    for files in (("--certificate", wrong, "--key", key), ("--certificate", cert, "--key", cert)):
        result = invoke("serve", "--no-tokens", *files)
        assert result.status == 2
        assert "are no pair" in result.err
    result = invoke("serve", "--no-tokens", "--certificate", cert, "--key", key, "--clients", wrong)
    assert result.status == 2
    assert "holds no certificate" in result.err


def test_the_extra_is_named_where_it_is_missing(invoke: Invoke, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "allocator.service.run", None)
    result = invoke("serve", "--no-tokens")
    assert result.status == 2
    assert "gpu-epoch-allocator[serve]" in "".join(re.sub(r"[│╭╮╰╯─\n]", " ", result.err).split())


@pytest.mark.parametrize(("host", "local"), [("127.0.0.1", True), ("::1", True), ("localhost", True), ("10.0.0.1", False)])
def test_which_addresses_only_this_machine_can_reach(host: str, local: bool) -> None:
    assert Address(host=host).is_local is local


class Server:
    """`allocator serve` in a process of its own, on a port that it has chosen."""

    def __init__(self, *options: object) -> None:
        command = [sys.executable, "-m", "allocator", "serve", "--port", "0", "--workers", "1", *map(str, options)]
        self.process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        self.lines: list[Any] = []
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        self.port = int(self.wait_for(r"running on https?://127\.0\.0\.1:(\d+)"))

    def wait_for(self, pattern: str) -> str:
        """The first group of a pattern, once it stands in the message of a log line."""
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end:
            for line in list(self.lines):
                if found := re.search(pattern, line["message"]):
                    return found[found.lastindex or 0]
            assert self.process.poll() is None or self._reader.is_alive(), self.lines
            time.sleep(0.02)
        raise AssertionError(f"{pattern} is not in the log")

    def end(self) -> int:
        """The exit status, once all of the log has been read."""
        status = self.process.wait(PATIENCE)
        self._reader.join(PATIENCE)
        return status

    def _read(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.lines.append(json.loads(line))


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A certificate for 127.0.0.1 that nobody has signed, and its key."""
    if shutil.which("openssl") is None:
        pytest.skip("openssl is not installed: no certificate to serve with")
    folder = tmp_path_factory.mktemp("tls")
    files = folder / "cert.pem", folder / "key.pem"
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2"]
    command += [
        "-subj",
        "/CN=127.0.0.1",
        "-addext",
        "subjectAltName=IP:127.0.0.1",
        "-out",
        str(files[0]),
        "-keyout",
        str(files[1]),
    ]
    subprocess.run(command, check=True, capture_output=True)
    return files


@pytest.fixture
def server(tokens: Path, tmp_path: Path, certificate: tuple[Path, Path]) -> Iterator[Server]:
    cert, key = certificate
    files = ["--tokens", tokens, "--record", tmp_path / "epochs", "--certificate", cert, "--key", key]
    started = Server(*files, "--worker-memory", 3000)
    yield started
    started.process.kill()
    started.process.wait()


@pytest.mark.slow
def test_from_start_to_end(server: Server, tokens: Path, tmp_path: Path, certificate: tuple[Path, Path]) -> None:
    context = ssl.create_default_context(cafile=str(certificate[0]))
    with httpx.Client(base_url=f"https://127.0.0.1:{server.port}", verify=context, timeout=PATIENCE) as client:
        end = time.monotonic() + PATIENCE
        while client.get("/readyz").status_code != 200 and time.monotonic() < end:
            time.sleep(0.05)
        snapshot = encode_snapshot(generate_snapshot(gpus=256, seed=1))
        ask = {"allocator-time-limit": "60", **JSON, **bearer(DECIDE)}

        first = client.post("/v1/decisions", content=snapshot, headers=ask)
        assert first.status_code == 200
        (epoch,) = recorded(tmp_path / "epochs")
        kept = load_snapshot(epoch.snapshot), load_decision(epoch.decision)
        assert kept[1] == decode_decision(first.content)
        assert verify(*kept).ok

        tokens.write_text(f"launcher decide {READ}\n")
        server.process.send_signal(signal.SIGHUP)
        server.wait_for("1 tokens read")
        assert client.get("/metrics", headers=bearer(DECIDE)).status_code == 401
        late = threading.Thread(target=lambda: answers.append(client.post("/v1/decisions", content=snapshot, headers=ask)))
        answers: list[httpx.Response] = []
        ask |= bearer(READ)
        late.start()
        while not answers and "underway 1.0" not in client.get("/metrics", headers=bearer(READ)).text:
            time.sleep(0.01)
        server.process.send_signal(signal.SIGTERM)
        late.join(PATIENCE)
    assert answers[0].status_code == 200, "what was begun is finished"
    assert server.end() == 0
    assert server.wait_for("stopped by (SIGTERM)")
    decided = [line for line in server.lines if line.get("rung")]
    assert [line["decision"] for line in decided] == [answer.headers["allocator-decision"] for answer in (first, answers[0])]


@pytest.mark.slow
def test_workers_end_when_the_server_is_killed(tmp_path: Path) -> None:
    server = Server("--no-tokens")
    children = Path(f"/proc/{server.process.pid}/task/{server.process.pid}/children")
    if not children.exists():
        pytest.skip("this kernel does not list children")
    end = time.monotonic() + PATIENCE
    while httpx.get(f"http://127.0.0.1:{server.port}/readyz").status_code != 200 and time.monotonic() < end:
        time.sleep(0.05)
    (worker,) = map(int, children.read_text().split())
    server.process.kill()
    server.end()
    while time.monotonic() < end and _runs(worker):
        time.sleep(0.02)
    assert not _runs(worker)


def _runs(pid: int) -> bool:
    try:
        os.kill(pid, 0)
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (ProcessLookupError, FileNotFoundError):
        return False


def test_an_address_that_is_taken_or_not_of_this_machine(invoke: Invoke, tokens: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        options = ["--port", taken.getsockname()[1]]
        for more in (options, ["--host", "203.0.113.5"], ["--host", "no-such-host.invalid"]):
            result = invoke("serve", "--tokens", tokens, *more)
            assert result.status == 2
            said = " ".join(result.err.split())
            assert "end what listens there, or give another address" in said
            assert "Traceback" not in said


def test_an_address_of_the_newer_kind() -> None:
    try:
        listener = listen(Address(host="::1", port=0))
    except AddressError:
        pytest.skip("this machine has no IPv6")
    with listener:
        assert listener.getsockname()[1]
