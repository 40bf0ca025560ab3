"""What all tests share: attacks can be imported, and statements of the paper have a mark."""

import gc
import os
import sys
from pathlib import Path

import pytest

os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # processes that tests start may keep what they compiled
sys.path.append(str(Path(__file__).parents[1]))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Marks the tests that measure statements: they take a minute, and `.ci/run` runs them beside the default suite."""
    for item in items:
        if item.path.parent.name == "statements":
            item.add_marker("paper")


def pytest_collection_finish() -> None:
    """Lets the garbage collector pass over what was imported and collected, and look less often: that saves CPU time."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)
