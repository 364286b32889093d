"""The advice to load a kernel's modules, and whether it can help: not every kernel has them, or can load any."""

import os
import re
from collections.abc import Collection
from pathlib import Path
from typing import Final

_ADVICE: Final = "load the kernel's module as root: 'modprobe -a {}'"
_ADVISED: Final = re.compile(_ADVICE.format("([^']*)"))
_HOPELESS: Final = "use a kernel that has it, as this one has no such module ('--kernel uml' runs labs on another one)"


def load_modules(names: str) -> str:
    """The advice to load the modules of these names, which blanks separate."""
    return _ADVICE.format(names)


def feasible(cure: str, modules: Collection[str] | None) -> str:
    """The cure; or another one if it is to load modules, and none of them is among those that the kernel has."""
    advised = _ADVISED.search(cure)
    if advised is None or modules is None or not set(advised[1].split()).isdisjoint(modules):
        return cure
    return _ADVISED.sub(_HOPELESS, cure)


def is_built_in(module: str) -> bool:
    """Whether the kernel has a module built in: such a one has parameters, and no state of its own (sysfs)."""
    folder = Path("/sys/module", module)
    return folder.exists() and not (folder / "initstate").exists()


def known_modules() -> frozenset[str] | None:
    """The modules that this kernel can load or has built in; ``None`` if that cannot be known, as in a container."""
    if not Path("/proc/modules").exists():
        return frozenset()  # CONFIG_MODULES is off
    folder = Path("/lib/modules", os.uname().release)
    try:
        texts = [(folder / f"modules.{name}").read_text(encoding="ascii") for name in ("dep", "builtin")]
    except OSError:
        return None
    return frozenset(_name(line) for text in texts for line in text.splitlines())


def _name(line: str) -> str:
    """The module in a line such as ``kernel/net/sctp/sctp.ko.xz: …``."""
    return Path(line.partition(":")[0]).name.partition(".")[0].replace("-", "_")
