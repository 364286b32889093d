import pytest

from lab.engines.embedded.iptables.names import endpoint_chain, port_chains
from lab.ip import Protocol


@pytest.mark.parametrize(
    ("port_name", "suffix"), [("default/echo", "HV6DMF63W6MGLRDE"), ("ns1/svc1:p80", "XPGD46QRK7WJZT7O")]
)
def test_service_chains(port_name: str, suffix: str) -> None:
    found = [chain.name for chain in port_chains(port_name, Protocol.TCP)]
    assert found == [f"KUBE-{kind}-{suffix}" for kind in ("SVC", "SVL", "EXT", "FW")]


@pytest.mark.parametrize(
    ("port_name", "endpoint", "name"),
    [
        ("default/echo", "10.42.0.10:8080", "KUBE-SEP-QKHRHCLFVYAPNTMT"),
        ("ns4/svc4:p80", "10.180.0.5:80", "KUBE-SEP-C6EBXVWJJZMIWKLZ"),
    ],
)
def test_endpoint_chains(port_name: str, endpoint: str, name: str) -> None:
    assert endpoint_chain(port_name, Protocol.TCP, endpoint).name == name


def test_protocols_have_chains_of_their_own() -> None:
    assert len({port_chains("default/dns", protocol).cluster for protocol in Protocol}) == 3
