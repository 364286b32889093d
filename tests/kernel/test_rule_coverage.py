"""``run --rule-coverage`` on a kernel: what probes met of the rules of two modes, and what they did not."""

from pathlib import Path
from typing import Any

import pytest
from command_line import CommandLine
from covered_rules import checked_coverage

LOOKS_UP = "services ip daddr . meta l4proto . th dport vmap @service-ips"
FRONTEND = "nat KUBE-SERVICES -d ADDRESS -p PROTOCOL --dport PORT -j KUBE-SVC-* # SERVICE cluster IP"


def coverage(engine: str, cli: CommandLine, folder: Path) -> dict[str, Any]:
    def run(file: str) -> str:
        return cli.type("run", file, "--engine", engine, "--rule-coverage", "-o", "json").output

    return checked_coverage(engine, run, folder)


def test_rules_of_nftables_are_met_where_traces_have_them_and_elements_by_their_keys(
    cli: CommandLine, tmp_path: Path
) -> None:
    kinds = coverage("embedded/nftables", cli, tmp_path)
    frontends = kinds["element service-ips : goto service-*"]
    assert (frontends["rules"], frontends["met"]) == (5, 2), "of two ports in two families, and of the later Service"
    assert all(":81 " in each or ". 81" in each or "fd" in each for each in frontends["unmet"])
    hairpins = kinds["element hairpin-connections"]
    assert (hairpins["rules"], hairpins["met"]) == (2, 1), "one of each family: the pod dialled itself over IPv4"
    assert kinds["element service-nodeports : goto external-*"]["met"] == 0
    assert kinds["element no-endpoint-services : goto reject-chain"]["met"] == 0
    assert kinds[LOOKS_UP]["met"] == 1, "over IPv4"
    assert kinds["reject-chain reject"]["met"] == 0


@pytest.mark.parametrize("variant", ["legacy", "nft"])
def test_rules_of_iptables_are_met_where_they_counted(variant: str, cli: CommandLine, tmp_path: Path) -> None:
    def run(file: str) -> str:
        options = ("--engine", "embedded/iptables", "--iptables", variant)
        return cli.type("run", file, *options, "--rule-coverage", "-o", "json").output

    kinds = checked_coverage("embedded/iptables", run, tmp_path)
    frontends = kinds[FRONTEND]
    assert (frontends["rules"], frontends["met"]) == (5, 2)
    assert kinds["nat KUBE-SEP-* -s ADDRESS -j KUBE-MARK-MASQ"]["met"] == 1, "the pod dialled itself"
    assert kinds["nat KUBE-NODEPORTS -p PROTOCOL --dport PORT -j KUBE-EXT-*"]["met"] == 0
    rejected = "filter KUBE-SERVICES -d ADDRESS -p PROTOCOL --dport PORT -j REJECT # SERVICE has no endpoints"
    assert (kinds[rejected]["rules"], kinds[rejected]["met"]) == (1, 0)
