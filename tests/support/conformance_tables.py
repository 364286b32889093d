"""Two small tables of conformance: of a release of kube-proxy, and of a build of it in which something broke."""

from proxylab.features.conformance.conformance_table import Conformance, Item, Result, Subject

__all__ = ["BROKEN", "RELEASE", "subject"]

_NFTABLES = "mode nftables has no node ports on 127.0.0.1 (KEP-3866)"
_SCTP = "needs SCTP"


def subject(engine: str = "kube-proxy@v1.36/nftables", version: str = "v1.36.3", kernel: str = "host") -> Subject:
    """A proxy under test."""
    return Subject(
        engine=engine,
        version=version,
        kernel=kernel,
        release="6.12.48",
        proxylab="0.1.0",
        scenarios=4,
        catalogue="7e77326fe202",
        begun="2026-11-23 18:52 UTC",
    )


def _item(scenario: str, name: str, result: Result, reason: str = "") -> Item:
    return Item(scenario=scenario, name=name, results=(result,), reasons={reason: (0,)} if reason else {})


def _table(of: Subject, client: Result, why: str, loopback: Result) -> Conformance:
    return Conformance(
        (of,),
        (
            _item("clusterip/from-a-pod", "ClusterIP from a pod spreads connections over all endpoints", Result.PASS),
            _item("clusterip/from-a-pod", "ClusterIP from a pod preserves the client IP", client, why),
            _item("nodeport/on-loopback", "NodePort on 127.0.0.1 reaches the endpoint", loopback, _NFTABLES),
            _item(
                "nodeport/policy-local",
                "NodePort with policy Local preserves the client IP",
                Result.PASS,
            ),
            _item("sctp/from-a-pod", "", Result.SKIP, _SCTP),
        ),
    )


RELEASE = _table(subject(), Result.PASS, "", Result.KNOWN)
BROKEN = _table(
    subject("kube-proxy/nftables", "v1.37.0-alpha.1"),
    Result.FAIL,
    "echo-1 saw it come from 172.18.0.2, not from client (10.244.1.2)",
    Result.KNOWN,
)
