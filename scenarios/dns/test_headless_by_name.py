"""A headless Service has no rule in any node, and its DNS name works."""

import pytest

from proxylab.engines.engine_names import mode_of
from proxylab.pytest_plugin import Lab


@pytest.mark.lab("headless-by-name.lab.yaml", case="ipv4+ipv6")
def test_a_headless_service_has_a_name_and_no_rule(lab: Lab, lab_engine: str) -> None:
    pods = {str(address) for name in ("db", "peers") for address in lab.resolve("client", name)}
    assert len(pods) == 8
    dns = "-u 10.96.0.10:53" if mode_of(lab_engine) == "ipvs" else "kube-system/kube-dns"  # IPVS has addresses alone
    for node, rules in lab.rules().items():
        assert dns in rules, node
        for own in ("default/db", "default/peers", "default/front", *pods):
            assert own not in rules, (node, own)
