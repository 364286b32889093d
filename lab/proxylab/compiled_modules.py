"""Compiled modules of proxylab (``__pycache__``) that were cut when Python wrote them, by a full disk or a limit.

Until 3.12, Python keeps what write(2) took of such a file, and ends each later import of the module with a traceback.
What is damaged is removed, so that the next start compiles it again. This module imports nothing but Python's own.
"""

import marshal
import sys
from pathlib import Path
from traceback import walk_tb
from typing import Final

_HEAD: Final = 16
"""Bytes of a compiled file before its code (importlib)."""

DAMAGED: Final = (EOFError, ValueError, TypeError)
"""What marshal raises."""


READER: Final = "_compile_bytecode"
"""The function of importlib that reads compiled code, which is the last one in the traceback of such an import."""


def is_of_damaged_module(error: BaseException) -> bool:
    """Whether an import failed because the compiled code is damaged."""
    frames = [frame.f_code.co_name for frame, _ in walk_tb(error.__traceback__)]
    return isinstance(error, DAMAGED) and frames[-1:] == [READER]


def remove_damaged() -> str:
    """Remove the damaged files of proxylab, and say what is left to do."""
    removed, left = 0, list[str]()
    for file in Path(__file__).parent.rglob(f"*.{sys.implementation.cache_tag}.pyc"):
        try:
            marshal.loads(file.read_bytes()[_HEAD:])  # noqa: S302 - Python itself would load it
        except OSError:
            continue
        except DAMAGED:
            try:
                file.unlink()
                removed += 1
            except OSError:
                left.append(str(file))
    why = "compiled modules of Python are damaged, as a full disk or a limit leaves them"
    if left:
        return f"{why}; delete {' and '.join(left)}"
    if removed:
        return f"{why}; they are removed: type it again"
    return f"{why}, in a package that proxylab needs; delete its folders __pycache__"
