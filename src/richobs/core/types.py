"""Names for arrays and small values that every room uses. Shapes: n episodes, H levels, K actions, N functions."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Mask = NDArray[np.bool_]
Observations = NDArray[Any]  # [n, ...] one row per episode: numbers, bits, vectors or text, as the environment has it
Path = tuple[int, ...]  # actions from the root; the node that it leads to lies at level `len(path)`
Member = int | tuple[int, ...]  # one function of a class: an index, or one index per level of a product class
