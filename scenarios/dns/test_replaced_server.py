"""A DNS client with one source port outlives its server: the proxy must delete the conntrack entry of its queries.

https://github.com/kubernetes/kubernetes/issues/19029: each query refreshed the conntrack entry that led to a deleted
pod, so the client never got an answer again.
"""

import pytest

from proxylab.pytest_plugin import Lab

NAME = "kube-dns.kube-system.svc.cluster.local"
PORT = 12345


@pytest.mark.lab("replaced-server.lab.yaml")
def test_queries_from_one_source_port_reach_the_new_server(lab: Lab) -> None:
    for _ in range(3):
        assert lab.query("client", NAME, port=PORT).served_by == "first"
    lab.step()
    answered = lab.query("client", NAME, port=PORT)
    if lab.mode == "userspace" and answered.error == "timeout":
        # Its process keeps the endpoint of a client until that is silent, as it was while it waited for this answer.
        answered = lab.query("client", NAME, port=PORT)
    assert (answered.error, answered.served_by) == ("", "second")
    assert [str(address) for address in answered.addresses] == ["10.96.0.10"]
    assert lab.query("client", NAME, by_tcp=True).served_by == "second"
