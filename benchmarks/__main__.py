"""`python -m benchmarks`: `allocator bench` with the naive formulation among the engines.

`bars` measures what is asked of whole calls at size, see `bars.py`. `--smoke` stands for the suite `smoke` with its limits;
everything else is passed on as it is.
"""

from __future__ import annotations

import sys

from allocator.bench import register
from allocator.cli.main import main
from benchmarks import bars
from benchmarks.naive import NAME, solve_naive


def run(args: list[str]) -> None:
    """Run the command; leaves by SystemExit."""
    if args[:1] == ["bars"]:
        raise SystemExit(bars.main(args[1:]))
    register(NAME, solve_naive)
    if "--smoke" in args:
        args = ["smoke", "--check", *(item for item in args if item != "--smoke")]
    main(["bench", *args])


if __name__ == "__main__":
    run(sys.argv[1:])
