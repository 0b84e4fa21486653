# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Sphinx's configuration of the documentation site: cmake --build build/default --target docs."""

import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "docs/extensions"))

project = "Attikos"
author = "the Attikos authors"
version = release = re.search(r"project\(Attikos VERSION ([0-9.]+)", (ROOT / "CMakeLists.txt").read_text())[1]  # type: ignore[index]
extensions = ["myst_parser", "sphinx_design", "sphinx_copybutton", "attikos_site", "notebooks"]
source_suffix = {".md": "markdown", ".ipynb": "notebook"}
exclude_patterns = ["extensions", "examples", "**/README.md"]
root_doc = "index"
language = "en"
primary_domain = "cpp"
highlight_language = "none"
smartquotes_action = "D"  # dashes alone: texts quote what programs print
suppress_warnings: list[str] = []

myst_enable_extensions = ["colon_fence", "deflist", "attrs_inline"]
myst_heading_anchors = 4
# Links to copies of files of the repository, from pages at the top and from those one folder below.
myst_url_schemes = {
    "http": None, "https": None, "mailto": None,
    "repository0": "repository/{{path}}.txt", "repository1": "../repository/{{path}}.txt",
    "picture0": "repository/{{path}}", "picture1": "../repository/{{path}}",
}  # fmt: skip
copybutton_exclude = ".linenos, .gp, .go"

html_theme = "furo"
html_title = f"Attikos {version}"
html_static_path = ["static"]
html_css_files = ["attikos.css"]
html_copy_source = False
html_show_sphinx = False
html_show_copyright = False
html_theme_options = {
    "light_css_variables": {"color-brand-primary": "#1d5a8f", "color-brand-content": "#1d5a8f"},
    "dark_css_variables": {"color-brand-primary": "#7fb8e6", "color-brand-content": "#7fb8e6"},
    "navigation_with_keys": True,
}
maximum_signature_line_length = 90
toc_object_entries_show_parents = "hide"
