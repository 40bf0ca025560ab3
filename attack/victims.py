"""Small runs whose files are attacked: finished, unfinished, with recorded episodes, and of an environment of one's own."""

import dataclasses
import json
import os
import pathlib
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

import richobs
from attack.isolation import Changed, attempted, command, refused
from richobs.core.environment import Episodes
from richobs.core.events import Progress
from richobs.core.policies import Policy
from richobs.core.types import Floats
from richobs.runs.certificate import Certificate, policy_digest
from richobs.runs.session import run
from richobs.runs.store import CERTIFICATE, DATABASE, POLICY, RECORDED, REPORT, StoredRun, keep_verification
from richobs.show import write_report

WORLD = "lock/2,noise_bits=1"
EPSILON = 0.3
RUN = "run"  # name of the folder of a run, wherever it is put
KILLED_AFTER = 3  # tests of an unfinished run
Files = dict[str, bytes]


class Own:
    """Somebody's environment: the action that equals the first observation mostly leads to where action 1 mostly pays."""

    declared = richobs.Declared(at_once=3)
    horizon, n_actions, reward_range = 2, 2, (0.0, 1.0)

    def play(self, policy: Policy, n: int, rng: np.random.Generator, levels: int | None = None) -> richobs.Episodes:
        """Plays n episodes."""
        x = rng.integers(0, 2, n)
        first = policy.actions(0, x, rng)
        then = (rng.random(n) < np.where(first == x, 0.8, 0.2)).astype(np.int64)
        last = policy.actions(1, then, rng)
        paid = (then == 1) & (last == 1) & (rng.random(n) < 0.9)
        depth = self.horizon if levels is None else levels
        return richobs.Episodes(
            [x, then][:depth], [first, last][:depth], [np.zeros(n), paid.astype(np.float64)][:depth]
        )


def best(level: int, x: Any) -> Floats:
    """Values of the optimal function of `Own`, `[n, 2]`."""
    values = [[[0.72, 0.18], [0.18, 0.72]], [[0.0, 0.0], [0.0, 0.9]]]
    return np.array(values)[level][np.asarray(x)]


def worse(level: int, x: Any) -> Floats:
    """Values of another function, `[n, 2]`."""
    values = [[[0.2, 0.8], [0.6, 0.7]], [[0.1, 0.2], [0.9, 0.0]]]
    return np.array(values)[level][np.asarray(x)]


def own_problem() -> richobs.Problem:
    """Returns the own environment with a class of Python functions."""
    return richobs.Problem(Own(), richobs.Callables([best, worse], horizon=2, n_actions=2))


def claimed(content: dict[str, Any]) -> dict[str, Any]:
    """Returns what a certificate claims, and about what; versions and counts of real episodes are no part of it."""
    result = {name: value for name, value in content["result"].items() if name != "real_episodes"}
    names = ("claim", "learner", "environment", "policy", "claims", "recorded")
    settings = {name: content["settings"][name] for name in ("epsilon", "delta", "threshold")}
    return {**{n: content[n] for n in names}, "functions": content["functions"], "settings": settings, "result": result}


class Victim(NamedTuple):
    """A run whose files are attacked, and what they say."""

    name: str
    problem: Callable[[], richobs.Problem]  # built again
    settings: richobs.Settings
    files: Files  # as the run left them
    true: dict[str, Any]  # what the run claims once it is finished
    policy: str | None  # digest of its policy; None where it is Python code
    is_listed: bool  # whether the command line can build its problem

    def lay_out(self, place: pathlib.Path, files: Files) -> pathlib.Path:
        """Writes files as the folder of a run, and returns the folder."""
        folder = place / RUN
        folder.mkdir()
        for name, body in files.items():
            (folder / name).write_bytes(body)
        return folder

    def check_claims(self, content: dict[str, Any] | None, who: str) -> None:
        """Raises `Changed` where a certificate claims something else than the run did."""
        if content is None:
            return
        there = claimed(content)
        for name, value in self.true.items():
            if json.dumps(there[name]) != json.dumps(value):
                raise Changed(f"{who}: {name} is {json.dumps(there[name])[:300]}, not {json.dumps(value)[:300]}")

    def unchecked(self) -> "Victim":
        """Returns the victim for actions that show or load what a forger wrote: that they do so is not promised against."""
        return self._replace(true={}, policy=None)

    def check_policy(self, file: pathlib.Path, who: str) -> None:
        """Raises `Changed` where a policy file holds another policy; it is loaded in any case."""
        digest = richobs.LearnedPolicy.load(file).digest if file.is_file() else self.policy
        if self.policy is not None and digest != self.policy:
            raise Changed(f"{who}: the policy has digest {digest}, not {self.policy}")


def verify(victim: Victim, folder: pathlib.Path) -> str:
    """Verifies what is in the folder: whatever agrees must claim what the run did."""
    if victim.is_listed:
        said = command(["verify", "--quiet", str(folder)])
        if said.status != 0:
            raise refused(said)
        text = said.text
    else:
        certificate = Certificate.load(folder / CERTIFICATE)
        policy = richobs.LearnedPolicy.load(folder / POLICY) if (folder / POLICY).exists() else None
        found = richobs.verify(certificate, victim.problem(), policy=policy)
        text = "; ".join(f"{f.what}: {f.detail}" for f in found.findings)
        if not found.agrees:
            raise richobs.errors.InvalidFile(text)
    victim.check_claims(Certificate.load(folder / CERTIFICATE).content, "verify agreed")
    victim.check_policy(folder / POLICY, "verify agreed")
    return text


def show(victim: Victim, folder: pathlib.Path) -> str:
    """Shows the run: a claim that is shown must be the run's."""
    said = command(["show", "--json", str(folder)])
    if said.status != 0:
        raise refused(said)
    victim.check_claims(json.loads(said.text)["certificate"], "show")
    said = command(["show", str(folder)])
    if said.status != 0:
        raise refused(said)
    return said.text


def runs(victim: Victim, folder: pathlib.Path) -> str:
    """Lists the folder; it is always there, with a line that says what is wrong with it."""
    said = command(["show", str(folder.parent)])
    if said.status != 0:
        raise refused(said)
    return said.text


def report(victim: Victim, folder: pathlib.Path) -> str:
    """Writes the page, without the figures, which take longest; a page with a claim must have the run's."""
    stored = StoredRun.read(folder)
    write_report([stored], folder / REPORT, figures=False)
    victim.check_claims(None if stored.certificate is None else stored.certificate.content, "report")
    return "wrote a page"


def report_with_figures(victim: Victim, folder: pathlib.Path) -> str:
    """Writes the page with its figures, by the command line."""
    said = command(["report", str(folder)])
    if said.status != 0:
        raise refused(said)
    return said.text


def resume(victim: Victim, folder: pathlib.Path) -> str:
    """Lets the run go on: at its end it must claim what the undisturbed run claims."""
    text = _gone_on(victim, folder)
    victim.check_claims(Certificate.load(folder / CERTIFICATE).content, "resume")
    victim.check_policy(folder / POLICY, "resume")
    return text


def resume_then_verify(victim: Victim, folder: pathlib.Path) -> str:
    """Lets a forged run go on, and verifies what it claims then: whatever agrees must be what the run claims."""
    try:
        _gone_on(victim, folder)
    except richobs.RichObsError as error:
        raise richobs.errors.InvalidFile(f"resume: {error}") from error
    return verify(victim, folder)


def _gone_on(victim: Victim, folder: pathlib.Path) -> str:
    if victim.is_listed:
        said = command(["resume", "--quiet", str(folder)])
        if said.status != 0:
            raise refused(said)
        return said.text
    problem, settings = victim.problem(), victim.settings
    return richobs.learn(problem, epsilon=settings.epsilon, out=folder, progress=False).claim


def load(victim: Victim, folder: pathlib.Path) -> str:
    """Loads each file by the function that reads it; a policy that loads must be the run's."""
    loaders: list[tuple[str, Callable[[pathlib.Path], object]]] = [
        (CERTIFICATE, Certificate.load),
        (POLICY, lambda file: victim.check_policy(file, "LearnedPolicy.load")),
        (RECORDED, Episodes.load),
    ]
    refusals = []
    for name, loader in loaders:
        try:
            if (folder / name).is_file():
                loader(folder / name)
        except richobs.RichObsError as error:
            refusals.append(f"{type(error).__name__}: {error}")
    if refusals:
        raise richobs.errors.InvalidFile("; ".join(refusals))
    return "loaded"


ACTIONS: dict[str, Callable[[Victim, pathlib.Path], str]] = {
    "verify": verify,
    "show": show,
    "runs": runs,
    "report": report,
    "report with figures": report_with_figures,
    "resume": resume,
    "resume, then verify": resume_then_verify,
    "load": load,
}
REDERIVES = frozenset({"verify", "resume, then verify"})  # these must notice a forgery


def build(place: pathlib.Path) -> list[Victim]:
    """Makes the runs in a folder, and returns them."""
    settings = richobs.Settings(epsilon=EPSILON)
    logged = richobs.make(WORLD).env.play(richobs.Uniform(4), 30, np.random.default_rng(1))

    def with_recorded() -> richobs.Problem:
        return dataclasses.replace(richobs.make(WORLD), recorded=logged)

    certified = dataclasses.replace(settings, learner="certified")
    made = [
        _made(place / "betting", "betting", _listed, settings),
        _made(place / "certified", "certified", _listed, certified),
        _made(place / "recorded", "recorded", with_recorded, settings),
        _made(place / "own", "own", own_problem, settings),
    ]
    made.append(_killed(place / "unfinished", made[0]._replace(name="unfinished")))
    made.append(_killed(place / "own-unfinished", made[3]._replace(name="own unfinished")))
    return made


def _listed() -> richobs.Problem:
    return richobs.make(WORLD)


def _made(
    folder: pathlib.Path, name: str, problem: Callable[[], richobs.Problem], settings: richobs.Settings
) -> Victim:
    """Makes a finished run, with its page and a verdict."""
    built = problem()
    outcome = run(built, settings, out=folder)
    certificate = Certificate.load(folder / CERTIFICATE)
    keep_verification(folder, richobs.verify(certificate, problem()))
    write_report([StoredRun.read(folder)], folder / REPORT, figures=False)
    digest = policy_digest(outcome.policy)
    true = claimed(certificate.content)
    return Victim(name, problem, settings, _files(folder), true, digest, built.id is not None)


def _killed(folder: pathlib.Path, like: Victim) -> Victim:
    """Makes the same run again, killed after a few tests."""
    seen = []

    def kill(progress: Progress) -> None:
        seen.append(progress)
        if len(seen) == KILLED_AFTER:
            os._exit(1)

    def act() -> str:
        run(like.problem(), like.settings, callback=kill, out=folder)
        return "it ended before it was killed"

    ended = attempted(act)
    left = _files(folder)
    assert DATABASE in left, ended
    assert CERTIFICATE not in left, ended
    return like._replace(files=left)


def _files(folder: pathlib.Path) -> Files:
    return {file.name: file.read_bytes() for file in sorted(folder.iterdir()) if file.is_file()}
