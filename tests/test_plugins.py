"""A package of anybody adds a learner, a world and a command by entry points, from a folder of its own."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

SKELETONS = Path(__file__).parents[1] / "docs" / "skeletons"
COMMAND = """
import dataclasses

@dataclasses.dataclass(frozen=True)
class Greet:
    \"\"\"Greet the one who asks.\"\"\"

    name: str = "you"
    \"\"\"Whom to greet.\"\"\"

    def run(self, console):
        console.print(f"Hello {self.name}.")
        return 0
"""
POINTS = """[richobs.learners]
tournament = their_learner:Tournament
betting = their_learner:Tournament
spoiled = their_spoiled:Nothing

[richobs.worlds]
their-world = their_world
spoiled-world = their_spoiled

[richobs.commands]
greet = their_command:Greet
spoiled-command = their_spoiled:Nothing
"""


@pytest.fixture(scope="module")
def package(tmp_path_factory):
    """A folder with two skeletons, a command, a module that cannot be imported, and entry points that lead to them."""
    folder = tmp_path_factory.mktemp("plugin")
    for name in ("learner", "world"):
        (folder / f"their_{name}.py").write_text((SKELETONS / f"{name}.py").read_text())
    (folder / "their_command.py").write_text(COMMAND)
    (folder / "their_spoiled.py").write_text("raise RuntimeError('this module is spoiled')\n")
    about = folder / "theirs-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: theirs\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text(POINTS)
    return folder


def said(package, *arguments):
    """Exit status and output of the command line, with the package installed."""
    paths = os.pathsep.join([str(package), *sys.path[1:]])
    done = subprocess.run(
        [sys.executable, "-m", "richobs", *arguments],
        env={**os.environ, "PYTHONPATH": paths},
        cwd=package,
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout + done.stderr


def test_a_learner_a_world_and_a_command_from_outside_work_as_ours_do(package):
    status, text = said(package, "learn", "their-world/2", "--learner", "tournament", "--epsilon", "0.3", "--quiet")
    assert status == 0
    assert text.startswith("With probability at least 0.95")
    assert said(package, "greet", "--name", "Ada") == (0, "Hello Ada.\n")


def test_a_package_that_cannot_be_imported_hurts_nobody_else(package):
    status, text = said(package, "--help")
    assert status == 0
    assert "greet" in text
    assert "spoiled" not in text
    status, text = said(package, "learn", "lock/3", "--learner", "spoiled")
    assert status == 2
    assert "their_spoiled:Nothing" in text
    assert "this module is spoiled" in text
    assert "Traceback" not in text


def test_a_name_of_ours_cannot_be_taken(package):
    assert "tournament" not in said(package, "learners", "betting")[1]
