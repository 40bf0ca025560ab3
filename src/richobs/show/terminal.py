"""Shows a run as it goes. The package rich is slow to load, so it is loaded only where something is shown."""

import contextlib
from collections.abc import Iterator

from richobs.core.events import Callback


def is_interactive() -> bool:
    """Whether a person may be watching: standard error is a terminal, or this is a notebook."""
    from rich.console import Console

    console = Console(stderr=True)
    return console.is_terminal or console.is_jupyter


@contextlib.contextmanager
def watched(title: str, log_size: float, expected: int | None = None, *, quiet: bool = False) -> Iterator[Callback]:
    """Shows a run while the block lasts: live on a terminal or in a notebook, in plain lines elsewhere, or not at all.

    Args:
        title: what runs.
        log_size: natural logarithm of the size of the class.
        expected: the most episodes that it may take, where that is known.
        quiet: show nothing.
    """
    if quiet:
        yield lambda progress: None
        return
    from rich.console import Console
    from rich.live import Live

    from richobs.show.live import Watch, can_draw

    console = Console(stderr=True, highlight=False, emoji=False)
    drawn = can_draw(console)
    watch = Watch(title, log_size, expected, console, plain=not drawn)
    if not drawn:
        yield watch
        return
    with Live(watch, console=console, refresh_per_second=5, transient=True):
        yield watch
