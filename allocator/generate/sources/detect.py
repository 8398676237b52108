"""Which form a log has, and reading it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from allocator.generate.files import read_text, refuse
from allocator.generate.fleet import Architecture, split_nodes
from allocator.generate.sources.acme import ACME
from allocator.generate.sources.alibaba import ALIBABA_SPOT, OPENB
from allocator.generate.sources.form import Form
from allocator.generate.sources.helios import HELIOS
from allocator.generate.sources.public import ELASTICFLOW, KALOS_TRAINING, PHILLY, PLAIN
from allocator.generate.sources.rows import GPUS_PER_NODE, Source
from allocator.generate.sources.sacct import SACCT
from allocator.generate.sources.swf import SWF
from allocator.generate.sources.synthetic import SYNTHETIC

FORMS: tuple[Form, ...] = (
    ELASTICFLOW,
    PHILLY,
    KALOS_TRAINING,
    ACME,
    HELIOS,
    ALIBABA_SPOT,
    OPENB,
    SYNTHETIC,
    SWF,
    SACCT,
    PLAIN,
)


def read_source(
    path: Path, name: str | None = None, gpus: int | None = None, *, sizes: Sequence[tuple[Architecture, int]] | None = None
) -> Source:
    """Read a log whose jobs are to run on `gpus` GPUs (None: the size that belongs to the form), or on nodes of these sizes.

    Raises
    ------
    SnapshotError
        Where the log has no known form or not that of `name`, the GPUs are no whole nodes, or no row can be used.
    """
    content = read_text(path)
    form = _form(path, content, name)
    if gpus is not None and gpus < GPUS_PER_NODE:
        raise refuse("gpus", f"{gpus} GPUs", f"give at least {GPUS_PER_NODE}")
    if sizes is None:
        sizes = split_nodes(form.gpus if gpus is None else gpus, form.pools if gpus is None or gpus >= 24 else 1)
    source = Source(title=form.title, sizes=sizes)
    form.fill(source, content)
    if not source.rows:
        raise refuse(str(path), f"none of {source.num_read} rows can be used", "; ".join(source.notes()[1:]) or "give rows")
    source.rows.sort(key=lambda row: row.submit)  # stable: rows of one second keep their order
    return source


def _form(path: Path, content: str, name: str | None) -> Form:
    """The form of that name, or the one most of whose columns are there."""
    known = {form.name: form for form in FORMS}
    if name is not None and name not in known:
        raise refuse("format", f"no form is called {name!r}", f"give one of {', '.join(known)}")
    if name is not None:
        return known[name]
    best = max(FORMS, key=lambda form: form.fits(content))
    if not best.fits(content):
        columns = content.partition("\n")[0].strip()[:200] or "none"
        raise refuse(
            f"{path}, line 1",
            f"columns {', '.join(columns.split(','))} are those of no known trace",
            f"give a log of one of the forms {', '.join(known)}",
        )
    return best
