"""Configuration of the site: Sphinx with MyST and executed tutorials; nothing comes from the network."""

import hashlib
import os
import sys
from pathlib import Path

import richobs
import richobs_lab

DOCS = Path(__file__).parent
sys.path.insert(0, str(DOCS / "_ext"))
# Pages that are executed run commands of this environment, import what stands beside the explanations, use one thread each,
# and print as wide as a page.
os.environ["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(DOCS / "explanations"), os.environ.get("PYTHONPATH")]))
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("COLUMNS", "100")


def code_digest() -> str:
    """Returns a SHA-256 of all code that executed pages import: what was executed with other code is not shown again."""
    digest = hashlib.sha256(sys.version.encode())
    for folder in (Path(richobs.__file__).parent, Path(richobs_lab.__file__).parent, DOCS / "explanations"):
        for file in sorted(folder.rglob("*.py")):
            digest.update(file.read_bytes())
    return digest.hexdigest()[:16]


project = "richobs"
author = "The richobs developers"
version = release = richobs.__version__

extensions = [
    "myst_nb",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx_copybutton",
    "sphinx_design",
    "mathml",
    "plain_formulas",
    "repository_files",
    "public_names",
    "command_line",
    "learner_facts",
    "glossary_terms",
    "needed_extras",
]
exclude_patterns = ["_build", "_ext", "skeletons", "**/.*"]
nitpicky = True
suppress_warnings: list[str] = []

# Markdown
myst_enable_extensions = ["dollarmath", "amsmath", "colon_fence", "deflist", "attrs_block", "attrs_inline"]
myst_heading_anchors = 4
myst_dmath_double_inline = True

# Tutorials are executed at build time; an error in one of them ends the build.
nb_execution_mode = "cache"
nb_execution_cache_path = str(DOCS / "_build" / "executed" / code_digest())
nb_execution_timeout = 300
nb_execution_raise_on_error = True
nb_execution_in_temp = True
nb_execution_show_tb = True
nb_merge_streams = True

# The reference is made from docstrings.
default_role = "name"
autodoc_default_options = {"members": True, "member-order": "bysource"}
autodoc_typehints = "signature"
autodoc_typehints_format = "short"
autodoc_class_signature = "mixed"
autoclass_content = "both"
autodoc_mock_imports: list[str] = []
python_use_unqualified_type_names = True
python_maximum_signature_line_length = 80
napoleon_google_docstring = True
napoleon_numpy_docstring = False
napoleon_use_rtype = False
add_module_names = False
toc_object_entries_show_parents = "hide"

# Pages
html_theme = "furo"
html_title = "richobs"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_copy_source = False
html_show_copyright = False
html_show_sphinx = False
html_math_renderer = "mathml"
html_theme_options = {"navigation_with_keys": True}
pygments_style = "friendly"
pygments_dark_style = "monokai"
copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True
