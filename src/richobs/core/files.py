"""Files that are either whole or not there."""

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO


@contextmanager
def write_atomically(target: Path) -> Iterator[BinaryIO]:
    """Opens a stream that becomes `target` when the block ends well; a reader never sees half a file."""
    target.parent.mkdir(parents=True, exist_ok=True)
    descriptor, temporary = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
    try:
        with os.fdopen(descriptor, "wb") as stream:
            yield stream
            stream.flush()
            os.fsync(stream.fileno())
        umask = os.umask(0)
        os.umask(umask)
        os.chmod(temporary, 0o666 & ~umask)  # mkstemp is for secrets; this file is for others too
        os.replace(temporary, target)
    except BaseException:
        os.unlink(temporary)
        raise
