"""Commands in a node find the iptables that loaded its rules, whichever the machine calls ``iptables``."""

import subprocess

import pytest
from command_line import CommandLine
from sandboxed import ROOT
from shared_sessions import shared_session

from proxylab.engines.engine_names import ENGINES, IPTABLES_VARIANTS
from proxylab.engines.protocol import EngineChoice
from proxylab.scenario.load import load_scenario

SCENARIO = ROOT / "tests/kernel/killed.lab.yaml"


@pytest.mark.parametrize("variant", IPTABLES_VARIANTS)
def test_exec_and_shell_see_the_rules_of_the_engine(variant: str, cli: CommandLine) -> None:
    cli.up("--iptables", variant)
    assert "-A KUBE-SERVICES " in cli.type("exec", "node-a", "--", "iptables-save", "-t", "nat").output
    assert "-A KUBE-SERVICES " in cli.type("exec", "node-a", "--", "sh", "-c", "iptables -t nat -S").output
    told = {"legacy": "(legacy)", "nft": "(nf_tables)"}[variant]
    for each in ("iptables", "iptables-save", "iptables-restore", "ip6tables", "ip6tables-save", "ip6tables-restore"):
        assert told in cli.type("exec", "node-b", "--", each, "--version").output
    shell = cli.start("shell", "node-a", stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    output, _ = shell.communicate(b"iptables-save -t nat\n", timeout=60)
    assert b"-A KUBE-SERVICES " in output


@pytest.mark.parametrize("variant", IPTABLES_VARIANTS)
def test_a_python_test_sees_the_rules_of_the_engine(variant: str) -> None:
    with shared_session(EngineChoice(ENGINES[0], iptables=variant)) as session:
        opened = session.open(load_scenario(SCENARIO))
        assert "-A KUBE-SERVICES " in opened.execute("node-a", "iptables-save", "-t", "nat").stdout
