"""What a result says of the binary that ran."""

import pytest
from kube_proxies import identity
from msgspec.structs import replace

from proxylab.binary_identity import BinaryIdentity, identity_lines

PLAIN = identity("v1.37.2", "built from k8s.io/kubernetes@v1.37.2")
COMMIT = "f28b4c9efbca5c5c0af716d9f2d5702667ee8a45"


@pytest.mark.parametrize(
    ("commit", "dirty", "words"),
    [
        ("", None, ""),
        (COMMIT, None, "commit f28b4c9efbca; "),
        (COMMIT, True, "commit f28b4c9efbca, dirty; "),
        (COMMIT, False, "commit f28b4c9efbca, clean; "),
    ],
)
def test_in_words(commit: str, dirty: bool | None, words: str) -> None:
    binary = replace(PLAIN, commit=commit, dirty=dirty)
    assert str(binary) == (f"kube-proxy v1.37.2: built from k8s.io/kubernetes@v1.37.2; {words}SHA-256 0123456789ab")
    assert BinaryIdentity.from_document(binary.to_document()) == binary


def test_engines_share_the_line_of_their_binary_and_only_that() -> None:
    other = replace(PLAIN, digest="f" * 64)
    ran = [("b/nftables", other), ("a/iptables", PLAIN), ("embedded/iptables", None), ("a/nftables", PLAIN)]
    assert identity_lines([*ran, *ran]) == [f"b/nftables: {other}", f"a/iptables, a/nftables: {PLAIN}"]
