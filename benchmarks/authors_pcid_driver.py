"""Runs the code that the authors of PCID published, with a clock; `authors_pcid.py` starts it.

Run with: python authors_pcid_driver.py CHECKOUT OPTION ...

The interpreter is the one that has their packages, so this file keeps to what Python 3.6 knows. Experiment.py of the
checkout is imported as it is, and its main does what OPTION ... ask for, in the current folder. The CPU seconds at the end
of every hundredth episode and at the end of exploration are noted. The last line that is printed is JSON.

Where the interpreter has no gym, what Experiment.py asks of gym 0.10.9 is put in its place, and so is a name that NumPy 1.24
removed: their code then runs with today's NumPy and scikit-learn too.
"""

import importlib
import importlib.util
import json
import os
import platform
import sys
import time
from types import ModuleType, SimpleNamespace
from typing import Any


def replace_gym() -> None:
    """Puts a module in gym's place that makes the environments that are registered, wraps none, and holds one generator."""
    numpy: Any = importlib.import_module("numpy")
    numpy.float = float
    gym, spaces, envs, registration = (
        ModuleType(n) for n in ("gym", "gym.spaces", "gym.envs", "gym.envs.registration")
    )
    known: dict[str, str] = {}

    def make(id: str) -> Any:
        file, _, name = known[id].partition(":")
        return getattr(importlib.import_module(file), name)()

    rng = numpy.random.RandomState()
    vars(spaces).update(np_random=rng, prng=SimpleNamespace(seed=rng.seed), Discrete=lambda n: SimpleNamespace(n=n))
    vars(spaces).update(MultiBinary=lambda n: SimpleNamespace(n=n), Box=lambda **about: SimpleNamespace(**about))
    vars(registration).update(register=lambda **about: known.update({about["id"]: about["entry_point"]}))
    vars(gym).update(Env=object, make=make, spaces=spaces, envs=envs, __version__="none")
    sys.modules.update({module.__name__: module for module in (gym, spaces, envs, registration)})


def main() -> None:
    """Runs, and prints what was noted."""
    sys.path[0], *options = sys.argv[1:]  # the checkout in the place of this file's folder
    if importlib.util.find_spec("gym") is None:
        replace_gym()
    experiment: Any = importlib.import_module("Experiment")
    ready = time.process_time()
    explored: list[tuple[int, float]] = []
    hundreds: list[float] = []
    build = experiment.get_alg

    def watched(*given: Any) -> Any:
        """Returns their learner, with a clock behind the end of its episodes."""
        learner = build(*given)
        finish, played = learner.finish_episode, 0

        def finish_episode() -> None:
            nonlocal played
            finish()
            played += 1
            if played % 100 == 0:
                hundreds.append(time.process_time() - ready)
            if learner.is_exploit and not explored:
                explored.append((played, time.process_time() - ready))

        learner.finish_episode = finish_episode
        return learner

    experiment.get_alg = watched
    sys.argv[1:] = options
    asked = experiment.parse_args()
    os.mkdir("data")  # gets its only file: the sum of returns after every hundredth episode
    experiment.main(asked)
    (file,) = os.listdir("data")
    with open(os.path.join("data", file)) as stream:
        returns = [float(word) for word in stream.read().split(",")]

    env = experiment.get_env(asked.env, asked)
    begin = time.process_time()
    for _ in range(explored[0][0]):  # the episodes of exploration again, by nobody: what their simulator takes
        env.reset()
        done = False
        while not done:
            done = env.step(0)[2]
    simulator = time.process_time() - begin
    packages = ("numpy", "scipy", "sklearn", "torch", "gym")
    versions = {name: importlib.import_module(name).__version__ for name in packages}
    result = {
        "imports": ready,
        "explored": explored[0],
        "hundreds": hundreds,
        "returns": returns,
        "simulator": simulator,
        "optimal_value": getattr(env, "unwrapped", env).vstar,
        "versions": dict(versions, python=platform.python_version()),
    }
    print(json.dumps(result))


if __name__ == "__main__":
    main()
