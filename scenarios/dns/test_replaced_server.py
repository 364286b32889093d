"""A DNS client with one source port outlives its server: the proxy must forget where its questions went.

https://github.com/kubernetes/kubernetes/issues/19029: each question refreshed the entry of connection tracking that led
to a pod which was no more, and so the client was never answered again.
"""

import pytest

from lab.pytest_plugin import Lab

NAME = "kube-dns.kube-system.svc.cluster.local"
PORT = 12345


@pytest.mark.lab("replaced-server.lab.yaml")
def test_questions_from_one_port_are_answered_by_whoever_serves(lab: Lab) -> None:
    for _ in range(3):
        assert lab.query("client", NAME, port=PORT).served_by == "first"
    lab.step()
    answered = lab.query("client", NAME, port=PORT)
    assert (answered.error, answered.served_by) == ("", "second")
    assert [str(address) for address in answered.addresses] == ["10.96.0.10"]
    assert lab.query("client", NAME, by_tcp=True).served_by == "second"
