"""The console of a guest, which is the log of the process in whose place it runs: how it ends, in a clause."""

import os
from contextlib import suppress
from typing import Final

from proxylab.text import printable, shortened

_BYTES: Final = 16 * 1024
_LINES: Final = 3
_LONGEST_LINE: Final = 200


def end_of_console(descriptor: int) -> str:
    """The panic of the guest's kernel, or else its last lines. ``descriptor`` is of the file that has the console."""
    with suppress(OSError):
        size = os.fstat(descriptor).st_size
        text = os.pread(descriptor, _BYTES, max(0, size - _BYTES)).decode(errors="replace")
        if lines := [printable(line.strip(), keep="") for line in text.splitlines() if line.strip()]:
            panic = [line for line in lines if line.startswith("Kernel panic")]
            told = [shortened(line, _LONGEST_LINE) for line in panic or lines[-_LINES:]]
            return f"its console ends with: {'; '.join(told)}"
    return "its console is empty"
