"""Runs commands in this process, and the documents they are run on."""

from __future__ import annotations

import io
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import pytest

from allocator.cli.main import main
from tests.wire.documents import Json, document, job, running


@dataclass(frozen=True)
class Result:
    """How a command ended, and what it wrote."""

    status: int
    out: bytes
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)

    @property
    def text(self) -> str:
        return self.out.decode()


class Invoke(Protocol):
    """Run one command."""

    def __call__(self, *args: object, stdin: bytes = b"") -> Result: ...


@pytest.fixture
def invoke(capsysbinary: pytest.CaptureFixture[bytes], monkeypatch: pytest.MonkeyPatch) -> Invoke:
    def run(*args: object, stdin: bytes = b"") -> Result:
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        with pytest.raises(SystemExit) as caught:
            main([str(item) for item in args])
        out, err = capsysbinary.readouterr()
        assert isinstance(caught.value.code, int)
        return Result(caught.value.code, out, err.decode())

    return run


def write(path: Path, value: Json) -> Path:
    path.write_text(json.dumps(value))
    return path


@pytest.fixture
def snapshot(tmp_path: Path) -> Path:
    """One node is held free of charge; two jobs wait, one of them for what does not exist."""
    works = [running("r", {"n1": 1}, min_runtime=0, gpus_per_task=8, run={"charged": False}), job("w"), job("bad", tasks=-1)]
    return write(tmp_path / "snapshot.json", document(*works))


@pytest.fixture
def contradiction(tmp_path: Path) -> Path:
    """A snapshot with two reasons to be refused."""
    return write(tmp_path / "contradiction.json", document(job("w"), job("w"), running("r", {"n9": 1})))


@pytest.fixture
def decision(snapshot: Path, tmp_path: Path, invoke: Invoke) -> Path:
    """The decision for `snapshot`."""
    out = tmp_path / "decision.json"
    assert invoke("solve", snapshot, "--engine", "greedy", "--out", out).status == 0
    return out
