"""Function classes, one kind per file."""

from richobs.functions.callables import Callables
from richobs.functions.decoders import Decoders
from richobs.functions.layered import Layered, LevelClass, LevelwiseFunction, Listed, listed_product
from richobs.functions.prototypes import Prototypes
from richobs.functions.tables import TableLevel, Tables, copies_around

__all__ = [
    "Callables",
    "Decoders",
    "Layered",
    "LevelClass",
    "LevelwiseFunction",
    "Listed",
    "Prototypes",
    "TableLevel",
    "Tables",
    "copies_around",
    "listed_product",
]
