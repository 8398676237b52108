"""Writes every picture into a folder, docs/pictures unless another is given."""

from __future__ import annotations

import sys
from pathlib import Path

from docs._pictures.paint import as_svg, legend
from docs._pictures.scenes import SCENES

if __name__ == "__main__":
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else Path(__file__).resolve().parents[1] / "pictures")
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "legend.svg").write_text(legend(), encoding="utf-8")
    for name, scene in SCENES.items():
        (folder / f"{name}.svg").write_text(as_svg(scene()), encoding="utf-8")
