"""The service under load, for a minute: nothing is lost, and nothing fails but for want of room."""

from __future__ import annotations

import pytest

from benchmarks.service_load import measure

MOST_MEMORY = 6 << 30
"""Bytes: far below what a leak of a few bodies in each call would come to."""


@pytest.mark.fuzz
def test_many_clients_some_of_them_malformed_or_huge() -> None:
    tally = measure(clients=200, seconds=60.0, gpus=1024, budget=5.0, options=[])
    assert tally.wrong() == []
    assert tally.seconds, "some calls are accepted"
    assert {status for (kind, status) in tally.answers if kind == "huge"} <= {"413", "429", "503", "408"}
    assert {status for (kind, status) in tally.answers if kind == "malformed"} <= {"422", "429", "503", "408"}
    assert max(tally.memory) < MOST_MEMORY
