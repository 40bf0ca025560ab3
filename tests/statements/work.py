"""What tests of statements share: the fast version, measured here, the checks that fail, and the figure."""

import json

import matplotlib
from matplotlib.figure import Figure

from richobs_lab.paper.figures import STYLE


def measured(statement):
    """Returns the pieces of the fast version and what was measured of them, as a store would hand it back."""
    given = statement.pieces("fast")
    return given, [json.loads(json.dumps(statement.measure(piece), allow_nan=False)) for piece in given]


def broken(statement, given, results):
    """Returns what the checks that do not hold are about."""
    return [c.what for c in statement.conclude(given, results).checks if not c.holds]


def panels(statement, given, results):
    """Draws the figure, every text of it set, and returns how many panels it has."""
    with matplotlib.rc_context(STYLE):
        figure = Figure(layout="constrained")
        statement.draw(figure, given, results)
        figure.draw_without_rendering()
    return len(figure.axes)
