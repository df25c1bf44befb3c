"""A rotation that is killed behind a number of its batches: `python -m tests.lifecycle.cut_rotation DATA BATCHES`."""

import os
import signal
import sys
from collections.abc import Iterator
from typing import Any

from background import sealing
from web import rotation, settings

whole = sealing.reseal


def until(batches: int) -> Any:
    def reseal(*args: Any, **more: Any) -> Iterator[int]:
        for number, changed in enumerate(whole(*args, **more)):
            if number == batches:
                os.kill(os.getpid(), signal.SIGKILL)
            yield changed

    return reseal


if __name__ == "__main__":
    sealing.BATCH = 2
    sealing.reseal = until(int(sys.argv[2]))
    rotation.rotate_seals(settings.load({"data": sys.argv[1]}, {}))
