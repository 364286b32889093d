"""The circumstances of the runs that tests of bundles record."""

from proxylab.report.bundle import Circumstances

__all__ = ["HERE"]

HERE = Circumstances(
    proxylab="1",
    python="3.11",
    kernel="6.8",
    machine="x86_64",
    engine="embedded/iptables",
    iptables="v1.8.9 (legacy)",
    seed=7,
)
