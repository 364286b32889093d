"""Scenarios of the core hold on nodes that have the rules of Docker, flannel or firewalld (``foreign_hosts``).

Each program has its list, of scenarios of which it changes nothing. Others ask for what the program itself does
otherwise: flannel masquerades what a pod sends to another node's address, and firewalld rejects what no rule has
translated and no zone allows, such as a health check from outside or an unused port. Calico's rules name the devices of
pods, so its scenario in ``leftovers`` stands alone.
"""

from collections.abc import Sequence
from pathlib import Path

import pytest
from command_line import CommandLine
from foreign_hosts import under_rules_of
from sandboxed import ROOT

FEW = {
    "Docker and flannel": "clusterip/from-a-pod nodeport/traffic-policy-local",
    "firewalld on nftables": "hairpin/at-every-frontend nodeport/traffic-policy-local",
}
"""What every run tries: a frontend of each policy, and a pod that reaches itself."""

MORE = {
    "Docker and flannel": """
        hairpin/at-every-frontend clusterip/several-ports clusterip/no-endpoints clusterip/internal-traffic-policy-local
        nodeport/traffic-policy-cluster externalip/unassigned-address loadbalancer/source-ranges
        loadbalancer/short-circuits rejections/no-local-endpoint-or-no-endpoint untranslated/unused-port-of-a-cluster-ip
        affinity/client-ip terminating/local-policy-fallback topology/prefer-same-zone
        steps/udp-client-outlives-its-backend steps/endpoints-move masquerade/all
    """,
    "firewalld on nftables": """
        clusterip/from-a-pod clusterip/several-ports clusterip/internal-traffic-policy-local
        loadbalancer/short-circuits affinity/client-ip masquerade/all
    """,
}


@pytest.mark.parametrize("program", FEW)
def test_services_hold_under_the_rules_of_another_program(program: str, tmp_path: Path, cli: CommandLine) -> None:
    hold(program, FEW[program].split(), tmp_path, cli)


@pytest.mark.thorough  # the test above, for the other scenarios
@pytest.mark.parametrize("program", MORE)
def test_the_core_holds_under_the_rules_of_another_program(program: str, tmp_path: Path, cli: CommandLine) -> None:
    hold(program, MORE[program].split(), tmp_path, cli)


def hold(program: str, names: Sequence[str], folder: Path, cli: CommandLine) -> None:
    files = []
    for name in names:
        files.append(folder / f"{name.replace('/', '-')}.lab.yaml")
        files[-1].write_text(under_rules_of(program, ROOT / "scenarios" / f"{name}.lab.yaml"), encoding="utf-8")
    done = cli.type("run", *map(str, files), "--no-bundles")
    assert done.status == 0, done.output
