"""The file of tokens."""

from __future__ import annotations

import hashlib
import logging
import os
from pathlib import Path

import pytest

from allocator.domain import SnapshotError
from allocator.service.tokens import Client, Role, Tokens
from tests.service.conftest import DECIDE, READ


def test_tokens_and_digests(tokens: Path) -> None:
    hashed = hashlib.sha256(b"s" * 20).hexdigest()
    tokens.write_text(f"# who\n\nlauncher decide {DECIDE}  # yes\nslurm read sha256:{hashed}\n")
    known = Tokens(tokens)
    assert known.client_of(f"Bearer {DECIDE}") == Client("launcher", Role.DECIDE)
    assert known.client_of(f"bearer  {'s' * 20} ") == Client("slurm", Role.READ)
    assert known.client_of(f"Bearer sha256:{hashed}") is None, "the digest is not the token"
    assert known.client_of(None) is None


@pytest.mark.parametrize(
    ("text", "issue"),
    [
        ("", "holds no token"),
        ("# nothing", "holds no token"),
        (f"a {DECIDE}", "line 1: 2 words"),
        (f"a decide {DECIDE}\n/ decide {READ}", "line 2: '/' is no name"),
        (f"a admin {DECIDE}", "unknown role 'admin'"),
        ("a read short", "too short"),
        (f"a read {'é' * 20}", "characters that no header carries"),
        ("a read sha256:123", "the digest is damaged"),
        (f"a read {READ}\nb decide {READ}", "line 2: the token was given before"),
    ],
)
def test_a_file_with_problems_is_refused(tokens: Path, text: str, issue: str) -> None:
    tokens.write_text(text)
    with pytest.raises(SnapshotError) as caught:
        Tokens(tokens)
    assert issue in str(caught.value)
    assert DECIDE not in str(caught.value)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(SnapshotError, match="cannot be read"):
        Tokens(tmp_path / "none")


def test_a_changed_file_is_read_again(tokens: Path) -> None:
    known = Tokens(tokens)
    tokens.write_text(f"other read {'o' * 30}\n")
    assert known.client_of(f"Bearer {DECIDE}") is not None
    known.refresh()
    assert known.client_of(f"Bearer {DECIDE}") is None
    assert known.client_of(f"Bearer {'o' * 30}") == Client("other", Role.READ)


def test_a_change_to_nonsense_changes_nothing(tokens: Path, caplog: pytest.LogCaptureFixture) -> None:
    known = Tokens(tokens)
    tokens.write_text("nonsense")
    known.refresh()
    assert "the tokens stay as they were" in caplog.text
    tokens.unlink()
    known.refresh()
    assert known.client_of(f"Bearer {DECIDE}") is not None


def test_force_sees_a_change_that_left_no_trace(tokens: Path) -> None:
    known, before = Tokens(tokens), tokens.stat()
    tokens.write_bytes(tokens.read_bytes().replace(READ.encode(), b"q" * len(READ)))
    os.utime(tokens, ns=(before.st_atime_ns, before.st_mtime_ns))
    known.refresh()
    assert known.client_of(f"Bearer {READ}") is not None, "size, time and file are the same"
    known.refresh(force=True)
    assert known.client_of(f"Bearer {READ}") is None


def test_a_file_for_all_to_read_is_warned_of(tokens: Path, caplog: pytest.LogCaptureFixture) -> None:
    tokens.chmod(0o640)
    with caplog.at_level(logging.WARNING):
        Tokens(tokens)
        assert not caplog.text
        tokens.chmod(0o644)
        Tokens(tokens)
    assert "chmod 640" in caplog.text
