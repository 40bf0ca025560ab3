"""A package of anybody adds a learner, a world and a command by entry points, from a folder of its own."""

import json
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


LINES = {
    "learn": ["learn", "their-world/2", "--learner", "tournament", "--epsilon", "0.3", "--quiet"],
    "greet": ["greet", "--name", "Ada"],
    "help": ["--help"],
    "spoiled": ["learn", "lock/3", "--learner", "spoiled"],
    "ours": ["learners", "betting"],
}
PROGRAM = """
import contextlib, io, json, sys
from richobs.cli import main

for name, line in json.loads(sys.argv[1]).items():
    said = io.StringIO()
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
        try:
            status = main(line)
        except SystemExit as stop:
            status = stop.code
    print(json.dumps([name, [status, said.getvalue()]]))
"""


@pytest.fixture(scope="module")
def said(tmp_path_factory):
    """Exit status and output of each line, in a process that finds two skeletons, a command and a module that is spoiled."""
    folder = tmp_path_factory.mktemp("plugin")
    for name in ("learner", "world"):
        (folder / f"their_{name}.py").write_text((SKELETONS / f"{name}.py").read_text())
    (folder / "their_command.py").write_text(COMMAND)
    (folder / "their_spoiled.py").write_text("raise RuntimeError('this module is spoiled')\n")
    about = folder / "theirs-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: theirs\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text(POINTS)
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(folder), *sys.path[1:]])}
    command = [sys.executable, "-c", PROGRAM, json.dumps(LINES)]
    done = subprocess.run(command, env=env, cwd=folder, capture_output=True, text=True, check=True)
    return dict(map(json.loads, done.stdout.splitlines()))


def test_a_learner_a_world_and_a_command_from_outside_work_as_ours_do(said):
    status, text = said["learn"]
    assert status == 0
    assert text.startswith("With probability at least 0.95")
    assert said["greet"] == [0, "Hello Ada.\n"]


def test_a_package_that_cannot_be_imported_hurts_nobody_else(said):
    status, text = said["help"]
    assert status == 0
    assert "greet" in text
    assert "spoiled" not in text
    status, text = said["spoiled"]
    assert status == 2
    assert "their_spoiled:Nothing" in text
    assert "this module is spoiled" in text
    assert "Traceback" not in text


def test_a_name_of_ours_cannot_be_taken(said):
    assert "tournament" not in said["ours"][1]
