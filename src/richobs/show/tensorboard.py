"""A callback that writes survivors and bounds to event files for TensorBoard; needs the extra `tensorboard`."""

import math
import os
from types import TracebackType
from typing import Any

from richobs.core import words
from richobs.core.arguments import file_path
from richobs.core.errors import InvalidInput
from richobs.core.events import Progress


class TensorBoard:
    """A callback for `learn`: survivors and bounds against episodes, as scalars.

    Use it in a `with` block, or call `close` when the run is over.
    """

    def __init__(self, folder: str | os.PathLike[str]):
        """Opens the event files in `folder`."""
        try:
            from tensorboardX import SummaryWriter
        except ImportError as error:
            raise InvalidInput(
                "writing for TensorBoard needs tensorboardX, which is not installed: pip install 'richobs[tensorboard]'."
            ) from error
        self._writer: Any = SummaryWriter(str(file_path(folder)))

    def __call__(self, progress: Progress) -> None:
        """Writes the numbers of one event; those that it does not have are left out."""
        event, at = progress.event, progress.episodes
        scalars = {"survivors_log10": words.power_of_ten(event.log_size_after)}
        if progress.upper is not None and progress.lower is not None:
            scalars |= {"value/v_star_at_most": progress.upper, "value/policy_at_least": progress.lower}
        said = event.said()
        scalars |= {f"{event.kind}/statistic": said.statistic, f"{event.kind}/threshold": said.threshold}
        for reading in said.readings:
            logs = {f"{reading.chart.name}_log10/{i}": log for i, log in enumerate(reading.logs)}
            logs |= {f"{reading.chart.name}_log10/limit": reading.limit}
            scalars |= {name: words.power_of_ten(log) for name, log in logs.items()}
        for name, value in scalars.items():
            if math.isfinite(value):
                self._writer.add_scalar(name, value, at)

    def close(self) -> None:
        """Writes what is not yet written, and closes the files."""
        self._writer.close()

    def __enter__(self) -> "TensorBoard":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
