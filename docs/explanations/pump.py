"""The pump of these pages: a pump that fouls and wears, a sensor, and a family of models of it.

A day has six shifts. In every shift the pump is run at full speed, run gently, or flushed. Running fouls a clean pump, and
wears a fouled one, at random. Flushing takes a shift and cleans. A sensor shows one of twelve vibration spectra. Each shift
reaches its target or not, and a day's total is the share of targets reached.
"""

import dataclasses
import itertools
from typing import NamedTuple

import numpy as np

import richobs
from richobs.worlds.simulator import TabularWorld, WorldEnvironment

SHIFTS, SPECTRA = 6, 12
CLEAN, FOULED, WORN = STATES = range(3)
FULL, GENTLE, FLUSH = ACTIONS = range(3)
ACTION_NAMES = ("full speed", "gently", "flush")
REACHED = [
    [0.95, 0.7, 0.0],
    [0.6, 0.5, 0.0],
    [0.1, 0.1, 0.0],
]  # [state, action] probability that a shift reaches its target


class Physics(NamedTuple):
    """What is not known about the pump."""

    fouls: tuple[float, float] = (0.5, 0.15)  # probability that a clean pump fouls in a shift: at full speed, gently
    wears: tuple[float, float] = (0.6, 0.2)  # probability that a fouled pump wears: at full speed, gently
    reading: int = 0  # which four of the twelve spectra belong to which state
    flushes: float = 1.0  # probability that flushing cleans
    sees_wear: bool = True  # whether a worn pump shows other spectra than a fouled one


TRUE = Physics()  # what the pump of these pages is like


def pump(physics: Physics = TRUE) -> richobs.TabularProcess:
    """Returns the pump with some physics, written down in full."""
    move = np.zeros((3, 3, 3))  # [state, action, next state]
    for action in (FULL, GENTLE):
        fouls, wears = physics.fouls[action], physics.wears[action]
        move[CLEAN, action, [CLEAN, FOULED]] = 1 - fouls, fouls
        move[FOULED, action, [FOULED, WORN]] = 1 - wears, wears
    move[CLEAN, FLUSH, CLEAN] = 1
    move[FOULED, FLUSH, [CLEAN, FOULED]] = physics.flushes, 1 - physics.flushes
    move[WORN, :, WORN] = 1
    shows = np.zeros((3, SPECTRA))  # [state, spectrum]
    spectra = np.arange(SPECTRA)
    shows[(spectra + physics.reading) // 4 % 3, spectra] = 1 / 4
    if not physics.sees_wear:
        shows[WORN] = shows[FOULED]
    rewards = richobs.Rewards.bernoulli(np.array(REACHED)[:, None], 1 / SHIFTS)
    flat = richobs.TabularProcess.from_flat(SHIFTS, [1, 0, 0], move, shows, rewards)
    return dataclasses.replace(flat, labels=())  # the same state in two shifts counts as two


def playable(process: richobs.TabularProcess) -> richobs.Environment:
    """Returns a pump that can only be played."""
    return WorldEnvironment(TabularWorld(process))


def grid(
    full: tuple[float, ...] = (0.3, 0.5, 0.7), reading: tuple[int, ...] = (0, 4, 8), flushes: float = 1.0
) -> list[Physics]:
    """Returns candidate physics: every combination of a few speeds of fouling and wear, and meanings of the spectra.

    Args:
        full: probabilities of fouling at full speed.
        reading: meanings of the spectra.
        flushes: probability that flushing cleans, the same in all.
    """
    gently, wear_full, wear_gently = (0.05, 0.15, 0.3), (0.4, 0.6, 0.8), (0.05, 0.2, 0.4)
    return [
        Physics((a, b), (c, d), meaning, flushes)
        for a, b, c, d, meaning in itertools.product(full, gently, wear_full, wear_gently, reading)
    ]


def twins(candidates: list[Physics]) -> richobs.Simulators:
    """Returns the class whose members are Q* of these candidates."""
    return richobs.Simulators([pump(physics) for physics in candidates])
