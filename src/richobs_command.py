"""The command `richobs`: Control-C ends it without a traceback also while Python still imports the package."""

import os
import signal


def main() -> int:
    """Runs the command line."""
    if (
        "OMP_NUM_THREADS" not in os.environ
    ):  # NumPy's threads cost more than they save here, and are started by its import
        os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # nothing has begun yet, so nothing must be tidied up
    from richobs.cli import main as command_line

    signal.signal(signal.SIGINT, signal.default_int_handler)
    return command_line()
