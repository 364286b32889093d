import pytest

from proxylab.engines.embedded.iptables.names import endpoint_chain, port_chains


@pytest.mark.parametrize(
    ("identity", "suffix"), [("default/echotcp", "HV6DMF63W6MGLRDE"), ("ns1/svc1:p80tcp", "XPGD46QRK7WJZT7O")]
)
def test_service_chains(identity: str, suffix: str) -> None:
    assert port_chains(identity) == tuple(f"KUBE-{kind}-{suffix}" for kind in ("SVC", "SVL", "EXT", "FW"))


@pytest.mark.parametrize(
    ("identity", "endpoint", "name"),
    [
        ("default/echotcp", "10.42.0.10:8080", "KUBE-SEP-QKHRHCLFVYAPNTMT"),
        ("ns4/svc4:p80tcp", "10.180.0.5:80", "KUBE-SEP-C6EBXVWJJZMIWKLZ"),
    ],
)
def test_endpoint_chains(identity: str, endpoint: str, name: str) -> None:
    assert endpoint_chain(identity, endpoint) == name
