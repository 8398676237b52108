"""Drawing: a picture becomes two drawings as inline SVG, for a wide page and for a phone, in the colours of the style sheet."""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from allocator.domain import printable
from allocator.pages.palette import light, with_variables
from allocator.replay.errors import MissingExtraError

POINTS = 72
"""One unit of a drawing is one pixel of the page at full size."""

WIDE, NARROW = 860, 330
"""Widths of the two drawings."""

Paint = Callable[[Any, "Size"], None]
"""Draws on a matplotlib figure of a size."""


@dataclass(frozen=True, slots=True)
class Size:
    """Width and height of a drawing in pixels; the narrow one is for phones."""

    width: int
    height: int

    @property
    def narrow(self) -> bool:
        """Whether there is little room."""
        return self.width <= NARROW


@dataclass(frozen=True, slots=True)
class Drawing:
    """The same picture twice."""

    wide: str
    narrow: str


def draw(name: str, paint: Paint, *, height: int, narrow_height: int | None = None) -> Drawing:
    """Draw a picture; `name` is unique on the page, heights are in pixels."""
    sizes = (Size(WIDE, height), Size(NARROW, narrow_height or height))
    return Drawing(*(_svg(f"{name}-{size.width}", paint, size) for size in sizes))


_TICKS = ["%Y", "%b", "%-d %b", "%H:%M", "%H:%M", "%S"]
_TICKS_AT_ZERO = ["", "%b %Y", "%-d %b", "%-d %b", "%H:%M", "%H:%M"]
"""How instants are written on an axis, by the unit in which ticks are apart; and where that unit begins anew."""


def bare(axes: Any, *, grid: str = "x") -> None:
    """Leave of a pair of axes what is needed to read values; names of rows that are set later may have another colour."""
    axes.spines[:].set_visible(False)
    axes.tick_params(length=0, colors=light("muted"))
    axes.set_axisbelow(True)
    axes.grid(visible=True, axis=grid, color=light("grid"), linewidth=0.8)


def by_time(axes: Any, start: int, end: int, *, ticks: int) -> None:
    """A horizontal axis from one instant to another, in UTC."""
    from matplotlib import dates as typed

    dates: Any = typed  # these classes have no types
    axes.set_xlim(moments([start])[0], moments([end])[0])
    locator = dates.AutoDateLocator(minticks=2, maxticks=ticks)
    locator.intervald[dates.HOURLY] = [1, 2, 3, 4, 6, 12, 24]  # a day or two on a narrow page have room for midnights only
    axes.xaxis.set_major_locator(locator)
    axes.xaxis.set_major_formatter(
        dates.ConciseDateFormatter(locator, formats=_TICKS, zero_formats=_TICKS_AT_ZERO, show_offset=False)
    )


def moments(seconds: Iterable[int]) -> Any:
    """Instants as numpy has them."""
    import numpy

    return numpy.array(list(seconds), dtype="datetime64[s]")


def _svg(name: str, paint: Paint, size: Size) -> str:
    with _style(name):
        from matplotlib.backends.backend_svg import FigureCanvasSVG
        from matplotlib.figure import Figure

        figure = Figure(figsize=(size.width / POINTS, size.height / POINTS), dpi=POINTS, layout="constrained")
        paint(figure, size)
        out = io.StringIO()
        canvas: Any = FigureCanvasSVG(figure)
        canvas.print_svg(out, metadata={"Date": None, "Creator": None})  # savefig would draw twice
    return _inline(out.getvalue(), size)


@contextmanager
def _style(name: str) -> Iterator[None]:
    """What all pictures look like. The salt makes the names inside a drawing its own, and the same each time."""
    matplotlib = import_matplotlib()
    style = {
        "svg.fonttype": "none",
        "figure.facecolor": "none",
        "axes.facecolor": "none",
        "svg.hashsalt": name,
        "font.size": 12,
        "axes.labelsize": 12,
        "axes.titlesize": 12,
        "xtick.labelsize": 11,
        "ytick.labelsize": 11,
        "text.color": light("ink"),
        "axes.labelcolor": light("muted"),
        "axes.titlecolor": light("ink"),
        "hatch.linewidth": 1.0,
        "legend.frameon": False,
        "path.simplify_threshold": 0.2,
    }
    with matplotlib.rc_context(style):
        yield


def import_matplotlib() -> Any:
    """Matplotlib, which the extra `report` brings.

    Raises
    ------
    MissingExtraError
        If it is not installed.
    """
    try:
        import jinja2  # noqa: F401
        import matplotlib
    except ImportError as error:
        problem = f"{error.name} is not installed: pip install 'gpu-epoch-allocator[report]'"
        raise MissingExtraError(f"a report is a page with pictures, and {problem}") from error
    return matplotlib


def _inline(document: str, size: Size) -> str:
    """What of an SVG document belongs into a page: no prologue, no names that nobody refers to, short numbers."""
    svg = document[document.index("<svg") :].replace("\n", " ").strip()
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    used = set(re.findall(r'(?:url\(|href=")#([^)"]+)', svg))
    svg = re.sub(r' id="([^"]+)"', lambda found: found[0] if found[1] in used else "", svg)
    svg = re.sub(r"(\d+\.\d\d)\d+", r"\1", svg)
    svg = re.sub(r"\s+", " ", re.sub(r"font: [^;\"]*?(\d+(?:\.\d+)?px)[^;\"]*", r"font-size: \1", svg))
    opening = f'<svg viewBox="0 0 {size.width} {size.height}" aria-hidden="true" focusable="false">'
    return with_variables(re.sub(r"^<svg[^>]*>", opening, printable(svg)))
