"""What each small cluster renders to, as a file to be read and reviewed.

``empty`` shows the first load of all, jumps included; every other file shows the load that follows it.
Write the files anew with ``pytest tests/golden --update-golden``, then read the difference.
"""

from collections.abc import Iterable
from pathlib import Path

import pytest
from rule_cases import CASES, Addresses

from lab.engines.embedded.iptables.held import Held
from lab.engines.embedded.iptables.legacy import V1_23
from lab.engines.embedded.iptables.render import CURRENT, render
from lab.engines.embedded.iptables.restore import restore
from lab.engines.embedded.iptables.shape import Shape
from lab.ip import Family

FILES = Path(__file__).parent / "rules"


LEGACY_FILES = Path(__file__).parent / "rules-v1.23"
LEGACY_CASES = (
    "empty",
    "cluster-ip-affinity",
    "cluster-ip-internal-local",
    "cluster-ip-no-endpoints",
    "node-port",
    "node-port-local",
    "node-port-local-none-here",
    "external-ip",
    "load-balancer",
    "load-balancer-local",
    "load-balancer-source-ranges-with-node",
)


def rendered(name: str, family: Family, shape: Shape = CURRENT) -> str:
    addresses = Addresses(family)
    empty, case = CASES["empty"](addresses), CASES[name](addresses)
    first = render(empty.cluster, empty.node, empty.settings, family, shape)
    if name == "empty":
        return restore(first, Held()).text
    return restore(render(case.cluster, case.node, case.settings, family, shape), Held().after(first)).text


@pytest.mark.parametrize("family", list(Family), ids=str)
@pytest.mark.parametrize("name", CASES)
def test_rules(name: str, family: Family, update_golden: bool) -> None:
    file = FILES / f"{name}.{family.lower()}.rules"
    text = rendered(name, family)
    if update_golden:
        file.write_text(text)
    assert text == file.read_text()


@pytest.mark.parametrize("family", list(Family), ids=str)
@pytest.mark.parametrize("name", LEGACY_CASES)
def test_rules_of_1_23(name: str, family: Family, update_golden: bool) -> None:
    file = LEGACY_FILES / f"{name}.{family.lower()}.rules"
    text = rendered(name, family, V1_23)
    if update_golden:
        file.write_text(text)
    assert text == file.read_text()


@pytest.mark.parametrize(("files", "cases"), [(FILES, CASES), (LEGACY_FILES, LEGACY_CASES)])
def test_every_file_has_a_case(files: Path, cases: Iterable[str]) -> None:
    expected = {f"{name}.{family.lower()}.rules" for name in cases for family in Family}
    assert {file.name for file in files.iterdir()} == expected
