"""What tests of statements share: the fast version, measured here, and the checks that fail."""


def measured(statement):
    """Returns the pieces of the fast version and what was measured of them."""
    given = statement.pieces("fast")
    return given, [statement.measure(piece) for piece in given]


def broken(statement, given, results):
    """Returns what the checks that do not hold are about."""
    return [c.what for c in statement.conclude(given, results).checks if not c.holds]
