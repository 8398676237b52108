"""Sphinx builds the site from these pages: `make docs`."""

from __future__ import annotations

import sys
from pathlib import Path

import allocator

sys.path.insert(0, str(Path(__file__).parent / "_ext"))

project = "gpu-epoch-allocator"
author = "The gpu-epoch-allocator maintainers"
project_copyright = author
version = release = allocator.__version__

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "generated"]
source_suffix = {".md": "markdown"}
exclude_patterns = ["examples"]

# The pages are to read well on a code host too, so only what both know is used, and ::: where there is no such thing.
myst_enable_extensions = ["colon_fence", "dollarmath"]
myst_heading_anchors = 3
myst_dmath_double_inline = True

default_role = "py:obj"  # docstrings mark names with single backticks
napoleon_google_docstring = False
napoleon_use_rtype = False
autodoc_typehints = "signature"
autodoc_member_order = "bysource"
autodoc_preserve_defaults = True
maximum_signature_line_length = 88
add_module_names = False
python_use_unqualified_type_names = True

html_theme = "furo"
html_title = f"{project} {version}"
html_show_copyright = False
html_show_sourcelink = False
