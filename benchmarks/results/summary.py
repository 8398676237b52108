"""The summary of the page: what an operator has to know first, sentence by sentence from the figures."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from benchmarks.results.figures import Found, cells_of, shown, verdict
from benchmarks.results.studies import Study

HEADLINES = {
    "useful": "what projects get of what they are owed, as useful time",
    "useful_lowest": "what the worst served project gets",
    "goodput": "the useful part of the cluster",
    "wait_p50": "the median wait",
    "wait_p90": "the wait that one job in ten exceeds",
    "wait_promised_p90": "the same of work with a min runtime",
    "wait_debug_p90": "the same of debug work",
    "wait_large_p50": "the median wait of large gangs",
}
"""Metrics that the summary tells, and how it calls them."""


def summary(found: Sequence[tuple[Study, Found]]) -> Iterator[str]:
    """A sentence or two of every study of policies: our figures, the best of the others, and how often these win."""
    for study, answer in found:
        if study.rivals:
            yield f"**{study.heading}**: {'; '.join(_told(answer))}. {_score(answer)}"


def _told(answer: Found) -> Iterator[str]:
    """Ours, and the best of the others where they differ; `*` where chance does not explain it."""
    cells = cells_of(answer)
    first, *others = [variant["name"] for variant in answer["variants"]]
    for name, words in HEADLINES.items():
        own = cells[name, first]
        known = [cells[name, other] for other in others if cells[name, other]["value"] is not None]
        if own["value"] is None or not known:
            continue
        sign = -1 if own["better"] == "higher" else 1
        best = min(known, key=lambda row: sign * row["value"])
        yield f"{words} {shown(own)} (best of the others: `{best['variant']}` {shown(best)})"


def _score(answer: Found) -> str:
    """In how many comparisons ours is worse and better beyond chance, and against whom it loses most."""
    first = answer["variants"][0]["name"]
    rows = [row for row in answer["comparison"] if row["variant"] != first and row["better"]]
    worse = [row["variant"] for row in rows if verdict(row) > 0]
    better = sum(verdict(row) < 0 for row in rows)
    said = f"Beyond chance it is better in {better} and worse in {len(worse)} of {len(rows)} comparisons"
    if not worse:
        return f"{said}."
    most = max(sorted(set(worse)), key=worse.count)
    return f"{said}, most often worse than `{most}` ({worse.count(most)})."
