"""The trial that chooses an iptables uses everything that rendered rules use."""

import re

import pytest
from rule_cases import CASES, Addresses

from proxylab.addresses import Family
from proxylab.engines.embedded.iptables.kernel_state import KernelState
from proxylab.engines.embedded.iptables.names import Table
from proxylab.engines.embedded.iptables.render import render
from proxylab.engines.embedded.iptables.restore import restore
from proxylab.kernel.netfilter.iptables_tool import _TABLES, _TRIAL

# A kernel may lack these: few clusters have Services over SCTP, and rules name only counters that exist.
OPTIONAL = {"nfacct", "sctp"}


def tables(text: str) -> set[str]:
    return set(re.findall(r"^\*(\w+)$", text, re.MULTILINE))


def extensions(text: str) -> set[str]:
    """Matches, and targets that are no chains of kube-proxy."""
    bare = re.sub(r'"[^"]*"', "", text)
    return set(re.findall(r"-m (\w+)", bare)) | set(re.findall(r"-j ([A-Z]+)(?![\w-])", bare))


def test_the_trial_and_save_cover_every_table_with_our_chains() -> None:
    assert set(_TABLES) == {table.value for table in Table} == tables(_TRIAL)


@pytest.mark.parametrize("name", CASES)
def test_the_trial_covers_each_extension_of_a_rendered_file(name: str) -> None:
    case = CASES[name](Addresses(Family.IPV4))
    text = restore(render(case.cluster, case.node, case.settings, Family.IPV4), KernelState()).text
    assert tables(text) <= tables(_TRIAL)
    assert extensions(text) - OPTIONAL <= extensions(_TRIAL) | {"ACCEPT"}


def test_extensions_are_found_in_a_text() -> None:
    assert extensions('-A X -m comment --comment "a -m b -j C" -m tcp -j KUBE-SVC-X\n-A X -j DNAT --to a') == {
        "comment",
        "tcp",
        "DNAT",
    }
