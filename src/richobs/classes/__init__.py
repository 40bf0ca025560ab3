"""Function classes, one kind per file, and the policies that are greedy in one of their functions."""

from richobs.classes.base import CODECS, Chosen, LevelClass, codec
from richobs.classes.callables import CallableLevel, Callables
from richobs.classes.decoders import Decoders
from richobs.classes.dynamics import Model
from richobs.classes.layered import Layered, LevelwiseFunction, Listed, listed_product
from richobs.classes.learned_policy import LearnedPolicy
from richobs.classes.linear import Linear, LinearLevel, parameter_grid
from richobs.classes.model_arrays import ModelArrays
from richobs.classes.networks import NetworkLevel, Networks
from richobs.classes.parametric import Family
from richobs.classes.simulators import Simulators
from richobs.classes.tables import Constants, TableLevel, Tables, copies_around

__all__ = [
    "CODECS",
    "CallableLevel",
    "Callables",
    "Chosen",
    "Constants",
    "Decoders",
    "Family",
    "Layered",
    "LearnedPolicy",
    "LevelClass",
    "LevelwiseFunction",
    "Linear",
    "LinearLevel",
    "Listed",
    "Model",
    "ModelArrays",
    "NetworkLevel",
    "Networks",
    "Simulators",
    "TableLevel",
    "Tables",
    "codec",
    "copies_around",
    "listed_product",
    "parameter_grid",
]
