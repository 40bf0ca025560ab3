"""A process that learns in a folder, for tests that kill it: WORLD FOLDER PAUSE SETTINGS (as JSON)."""

import dataclasses
import json
import sys
import time

import richobs
from richobs.core.settings import Settings
from richobs.learners.lsvee import PaperConstants
from richobs.runs.session import run


def shrunk(of=PaperConstants.of):
    """Returns `PaperConstants.of` with samples that a stream can play; the thresholds stay."""

    def fewer(sizes):
        return dataclasses.replace(sizes, n_test=min(sizes.n_test, 2_000), n_train=min(sizes.n_train, 2_000))

    def constants(**given):
        whole = of(**given)
        return dataclasses.replace(whole, search=fewer(whole.search), demand=fewer(whole.demand))

    return constants


if __name__ == "__main__":
    world, folder, pause, asked = sys.argv[1:]
    settings = Settings.from_plain(json.loads(asked))
    if settings.engine == "stream":
        PaperConstants.of = shrunk()
    run(richobs.make(world), settings, callback=lambda progress: time.sleep(float(pause)), out=folder)
