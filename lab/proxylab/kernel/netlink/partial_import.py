"""Imports modules of a package without what its ``__init__`` imports."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec, module_from_spec


@contextmanager
def without_init(package: str) -> Iterator[None]:
    """Within it, modules of the package are imported alone; afterwards the package counts as not imported yet.

    So an import of the package itself runs its ``__init__``, which finds the modules that are there. They are not its
    attributes then, so this is for processes of our own.
    """
    spec = None if package in sys.modules else find_spec(package)
    if spec is not None:
        sys.modules[package] = module_from_spec(spec)
    try:
        yield
    finally:
        if spec is not None:
            del sys.modules[package]
