"""The Corefile of a name server in the lab: an author's own with the lab's API server in it."""

import pytest

from proxylab.control.coredns import corefile_for

KUBEADM = """\
.:53 {
    errors
    kubernetes cluster.local in-addr.arpa ip6.arpa {
       pods insecure
    }
    cache 30 # kubernetes { is no plugin here
}
"""


def test_the_labs_own_names_its_pod_and_the_labs_api() -> None:
    text = corefile_for("coredns")
    assert "nsid coredns" in text
    assert "    kubernetes {\n        endpoint http://127.0.0.1:61443\n    }\n" in text


def test_an_authors_corefile_keeps_its_lines() -> None:
    lines = corefile_for("coredns", KUBEADM).splitlines()
    lines.remove("        endpoint http://127.0.0.1:61443")
    lines.remove("    nsid coredns")
    assert lines == KUBEADM.splitlines()


@pytest.mark.parametrize("line", ["kubernetes cluster.local", "kubernetes", "kubernetes cluster.local # here"])
def test_a_plugin_without_a_block_gets_one(line: str) -> None:
    text = corefile_for("coredns", f".:53 {{\n  {line}\n  cache\n}}\n")
    plugin = line.partition(" #")[0]
    assert f"\n  {plugin} {{\n      endpoint http://127.0.0.1:61443\n  }}\n  cache\n" in text


def test_an_endpoint_of_the_authors_stays() -> None:
    text = ".:53 {\n  kubernetes {\n    endpoint http://10.0.0.1:8080\n  }\n}\n"
    assert corefile_for("coredns", text).replace("  nsid coredns\n", "") == text


def test_each_names_itself_by_its_pod_in_place_of_an_authors_name() -> None:
    text = corefile_for("coredns", ".:53 {\n  nsid mine\n  kubernetes\n}\n")
    assert [line.strip() for line in text.splitlines() if "nsid" in line] == ["nsid coredns"]
