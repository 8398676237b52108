"""The summary of the page: what an operator has to know first, sentence by sentence from the figures."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from allocator.replay.report import BY_NAME, show
from benchmarks.results.figures import PUBLISHED, Found, Row, cells_of, compared, shown, verdict
from benchmarks.results.studies import OURS, Study

HEADLINES = {
    "useful": ("useful", "what projects get of what they are owed, as useful time"),
    "useful_lowest": ("useful, lowest project", "what the worst served project gets of it"),
    "goodput": ("goodput", "the useful part of the cluster"),
    "wait_p50": ("wait, median", "the median wait"),
    "wait_p90": ("wait, p90", "the wait that one job in ten exceeds"),
    "wait_promised_p90": ("promised work, p90", "the same of work with a min runtime"),
    "wait_debug_p90": ("debug, p90", "the same of debug work"),
    "wait_large_p50": ("large gangs, median", "the median wait of large gangs"),
}
"""Metrics that the summary tells: their heads in its table, and what its sentences call them."""


def summary(found: Sequence[tuple[Study, Found]]) -> Iterator[str]:
    """How often ours is best, what became of its promises, and a table of ours beside the best of the others, line by line."""
    rivals = [(study, answer) for study, answer in found if study.rivals]
    if not rivals:
        return
    answers = [answer for _, answer in rivals]
    spare = sum((cells_of(answer)["load", answer["variants"][0]["name"]]["value"] or 0) < 1 for answer in answers)
    yield f"- In {spare} of {len(answers)} studies less is asked for than there is, so that there is little to decide."
    told = "; ".join(f"{words} in {best} of {known}" for words, best, known in _tally(answers))
    yield f"- No other policy does better than `{OURS}`, chance or not, in: {told}."
    reached = "; ".join(f"{what} in {number} of {known}" for what, number, known in _reached(answers))
    yield f"- Of what is [published](#what-to-beware-of), `{OURS}` reaches, where it is known: {reached}."
    broken = sum((Counter(answer["broken"]) for answer in answers), Counter[str]())
    yield f"- Promises that `{OURS}` broke in all of this: {listed(broken)}."
    yield ""
    last = "last in how many comparisons it is better and worse than another policy, beyond chance"
    yield f"`{OURS}`, and in brackets the best of the others; {last}:"
    yield ""
    yield f"| | {' | '.join(head for head, _ in HEADLINES.values())} | better | worse | of |"
    yield f"| --- |{' --- |' * len(HEADLINES)} ---: | ---: | ---: |"
    yield from (f"| [{study.heading}](#{anchor(study.heading)}) | {' | '.join(_row(answer))} |" for study, answer in rivals)


def anchor(heading: str) -> str:
    """The anchor that Markdown gives a heading."""
    kept = "".join(letter for letter in heading.lower() if letter.isalnum() or letter in " -_")
    return kept.replace(" ", "-")


def listed(broken: Mapping[str, int]) -> str:
    """How many promises were broken, and by what."""
    causes = ", ".join(f"{number} by {cause}" for cause, number in sorted(broken.items()))
    return f"{sum(broken.values())} ({causes})" if broken else "none"


def _tally(answers: Sequence[Found]) -> Iterator[tuple[str, int, int]]:
    """Of each headline: in how many studies no other is better, and in how many something is known."""
    for name, (_, words) in HEADLINES.items():
        pairs = [pair for answer in answers if (pair := _ours_and_best(answer, name)) is not None]
        best = sum(_sign(own) * own["value"] <= _sign(own) * other["value"] for own, other in pairs)
        if pairs:
            yield words, best, len(pairs)


def _reached(answers: Sequence[Found]) -> Iterator[tuple[str, int, int]]:
    """Of each published figure of which more or less is better: in how many studies ours is as good."""
    for name, figure in PUBLISHED["published"].items():
        own = [cells_of(answer)[name, answer["variants"][0]["name"]] for answer in answers]
        known = [row for row in own if row["value"] is not None and row["better"]]
        met = sum(_sign(row) * row["value"] <= _sign(row) * figure for row in known)
        if known:
            yield f"`{name}` {show(figure, BY_NAME[name])}", met, len(known)


def _row(answer: Found) -> Iterator[str]:
    """Ours beside the best of the others, then wins and losses beyond chance."""
    for name in HEADLINES:
        pair = _ours_and_best(answer, name)
        yield "-" if pair is None else f"{shown(pair[0])} ({shown(pair[1])} `{pair[1]['variant']}`)"
    first = answer["variants"][0]["name"]
    verdicts = [verdict(row) for row in answer["comparison"] if row["variant"] != first and compared(row)]
    yield from (str(verdicts.count(-1)), str(verdicts.count(1)), str(len(verdicts)))


def _ours_and_best(answer: Found, name: str) -> tuple[Row, Row] | None:
    """None where nothing is known."""
    cells = cells_of(answer)
    first, *others = [variant["name"] for variant in answer["variants"]]
    own = cells[name, first]
    known = [cells[name, other] for other in others if cells[name, other]["value"] is not None]
    if own["value"] is None or not known:
        return None
    return own, min(known, key=lambda row: float(_sign(own) * row["value"]))


def _sign(row: Row) -> int:
    """1 where less is better."""
    return -1 if row["better"] == "higher" else 1
