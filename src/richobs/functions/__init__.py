"""Function classes, one kind per file."""

from richobs.functions.decoders import Decoders
from richobs.functions.layered import Layered, LevelClass
from richobs.functions.prototypes import Prototypes
from richobs.functions.tables import Tables, copies_around

__all__ = ["Decoders", "Layered", "LevelClass", "Prototypes", "Tables", "copies_around"]
