"""What all tests share: processes that tests start may keep what they compiled, and statements of the paper have a mark."""

import gc
import os

import pytest

os.environ.pop("PYTHONDONTWRITEBYTECODE", None)


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
