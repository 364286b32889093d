"""Chains of others that are named like the engine's: a name is the engine's if it hashes from a Service port."""

from typing import Any

import pytest
from attacked_lab import ECHO, VIP, Alteration, Attack, Dialled, each_of, iptables, lab_of_module
from attacked_streams import said, streaming

from proxylab.engines.protocol import EngineChoice

NOT_THE_ENGINE = "Another rule did it first, so nothing shows what the engine's rules would have done."
NAMES = ("KUBE-SEP-EVIL", "KUBE-SEP-AAAAAAAAAAAAAAAA", "KUBE-SVC-ABCDEFGHIJKLMNOP")


def leading(name: str, port: str, table: str = "nat") -> tuple[Alteration, ...]:
    """A chain that leads to the pod ahead of the engine's rules."""
    tool, there = f"iptables -w -t {table}", f"-d {VIP} -p {port} --dport 80 -j DNAT --to-destination {ECHO}:8080"
    return (
        Alteration("node-a", f"{tool} -N {name}; {tool} -A {name} {there}", f"{tool} -F {name}; {tool} -X {name}"),
        iptables("node-a", table, "PREROUTING", f"-j {name}"),
    )


def dropping(name: str) -> tuple[Alteration, ...]:
    tool, drop = "iptables -w -t filter", f"-d {ECHO} -p tcp -j DROP"
    return (
        Alteration("node-a", f"{tool} -N {name}; {tool} -A {name} {drop}", f"{tool} -F {name}; {tool} -X {name}"),
        iptables("node-a", "filter", "FORWARD", f"-j {name}"),
    )


ATTACKS = [
    *(
        Attack(
            f"{name} leads to the pod ahead of the engine's rules, over {port}",
            leading(name, port), "inconclusive", NOT_THE_ENGINE, dialled=Dialled(port=port),
            says=(f"in chain {name}",),
        )
        for name in NAMES
        for port in ("tcp", "udp")
    ),
    Attack(
        "a chain named as an endpoint's drops what the engine should",
        dropping(NAMES[1]), "inconclusive", NOT_THE_ENGINE, {"outcome": "dropped", "at": "node-a"},
        says=("which belongs to no engine",),
    ),
]  # fmt: skip

lab: Any = lab_of_module("embedded/iptables")
test_a_chain_that_no_service_port_names_is_none_of_the_engines: Any = each_of(ATTACKS)


@pytest.mark.parametrize("port", ["tcp", "udp"])
def test_such_a_chain_leads_no_stream_in_place_of_the_engine(port: str) -> None:
    with streaming(
        EngineChoice("embedded/iptables"), port, "{backend: echo, lost: 0}", *leading(NAMES[0], port)
    ) as both:
        for verdict in both:
            assert str(verdict.overall) == "inconclusive", said(verdict)
            assert f"in chain {NAMES[0]}" in said(verdict)
