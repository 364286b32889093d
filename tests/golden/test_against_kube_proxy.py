"""The embedded engine's rules against those of kube-proxy 1.36.3, by what they mean.

``kube-proxy-v1.36.3`` holds what that binary wrote for the same small clusters, each in an empty namespace of a kernel
with nfacct, as iptables-save printed it, without counters. It had the same configuration, and one node to serve. The
lab's own Service, by which it is seen that a proxy has caught up, is taken out, and with it the chains that a large
cluster keeps of it for a while.
"""

from dataclasses import replace
from pathlib import Path

import pytest
from rule_cases import CASES, Addresses

from lab.engines.embedded.iptables.held import Held
from lab.engines.embedded.iptables.meaning import differences, read_rules
from lab.engines.embedded.iptables.render import render
from lab.engines.embedded.iptables.restore import restore
from lab.ip import Family

FILES = Path(__file__).parent / "kube-proxy-v1.36.3"
OF_THE_MACHINE = {"packet_counters": True, "random_fully": True}
"""What kube-proxy found where the files were made, and no configuration can change."""


@pytest.mark.parametrize("family", list(Family), ids=str)
@pytest.mark.parametrize("name", [name for name in CASES if name != "packet-counters"])
def test_the_same_rules(name: str, family: Family) -> None:
    case = CASES[name](Addresses(family))
    ours = restore(render(case.cluster, case.node, replace(case.settings, **OF_THE_MACHINE), family), Held())
    theirs = (FILES / f"{name}.{family.lower()}.saved").read_text()
    assert differences(read_rules(ours.text), read_rules(theirs)) == []
