"""The documentation site: `make docs` builds it."""

from __future__ import annotations

import sys
import tomllib
from pathlib import Path

from fusionstitch.version import __version__

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE / "_ext"))

with (HERE.parent / "pyproject.toml").open("rb") as file:
    SOURCE = tomllib.load(file)["project"]["urls"]["Source"]

project = "fusionstitch"
version = release = __version__
extensions = [
    "myst_nb",  # pages in Markdown, notebooks
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "attributes",
    "command",
    "repository",
]
exclude_patterns = ["_ext"]
repository_url = f"{SOURCE}/blob/main"

nitpicky = True
nitpick_ignore_regex = [
    # Documented by Python, JAX and NumPy: their inventories would have to be downloaded.
    (r"py:.*", r"(collections\.abc|os|pathlib|jax|numpy)\..*"),
    # Types behind the public ones, for who knows the sources.
    (r"py:class", r"(.*\.)?(F|Backend|Built|Device|Evidence|KernelFacts|Trial|Tuning|XlaTruth)"),
]

smartquotes_action = "D"  # dashes
highlight_language = "none"  # indented blocks are commands, texts and programs alike
default_role = "code"  # one backtick in a docstring
myst_heading_anchors = 4

nb_execution_mode = "force"
nb_execution_in_temp = True
nb_execution_raise_on_error = True
nb_execution_timeout = 600

add_module_names = False
autodoc_member_order = "bysource"
napoleon_numpy_docstring = False

html_theme = "furo"
html_title = f"{project} {release}"
html_copy_source = False
html_show_copyright = False
html_show_search_summary = False  # a page in a folder cannot fetch another one
html_theme_options = {
    "source_repository": SOURCE,
    "source_branch": "main",
    "source_directory": "docs/",
    "top_of_page_buttons": ["view"],
}
