"""Two small tables of conformance: of a release of kube-proxy, and of a build of it in which something broke."""

from proxylab.features.conformance.conformance_table import Conformance, Item, ItemResult, TestedProxy

__all__ = ["BROKEN", "RELEASE", "subject"]

_NFTABLES = "mode nftables has no node ports on 127.0.0.1 (KEP-3866)"
_SCTP = "needs SCTP"


def subject(engine: str = "kube-proxy@v1.36/nftables", version: str = "v1.36.3", kernel: str = "host") -> TestedProxy:
    """A proxy under test."""
    return TestedProxy(
        engine=engine,
        version=version,
        kernel=kernel,
        release="6.12.48",
        proxylab="0.1.0",
        scenarios=4,
        catalogue="7e77326fe202",
        begun="2026-11-23 18:52 UTC",
    )


def _item(scenario: str, name: str, result: ItemResult, reason: str = "") -> Item:
    return Item(scenario=scenario, name=name, results=(result,), reasons={reason: (0,)} if reason else {})


def _table(of: TestedProxy, client: ItemResult, why: str, loopback: ItemResult) -> Conformance:
    return Conformance(
        (of,),
        (
            _item(
                "clusterip/from-a-pod", "ClusterIP from a pod spreads connections over all endpoints", ItemResult.PASS
            ),
            _item("clusterip/from-a-pod", "ClusterIP from a pod preserves the client IP", client, why),
            _item("nodeport/on-loopback", "NodePort on 127.0.0.1 reaches the endpoint", loopback, _NFTABLES),
            _item(
                "nodeport/policy-local",
                "NodePort with policy Local preserves the client IP",
                ItemResult.PASS,
            ),
            _item("sctp/from-a-pod", "", ItemResult.SKIP, _SCTP),
        ),
    )


RELEASE = _table(subject(), ItemResult.PASS, "", ItemResult.KNOWN)
BROKEN = _table(
    subject("kube-proxy/nftables", "v1.37.0-alpha.1"),
    ItemResult.FAIL,
    "echo-1 saw it come from 172.18.0.2, not from client (10.244.1.2)",
    ItemResult.KNOWN,
)
