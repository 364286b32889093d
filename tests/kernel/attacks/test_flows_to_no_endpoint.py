"""Flows that rules lead to what is no endpoint of their Service fail, whether or not the author names backends."""

from typing import Any

from attacked_lab import ECHO, OTHER, VIP, Alteration, Attack, Dialled, each_of, lab_of_module

WHEREVER = {"outcome": "delivered", "source": "preserved"}
NOT_OF_THE_SERVICE = "A Service's flow reaches an endpoint of the Service, and nothing else."


def led(expression: str, back: str) -> tuple[Alteration, ...]:
    """The engine's own rules on node-a, edited with sed(1), and as they were."""
    edit = "iptables-save -t nat | sed -E '{}' | iptables-restore -T nat".format
    return (Alteration("node-a", edit(expression), edit(back)),)


def to(where: str) -> tuple[Alteration, ...]:
    return led(f"s/(--to-destination ){ECHO}:8080/\\1{where}/", f"s/(--to-destination ){where}/\\1{ECHO}:8080/")


ATTACKS = [
    *(
        Attack(
            f"the rules lead to a pod outside the Service, over {protocol} as {manner}",
            to(f"{OTHER}:8080"), "fail", NOT_OF_THE_SERVICE, WHEREVER,
            Dialled(port=protocol, send={"as": manner}),
            says=(f"endpoint: it arrived at other, at {OTHER}:8080, which is no endpoint of default/echo:{protocol}",),
        )
        for protocol in ("tcp", "udp")
        for manner in ("connect", "packet")
    ),
    Attack(
        "the rules lead to the client itself",
        to("10.244.0.11:8080"), "fail", NOT_OF_THE_SERVICE, WHEREVER,
        says=("endpoint: it arrived at neighbour",),
    ),
    Attack(
        "the rules lead to another port of the pod",
        to(f"{ECHO}:8081"), "fail", "A target port is a part of the endpoint.", WHEREVER,
        says=("it arrived at port 8081 of echo, not at port 8080, the target port of default/echo:tcp there",),
        why=f"but the endpoint of default/echo:tcp is {ECHO}:8080",
    ),
    Attack(
        "a node port leads to a pod outside the Service",
        to(f"{OTHER}:8080"), "fail", NOT_OF_THE_SERVICE, {"outcome": "delivered", "source": "masqueraded"},
        Dialled(sender="outside", to={"via": "nodePort", "node": "node-a"}), says=("which is no endpoint of",),
    ),
    Attack(
        "rules lead the address of a Service, dialled as an address, to a pod outside it",
        to(f"{OTHER}:8080"), "fail", NOT_OF_THE_SERVICE, WHEREVER,
        Dialled(to={"address": VIP, "port": 80}), says=("which is no endpoint of",),
    ),
]  # fmt: skip

lab: Any = lab_of_module("embedded/iptables")
test_a_flow_that_reaches_no_endpoint_fails: Any = each_of(ATTACKS)
