"""Settings of Sphinx; ``pip install ".[docs]" && sphinx-build -W docs site`` builds the site."""

from __future__ import annotations

import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE / "_ext"))

import airnp  # noqa: E402

project = "airnp"
author = "The airnp developers"
copyright = author
version = release = airnp.__version__

extensions = [
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "numpydoc",
    "myst_parser",
    "sphinx_gallery.gen_gallery",
    "mathml",
    "command_help",
]
exclude_patterns = ["_build", "gallery", "auto_gallery/*.ipynb", "auto_gallery/*.py"]
templates_path = ["_templates"]
nitpicky = True

# --- pages in Markdown ---

myst_enable_extensions = ["dollarmath", "attrs_block", "attrs_inline", "colon_fence", "deflist"]
myst_heading_anchors = 4  # links such as defaults.md#when-to-stop, as GitHub has them

# --- reference from docstrings ---

autosummary_generate = True
autodoc_default_options = {"members": True, "member-order": "bysource"}
autodoc_typehints = "none"  # numpydoc's sections say the types, with shapes
autodoc_preserve_defaults = True
numpydoc_show_class_members = False  # autodoc lists them
numpydoc_class_members_toctree = False
# Names of other projects. Their inventories would have to be fetched from the network at every build.
nitpick_ignore_regex = [
    ("py:.*", r"(numpy|scipy|sklearn|skimage|matplotlib|networkx|pandas|cupy|torch)\..*"),
    ("py:.*", r"(MissingIndicator|BaseEstimator|OneToOneFeatureMixin|TransformerMixin)"),
    ("py:.*", r"airnp\..*\._.*"),
]

# --- formulas: MathML, which browsers draw themselves ---

html_math_renderer = "mathml"

# --- examples, which are run at every build ---

sphinx_gallery_conf = {
    "examples_dirs": "gallery",
    "gallery_dirs": "auto_gallery",
    "filename_pattern": r"plot_.*\.py$",
    "within_subsection_order": "FileNameSortKey",
    "abort_on_example_error": False,  # a failure is a warning at the end, which -W makes an error
    "backreferences_dir": None,
    "capture_repr": (),
    "download_all_examples": False,
    "min_reported_time": 10_000,
    "write_computation_times": False,
    "show_signature": False,
    "image_srcset": ["2x"],
    "remove_config_comments": True,
    "plot_gallery": True,
}

# --- the site ---

html_theme = "furo"
html_theme_options = {
    "light_css_variables": {"code-font-size": "76%"},
    "dark_css_variables": {"code-font-size": "76%"},
}
html_title = f"airnp {version}"
html_static_path = ["_static"]
html_css_files = ["airnp.css"]
html_favicon = "_static/icon.svg"
html_show_sourcelink = False
html_copy_source = False
