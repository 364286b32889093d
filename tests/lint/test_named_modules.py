"""Docstrings and comments name modules that exist: a module that moves leaves no name behind that leads nowhere."""

import re
from pathlib import Path

import proxylab

PACKAGE = Path(proxylab.__file__).parent
NAME = re.compile(r"``(?:proxylab\.)?([a-z_]+(?:\.[A-Za-z_]+)+)(?:\(\))?``")
"""A dotted name as docstrings write it, such as ``kernel.netlink.build`` or ``kernel.netlink.build.Links``."""


def leads_nowhere(name: str) -> bool:
    """Whether the name begins with one of our packages, and goes on with what that package lacks."""
    at = PACKAGE
    first, *rest = name.split(".")
    if not (at / first).is_dir() and not (at / f"{first}.py").is_file():
        return False  # a name of another library, or of a field
    for number, part in enumerate((first, *rest)):
        if (at / part).is_dir():
            at /= part
            continue
        module = at / f"{part}.py"
        wanted = rest[number] if module.is_file() and number < len(rest) else part
        if not module.is_file():
            module = at / "__init__.py"
        elif number == len(rest):
            return False
        return re.search(rf"\b{re.escape(wanted)}\b", module.read_text()) is None
    return False


def test_each_module_that_a_docstring_names_exists() -> None:
    found = [
        f"{path.relative_to(PACKAGE)}: {name}"
        for path in sorted(PACKAGE.rglob("*.py"))
        for name in NAME.findall(path.read_text())
        if leads_nowhere(name)
    ]
    assert not found, found


def test_a_name_that_leads_nowhere_is_noticed() -> None:
    assert leads_nowhere("kernel.realise")
    assert leads_nowhere("report.matrix.Outcome")
    assert not leads_nowhere("kernel.netlink.build")
    assert not leads_nowhere("report.matrix.result_table")
    assert not leads_nowhere("socket.socket")
