"""Formulas of the catalogue as MathML, which browsers show by themselves; made ahead of time, they lie beside this file.

    python -m richobs_lab.paper.formulas

writes them again; it needs latex2mathml (`pip install 'richobs[dev]'`).
"""

import functools
import json
from pathlib import Path

from richobs import InvalidInput
from richobs.core.files import write_atomically
from richobs_lab.paper.catalogue import CATALOGUE

FILE = Path(__file__).with_suffix(".json")


@functools.cache
def _made() -> dict[str, str]:
    return dict(json.loads(FILE.read_text(encoding="utf-8")))


def mathml(tex: str) -> str:
    """Returns a formula of the catalogue as MathML.

    Raises:
        InvalidInput: it was not made yet.
    """
    if tex not in _made():
        raise InvalidInput(f"there is no MathML of {tex!r}. Make it with `python -m richobs_lab.paper.formulas`.")
    return _made()[tex]


def make() -> dict[str, str]:
    """Returns every formula of the catalogue with its MathML, made now."""
    try:
        from latex2mathml.converter import convert
    except ImportError as error:
        raise InvalidInput(
            "formulas are made with latex2mathml, which is not installed: pip install 'richobs[dev]'."
        ) from error
    return {tex: convert(tex, display="block") for tex in dict.fromkeys(e.tex for e in CATALOGUE if e.tex)}


if __name__ == "__main__":
    with write_atomically(FILE) as stream:
        stream.write((json.dumps(make(), indent=0, ensure_ascii=False) + "\n").encode())
