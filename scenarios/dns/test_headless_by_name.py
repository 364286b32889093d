"""A headless Service has no rule in any node, and its DNS name works."""

import pytest

from proxylab.pytest_plugin import Lab


@pytest.mark.lab("headless-by-name.lab.yaml", case="ipv4+ipv6")
def test_a_headless_service_has_a_name_and_no_rule(lab: Lab) -> None:
    pods = {str(address) for name in ("db", "peers") for address in lab.resolve("client", name)}
    assert len(pods) == 8
    for node, rules in lab.rules().items():
        assert "kube-system/kube-dns" in rules, node
        for own in ("default/db", "default/peers", "default/front", *pods):
            assert own not in rules, (node, own)
