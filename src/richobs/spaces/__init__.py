"""What has not been eliminated: a mask over listed functions, or a chain of bipartite graphs over a product class."""

from richobs.core.functions import FunctionClass
from richobs.spaces.base import ActionRisk, Elimination, NodeRisk, PairError, VersionSpace, value_range
from richobs.spaces.layered import LayeredSpace
from richobs.spaces.listed import ListedSpace

__all__ = [
    "ActionRisk",
    "Elimination",
    "LayeredSpace",
    "ListedSpace",
    "NodeRisk",
    "PairError",
    "VersionSpace",
    "value_range",
    "version_space",
]


def version_space(functions: FunctionClass) -> LayeredSpace | ListedSpace:
    """Returns the space of all functions of a class, in the form that fits it."""
    if functions.is_product:
        return LayeredSpace([functions.level_size(h) for h in range(functions.horizon)])
    return ListedSpace(functions.level_size(0))
