"""Sphinx settings; `make docs` runs them on a copy of docs/ to which tools/docs.py has added the generated pages."""

from importlib.metadata import version as installed

project = "onnxtfl"
author = "the onnxtfl authors"
version = release = installed("onnxtfl")
language = "en"
extensions = ["myst_parser", "sphinx.ext.autodoc"]
smartquotes = False  # "--check" is not a dash
source_suffix = {".md": "markdown"}

myst_enable_extensions = ["colon_fence"]
myst_heading_anchors = 4

default_role = "py:obj"  # `CheckReport` in a docstring is a link where it is documented
autodoc_member_order = "bysource"
autodoc_typehints = "description"
autodoc_typehints_description_target = "documented"
python_use_unqualified_type_names = True
add_module_names = False

html_theme = "furo"
html_title = "onnxtfl"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_theme_options = {"top_of_page_buttons": []}
html_copy_source = False
html_show_sphinx = False
html_show_copyright = False
highlight_language = "none"  # of blocks that name no language
pygments_style = "friendly"
pygments_dark_style = "github-dark"
