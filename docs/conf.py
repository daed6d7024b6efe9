"""How `make docs` builds the site: Sphinx, Markdown pages by MyST, and Furo's looks."""

from __future__ import annotations

import sys
from pathlib import Path

import umbel
from umbel.papers.page import write_papers

sys.path.insert(0, str(Path(__file__).parent))  # for `entries`, the reference's own directive

write_papers(Path(__file__).parent)  # behind `fidelity.md`

project = "umbel"
project_copyright = "the umbel authors"
version = release = umbel.__version__

extensions = ["myst_parser", "sphinx.ext.autodoc", "entries"]
exclude_patterns = ["_build"]
myst_heading_anchors = 4  # `page.md#a-heading` leads to a heading, as it does on a code host

html_theme = "furo"
html_title = f"umbel {version}"
html_copy_source = False
html_show_sphinx = False

autodoc_default_options = {"members": True}
autodoc_member_order = "bysource"
autodoc_inherit_docstrings = False  # a method's `init` and `round` are told once, in `Algorithm`
autodoc_preserve_defaults = True
maximum_signature_line_length = 80
python_display_short_literal_types = True
python_use_unqualified_type_names = True
toc_object_entries_show_parents = "hide"

# Every reference must lead somewhere, but for the names of other libraries, as the build has no
# internet, and for types in signatures that modules import for the type checker alone.
nitpicky = True
nitpick_ignore_regex = [
    ("py:class", r"\w+"),
    ("py:.*", r"(collections|contextlib|datetime|numpy|np|os|pathlib|torch)\..*"),
]
