"""The list of rules: the table of contents of the verifier."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from allocator.verify.case import Case, Rule
from allocator.verify.document import document
from allocator.verify.rules_placement import capacity, eligibility, gang, health, single_node_task, topology
from allocator.verify.rules_progress import unallocated_last, work_conservation
from allocator.verify.rules_promises import commitment, express, funding, gpu_limit, lease, protection
from allocator.verify.rules_reservation import reservation
from allocator.verify.rules_score import score
from allocator.verify.rules_stops import beneficiary, charged_first, licence, max_preemptions, minimal, relocation
from allocator.verify.verdict import Violation

RULES: Mapping[str, Rule] = {
    "document": document,
    "capacity": capacity,
    "gang": gang,
    "single_node_task": single_node_task,
    "topology": topology,
    "eligibility": eligibility,
    "protection": protection,
    "health": health,
    "funding": funding,
    "gpu_limit": gpu_limit,
    "express": express,
    "lease": lease,
    "max_preemptions": max_preemptions,
    "licence": licence,
    "relocation": relocation,
    "reservation": reservation,
    "commitment": commitment,
    "beneficiary": beneficiary,
    "charged_first": charged_first,
    "minimal": minimal,
    "work_conservation": work_conservation,
    "unallocated_last": unallocated_last,
    "score": score,
}
"""Every rule by its name, in the order in which violations are reported."""


def broken_rules(case: Case) -> Iterator[Violation]:
    """Every violation of a case; those found while its rows were read stand with the rule that they break."""
    found = [violation for rule in RULES.values() for violation in rule(case)]
    order = {name: position for position, name in enumerate(RULES)}
    yield from sorted(found, key=lambda violation: order[violation.rule])
