"""Says before anything is executed which packages the tutorials lack."""

from importlib.util import find_spec
from typing import Any

from sphinx.application import Sphinx
from sphinx.errors import ConfigError

NEEDED = {  # module -> the extra that brings it
    "torch": "torch",
    "safetensors": "torch",
    "stable_baselines3": "sb3",
    "pygame": "gym",
}


def check(app: Sphinx) -> None:
    """Refuses to build where a tutorial could not run.

    Raises:
        ConfigError: packages are missing.
    """
    missing = [f"{module} (extra {extra})" for module, extra in NEEDED.items() if find_spec(module) is None]
    if missing and app.config.nb_execution_mode != "off":
        raise ConfigError(
            f"the tutorials are executed when the site is built, and need {', '.join(missing)}. Install them with "
            "pip install 'richobs[docs]', or build without executing anything: sphinx-build -D nb_execution_mode=off."
        )


def setup(app: Sphinx) -> dict[str, Any]:
    """Checks once, before any page is read."""
    app.connect("builder-inited", check)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
