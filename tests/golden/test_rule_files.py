"""What each small cluster renders to, as a file to be read and reviewed.

``empty`` shows the first load of all, jumps included; every other file shows the load that follows it.
Write the files anew with ``pytest tests/golden --update-golden``, then read the difference.
"""

from pathlib import Path

import pytest
from rule_cases import CASES, Addresses

from lab.engines.embedded.iptables.held import Held
from lab.engines.embedded.iptables.render import render
from lab.engines.embedded.iptables.restore import restore
from lab.ip import Family

FILES = Path(__file__).parent / "rules"


def rendered(name: str, family: Family) -> str:
    addresses = Addresses(family)
    empty, case = CASES["empty"](addresses), CASES[name](addresses)
    first = render(empty.cluster, empty.node, empty.settings, family)
    if name == "empty":
        return restore(first, Held()).text
    return restore(render(case.cluster, case.node, case.settings, family), Held().after(first)).text


@pytest.mark.parametrize("family", list(Family), ids=str)
@pytest.mark.parametrize("name", CASES)
def test_rules(name: str, family: Family, update_golden: bool) -> None:
    file = FILES / f"{name}.{family.lower()}.rules"
    text = rendered(name, family)
    if update_golden:
        file.write_text(text)
    assert text == file.read_text()


def test_every_file_has_a_case() -> None:
    expected = {f"{name}.{family.lower()}.rules" for name in CASES for family in Family}
    assert {file.name for file in FILES.iterdir()} == expected
