"""A budget tree that looks like a research organisation: org > program > project > researcher.

Programs and their shares are those of the workload model. Projects ask for more or less than their budget, so that
borrowing and reclaiming are exercised. Researchers split entitlement but hold no budget (`funds` false).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from allocator.domain import Allocation

ROOT = "org"
RESEARCHERS_PER_PROJECT = 13


@dataclass(frozen=True, slots=True, kw_only=True)
class ProjectPlan:
    """A project of the model: its share inside the program, its appetite relative to the budget, and what it works on."""

    program: str
    name: str
    share: int
    appetite: float
    kind: str


PROGRAM_SHARES = {
    "base": 45,
    "adapt": 22,
    "multimodal": 13,
    "science": 7,
    "robotics": 6,
    "climate": 3,
    "shared": 4,
}

PLANS = (
    ProjectPlan(program="base", name="pretrain", share=65, appetite=1.0, kind="pretrain"),
    ProjectPlan(program="base", name="data-ablations", share=35, appetite=1.4, kind="ablations"),
    ProjectPlan(program="adapt", name="posttrain", share=45, appetite=1.0, kind="posttrain"),
    ProjectPlan(program="adapt", name="rl", share=55, appetite=1.5, kind="rl"),
    ProjectPlan(program="multimodal", name="train", share=100, appetite=1.0, kind="mixed"),
    ProjectPlan(program="science", name="agents", share=100, appetite=1.1, kind="rl"),
    ProjectPlan(program="robotics", name="policy", share=100, appetite=1.0, kind="mixed"),
    ProjectPlan(program="climate", name="emulation", share=100, appetite=0.5, kind="mixed"),
    ProjectPlan(program="shared", name="interns", share=100, appetite=0.6, kind="small"),
)

AFFINITY: dict[str, dict[str, float]] = {
    "pretrain": {"debug": 1, "eval": 1, "experiment": 0.5, "post-training": 0.2, "rl": 0.1, "ablation": 1.2, "flagship": 3},
    "ablations": {"debug": 1, "eval": 1.5, "experiment": 1, "post-training": 0.3, "rl": 0.1, "ablation": 3, "flagship": 0.3},
    "posttrain": {"debug": 1, "eval": 1.5, "experiment": 1, "post-training": 4, "rl": 1, "ablation": 0.3, "flagship": 0.05},
    "rl": {"debug": 1, "eval": 1, "experiment": 1, "post-training": 1, "rl": 4, "ablation": 0.2, "flagship": 0.02},
    "mixed": {"debug": 1, "eval": 1, "experiment": 1.5, "post-training": 1.2, "rl": 0.8, "ablation": 1, "flagship": 0.4},
    "small": {"debug": 2, "eval": 1, "experiment": 3, "post-training": 0.5, "rl": 0.05, "ablation": 0.02, "flagship": 0},
}
"""How much more of a class a kind of project asks for than its budget says."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Project:
    """A project of the generated tree. `part` is its share of the whole organisation."""

    id: str
    program: str
    kind: str
    part: float
    appetite: float
    researchers: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Organisation:
    """The tree, and its projects as the other steps need them."""

    budgets: tuple[Allocation, ...]
    projects: tuple[Project, ...]

    def project_of(self) -> dict[str, Project]:
        """Project of each researcher."""
        return {leaf: project for project in self.projects for leaf in project.researchers}


def default_leaves(gpus: int) -> int:
    """Researchers of an organisation with so many GPUs: 60 at 1,024, 640 at 102,400."""
    return max(6, round(60 * math.pow(gpus / 1024, 0.514)))


def build_organisation(rng: np.random.Generator, leaves: int, pools: Sequence[str]) -> Organisation:
    """Draw a tree with exactly `leaves` researchers."""
    plans = _plan_projects(rng, leaves)
    counts = _split_researchers(plans, leaves)
    budgets = [Allocation(id=ROOT, parent=None, name="Organisation", share=Fraction(1))]
    budgets.extend(
        Allocation(id=program, parent=ROOT, name=program.title(), share=Fraction(PROGRAM_SHARES[program]))
        for program in dict.fromkeys(plan.program for plan in plans)
    )
    projects = []
    first_user = 1
    for plan, count in zip(plans, counts, strict=True):
        project, vertices = _build_project(rng, plan, first_user, count, plans, pools)
        projects.append(project)
        budgets.extend(vertices)
        first_user += count
    return Organisation(budgets=tuple(budgets), projects=tuple(projects))


def _plan_projects(rng: np.random.Generator, leaves: int) -> list[ProjectPlan]:
    """The nine projects of the model, fewer in a tiny tree, and further ones in a large tree."""
    plans = list(PLANS[: min(len(PLANS), leaves)])
    further = max(0, round(leaves / RESEARCHERS_PER_PROJECT) - len(plans))
    parts = np.array([_part(plan, plans) for plan in plans])
    for number, index in enumerate(rng.choice(len(plans), size=further, p=parts / parts.sum())):
        model = plans[int(index)]
        plans.append(
            ProjectPlan(
                program=model.program,
                name=f"{model.name}-{number + 2}",
                share=int(rng.integers(10, 60)),
                appetite=round(float(np.clip(rng.lognormal(0.0, 0.4), 0.4, 2.0)), 2),
                kind=model.kind,
            )
        )
    return plans


def _part(plan: ProjectPlan, plans: Sequence[ProjectPlan]) -> float:
    """Share of a project in the whole organisation."""
    programs = {other.program for other in plans}
    program_part = PROGRAM_SHARES[plan.program] / sum(PROGRAM_SHARES[program] for program in programs)
    return program_part * plan.share / sum(other.share for other in plans if other.program == plan.program)


def _split_researchers(plans: Sequence[ProjectPlan], leaves: int) -> list[int]:
    """Researchers of each project: one each, the rest by the square root of the share, so that small ones have a few."""
    weights = np.sqrt([_part(plan, plans) for plan in plans])
    wanted = weights / weights.sum() * (leaves - len(plans))
    counts = np.floor(wanted).astype(int)
    order = np.argsort(counts - wanted, kind="stable")
    counts[order[: leaves - len(plans) - int(counts.sum())]] += 1
    return [int(count) + 1 for count in counts]


def _build_project(
    rng: np.random.Generator,
    plan: ProjectPlan,
    first_user: int,
    count: int,
    plans: Sequence[ProjectPlan],
    pools: Sequence[str],
) -> tuple[Project, list[Allocation]]:
    """One project with its researchers: most have one share, a few lead with two, interns have a limit."""
    project_id = f"{plan.program}/{plan.name}"
    by_pool = {}
    if len(pools) > 1 and rng.random() < 0.4:
        by_pool = {str(rng.choice(pools[1:])): Fraction(int(rng.integers(5, 90)))}
    vertices = [Allocation(id=project_id, parent=plan.program, share=Fraction(plan.share), share_by_pool=by_pool)]
    researchers = []
    for user in range(first_user, first_user + count):
        leaf = f"{project_id}/u{user:03d}"
        share = Fraction(2) if rng.random() < 0.15 else Fraction(1)
        limit = int(rng.choice([16, 32, 64])) if plan.kind == "small" and rng.random() < 0.5 else None
        vertices.append(Allocation(id=leaf, parent=project_id, share=share, funds=False, gpu_limit=limit))
        researchers.append(leaf)
    project = Project(
        id=project_id,
        program=plan.program,
        kind=plan.kind,
        part=_part(plan, plans),
        appetite=plan.appetite,
        researchers=tuple(researchers),
    )
    return project, vertices
