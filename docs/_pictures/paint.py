"""Bars and marks as SVG. Every colour is readable on a light page and on a dark one, so there is but one of each picture."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from html import escape

from docs._pictures.stage import Bar, Mark, Picture

LEFT, RIGHT, TOP, WIDTH = 64, 24, 40, 760
ROW, GAP, QUEUE, FOOT = 36, 6, 15, 26
INK = "#777777"

SOLID = ("#2f6db5", "#b85c12", "#2b8a57")
AFTER = ("#6c8bb0", "#b08a68", "#6d9c83")
FREE = "#8a8a8a"
THIN = ("#4a86cf", "#c8702a", "#3d9a68")
RED = "#d9534f"


def as_svg(picture: Picture) -> str:
    """The picture, its title included for those who cannot see it."""
    queue = _lanes([bar for bar in picture.bars if bar.node is None], 1)
    num_lanes = max((lane for _, lane in queue), default=-1) + 1
    bottom = TOP + len(picture.nodes) * (ROW + GAP)
    height = bottom + num_lanes * QUEUE + FOOT
    canvas = _Canvas(picture, bottom + num_lanes * QUEUE)
    parts = [*canvas.rows(), *canvas.axis(), *canvas.bars(), *canvas.queue(queue, bottom), *canvas.marks()]
    return _document(picture.title, height, parts)


def legend() -> str:
    """What the colours mean."""
    samples = [
        ("promised", "promised"),
        ("charged, promise over", "after"),
        ("free of charge", "free"),
        ("told to leave", "leaves"),
    ]
    parts, x = [], 8
    for text, kind in samples:
        parts.append(_rect(x, 8, 26, 16, kind, 0))
        parts.append(_text(x + 32, 20, text))
        x += 44 + round(6.5 * len(text))
    parts.append(f'<line x1="{x}" y1="16" x2="{x + 26}" y2="16" stroke="{THIN[0]}" stroke-width="3" stroke-dasharray="3 3"/>')
    parts += [_text(x + 32, 20, "waits")]
    parts.append(f'<rect x="{x + 84}" y="8" width="26" height="16" fill="url(#closed)" stroke="{INK}" stroke-width="0.5"/>')
    parts += [_text(x + 116, 20, "takes no work")]
    return _document("Legend: how bars are drawn", 32, parts)


class _Canvas:
    """Places things of one picture."""

    def __init__(self, picture: Picture, floor: int) -> None:
        self._picture, self._floor = picture, floor
        names = sorted({bar.allocation for bar in picture.bars})
        self._colour = {name: at % len(SOLID) for at, name in enumerate(names)}
        self._top = {node: TOP + at * (ROW + GAP) for at, node in enumerate(picture.nodes)}

    def x(self, at: int) -> float:
        """Where an instant lies."""
        return LEFT + (WIDTH - LEFT - RIGHT) * min(max(at, 0), self._picture.end) / self._picture.end

    def rows(self) -> Iterator[str]:
        """The nodes."""
        for node, top in self._top.items():
            yield _text(LEFT - 8, top + ROW / 2 + 4, node, anchor="end")
            yield (
                f'<rect x="{LEFT}" y="{top}" width="{WIDTH - LEFT - RIGHT}" height="{ROW}" fill="none" stroke="{INK}" '
                f'stroke-width="0.5"/>'
            )

    def axis(self) -> Iterator[str]:
        """Ticks below everything."""
        picture = self._picture
        name = "h" if picture.unit == 3600 else "min"
        ticks = picture.end // picture.unit
        for tick in range(0, ticks + 1, 5 if ticks > 16 else 2 if ticks > 8 else 1):
            x = self.x(tick * picture.unit)
            yield f'<line x1="{x:.1f}" y1="{TOP}" x2="{x:.1f}" y2="{self._floor}" stroke="{INK}" stroke-width="0.3"/>'
            yield _text(x, self._floor + 16, f"{tick} {name}", anchor="middle")

    def bars(self) -> Iterator[str]:
        """Work on nodes; what shares a node lies one above the other."""
        for node, top in self._top.items():
            mine = [bar for bar in self._picture.bars if bar.node == node]
            for bar, lane in sorted(_lanes(mine, self._picture.size), key=lambda item: item[0].kind == "ordered"):
                unit = ROW / self._picture.size
                yield from self._bar(bar, top + lane * unit, bar.gpus * unit)

    def _bar(self, bar: Bar, y: float, height: float) -> Iterator[str]:
        left, right = self.x(bar.begin), self.x(bar.end)
        yield _rect(left, y, right - left, height, bar.kind, self._colour[bar.allocation])
        first = min(other.begin for other in self._picture.bars if other.work == bar.work and other.node == bar.node)
        if bar.kind == "ordered":
            yield _text(right - 6, y + height / 2 + 4, f"{bar.work} is ordered", anchor="end", ink="#ffffff", weight="bold")
        elif height >= 8 and (bar.begin == first or bar.kind == "promised") and right - left > 7 * len(bar.work):
            size = min(12, int(height) + 1)
            yield _text(left + 5, y + height / 2 + 4, bar.work, ink="#ffffff", weight="bold", size=size)

    def queue(self, lanes: list[tuple[Bar, int]], top: int) -> Iterator[str]:
        """What waits, below the nodes."""
        if lanes:
            yield _text(LEFT - 8, top + 10, "waits", anchor="end")
        for bar, lane in lanes:
            y, left, right = top + lane * QUEUE + 6, self.x(bar.begin), self.x(bar.end)
            colour = THIN[self._colour[bar.allocation]]
            shift = 7 * len(bar.work) + 8
            yield _text(left + 2, y + 4, bar.work, ink=colour, weight="bold", size=11)
            if right > left + shift:
                yield (
                    f'<line x1="{left + shift:.1f}" y1="{y}" x2="{right:.1f}" y2="{y}" stroke="{colour}" stroke-width="3" '
                    f'stroke-dasharray="3 3"/>'
                )

    def marks(self) -> Iterator[str]:
        """Instants that matter, and stretches in which a node takes no work."""
        for mark in self._picture.marks:
            yield from self._closed(mark) if mark.until is not None else self._line(mark)

    def _closed(self, mark: Mark) -> Iterator[str]:
        left, right, top = self.x(mark.at), self.x(mark.until or 0), self._top[mark.node or ""]
        yield f'<rect x="{left:.1f}" y="{top}" width="{right - left:.1f}" height="{ROW}" fill="url(#closed)"/>'

    def _line(self, mark: Mark) -> Iterator[str]:
        x = self.x(mark.at)
        anchor = "end" if x > WIDTH - 8 * len(mark.text) else "start"
        yield (
            f'<line x1="{x:.1f}" y1="{TOP - 10}" x2="{x:.1f}" y2="{self._floor}" stroke="{RED}" stroke-width="1.5" '
            f'stroke-dasharray="5 3"/>'
        )
        yield _text(x + (-4 if anchor == "end" else 4), TOP - 12, mark.text, anchor=anchor, ink=RED)


def _lanes(bars: list[Bar], size: int) -> list[tuple[Bar, int]]:
    """Each bar with the lowest lane that is free all its time; work keeps its lane. Queued work takes one lane each."""
    placed: list[tuple[Bar, int, int]] = []
    for bar in bars:
        if bar.kind == "ordered":  # it shares its place with what is leaving
            placed.append((bar, 0, 0))
            continue
        need = bar.gpus if bar.node is not None else 1
        kept = [lane for other, lane, _ in placed if other.work == bar.work and other.end == bar.begin]
        lane = next(lane for lane in [*kept, *range(len(bars) + size)] if _free(placed, bar, lane, need))
        placed.append((bar, lane, need))
    return [(bar, lane) for bar, lane, _ in placed]


def _free(placed: Iterable[tuple[Bar, int, int]], bar: Bar, lane: int, need: int) -> bool:
    return not any(
        size and other.begin < bar.end and bar.begin < other.end and at < lane + need and lane < at + size
        for other, at, size in placed
    )


def _rect(x: float, y: float, width: float, height: float, kind: str, colour: int) -> str:
    fill, stroke, dashes = {
        "promised": (SOLID[colour], "none", ""),
        "after": (AFTER[colour], "none", ""),
        "free": (FREE, SOLID[colour], ' stroke-dasharray="5 3"'),
        "leaves": ("#9a6a6a", RED, ' stroke-dasharray="2 2"'),
        "ordered": ("none", SOLID[colour], ' stroke-dasharray="5 3"'),
    }[kind]
    return (
        f'<rect x="{x + 0.75:.1f}" y="{y + 0.75:.1f}" width="{width - 1.5:.1f}" height="{height - 1.5:.1f}" rx="2" '
        f'fill="{fill}" stroke="{stroke}" stroke-width="1.5"{dashes}/>'
    )


def _text(
    x: float, y: float, text: str, *, anchor: str = "start", ink: str = INK, weight: str = "normal", size: int = 12
) -> str:
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" fill="{ink}" font-weight="{weight}" font-size="{size}">'
        f"{escape(text)}</text>"
    )


_CLOSED = (
    '<defs><pattern id="closed" width="6" height="6" patternUnits="userSpaceOnUse" patternTransform="rotate(45)">'
    f'<line x1="0" y1="0" x2="0" y2="6" stroke="{INK}" stroke-width="1.2" stroke-opacity="0.7"/></pattern></defs>'
)


def _document(title: str, height: float, parts: Iterable[str]) -> str:
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}" '
        f'role="img" font-family="Helvetica, Arial, sans-serif">'
    )
    return "\n".join([head, f"<title>{escape(title)}</title>", _CLOSED, *parts, "</svg>"]) + "\n"
