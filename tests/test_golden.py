"""Thirteen whole runs, as they were decided and claimed: what a change of the code's structure must leave as it is.

`python tests/test_golden.py` writes the files in `golden/` again: read the difference before you store it. Numbers are
compared at nine digits, so that another processor may round the last ones otherwise.
"""

import hashlib
import json
import re
import sys
from pathlib import Path
from typing import Any

import gymnasium
import pytest

import richobs
from richobs.runs.certificate import Certificate

GOLDEN = Path(__file__).parent / "golden"
CERTIFICATES = GOLDEN / "certificates.json"
TRACED = {"models", "families", "olive", "lsvee, counted", "gymnasium", "pcid"}  # those whose every event is stored
FITTED = {"pcid"}  # those whose policies hold least squares, which another processor rounds otherwise: not by digest
NOT_COMPARED = ("format", "version", "versions")  # names and numbers of formats, and of what made the file


def gymnasium_lake() -> richobs.Problem:
    """A slippery lake of Gymnasium with three candidate simulators, one of them right."""
    lakes = [gymnasium.make("FrozenLake-v1", desc=rows, is_slippery=True) for rows in LAKES]
    env = richobs.from_gymnasium(lakes[0], horizon=6, reward_range=(0, 1))
    return richobs.Problem(env, richobs.Simulators([richobs.Model.of_gymnasium(lake, 6) for lake in lakes]))


def unknown_lake() -> richobs.Problem:
    """The first of them, with a family of simulators whose slip is not known."""
    lake = gymnasium.make("FrozenLake-v1", desc=LAKES[0], success_rate=0.6)
    env = richobs.from_gymnasium(lake, horizon=6, reward_range=(0, 1))
    family = richobs.Family.of_gymnasium("FrozenLake-v1", horizon=6, fixed={"desc": LAKES[0]}, success_rate=(0.1, 0.9))
    return richobs.Problem(env, family)


LAKES = (["SFF", "FHF", "FFG"], ["SFH", "FFF", "FFG"], ["SFF", "FFF", "HFG"])
RUNS: dict[str, tuple[Any, dict[str, Any]]] = {  # a world or what makes a problem, and what is asked for
    "betting, product": ("lock/5", {}),
    "betting, random transitions": ("lock/4,swap=0.5,fail=0.1", {"epsilon": 0.2}),
    "betting, many actions": ("diabolical/4", {"epsilon": 0.2}),
    "betting, list": ("frozen-lake,n_maps=10,horizon=12", {"epsilon": 0.2}),
    "betting, tables": ("mdp", {"epsilon": 0.3}),
    "models": (gymnasium_lake, {"learner": "models", "epsilon": 0.02}),
    "families": (unknown_lake, {"epsilon": 0.02}),
    "gymnasium": (gymnasium_lake, {"epsilon": 0.3}),
    "olive": ("mdp/3,class_size=5", {"learner": "olive", "epsilon": 0.3}),
    "lsvee, counted": ("lock/3,noise_bits=1", {"learner": "lsvee", "engine": "counted"}),
    "certified": ("lock/3,noise_bits=1", {"learner": "certified"}),
    "pcid": ("lock/3", {"learner": "pcid"}),
    "rmax": ("mdp/3", {"learner": "rmax", "epsilon": 0.3}),
}


def rounded(content: object) -> object:
    """Returns plain values with floats at nine digits."""
    if isinstance(content, dict):
        return {key: rounded(value) for key, value in content.items()}
    if isinstance(content, list | tuple):
        return [rounded(value) for value in content]
    return f"{content:.9g}" if isinstance(content, float) else content


def trace(outcome: richobs.Outcome) -> str:
    """Returns a run's events as text, one a line."""
    return "".join(
        f"{e.phase} {e.kind} {''.join(map(str, e.path)) or 'root'} {said.verdict} {said.statistic:.6g} {said.threshold:.6g} "
        f"{e.n} {e.log_size_before:.6g} -> {e.log_size_after:.6g}\n"
        for e, said in ((e, e.said()) for e in outcome.trace)
    )


def golden(name: str) -> tuple[dict[str, object], str]:
    """Returns what is stored of a run: its certificate in short, with a digest of all of it, and its trace."""
    made, asked = RUNS[name]
    problem = richobs.make(made) if isinstance(made, str) else made()
    outcome = richobs.learn(problem, **{"seed": 0, "progress": False, **asked})
    content = Certificate.of(outcome, problem).content
    compared = {key: value for key, value in content.items() if key not in NOT_COMPARED}
    digest = hashlib.sha256(json.dumps(rounded(compared), sort_keys=True).encode()).hexdigest()
    result = content["result"]
    short = {key: result[key] for key in ("reason", "episodes", "lower", "upper", "epsilon")}
    digests = {} if name in FITTED else {"policy": content["policy"]["digest"], "certificate": digest}
    return {
        "claim": content["claim"],
        **dict(rounded(short)),  # type: ignore[call-overload]  # a dictionary stays one
        **digests,
    }, trace(outcome)


def trace_file(name: str) -> Path:
    return GOLDEN / f"trace-{re.sub(r'[^a-z]+', '-', name)}.txt"


@pytest.mark.parametrize("name", RUNS)
def test_a_run_is_decided_and_claimed_as_before(name: str) -> None:
    found, events = golden(name)
    if name in TRACED:
        assert events == trace_file(name).read_text()
    assert found == json.loads(CERTIFICATES.read_text())[name]


if __name__ == "__main__":
    found = {}
    for name in RUNS:
        found[name], events = golden(name)
        print(name, found[name]["episodes"], file=sys.stderr)
        if name in TRACED:
            trace_file(name).write_text(events)
    CERTIFICATES.write_text(json.dumps(found, indent=2) + "\n")
