"""The line of code that a leftover's report names."""

from pathlib import Path
from typing import Any

import proxylab
from proxylab.kernel.sandbox.origins import here

SOURCE = """
def make(here):
    return here()

def build(here):
    return make(here)
"""


def test_a_line_of_the_package_is_named_from_the_package_on() -> None:
    names: dict[str, Any] = {}
    exec(compile(SOURCE, str(Path(proxylab.__file__).parent / "server/lab.py"), "exec"), names)
    assert names["build"](here) == "proxylab/server/lab.py:6"
