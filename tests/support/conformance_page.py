"""The reference page of kube-proxy's conformance, made from the report of its runs."""

from documents import ROOT

from proxylab.report.conformance import read
from proxylab.report.conformance_files import markdown

__all__ = ["conformance_page"]

_REPORT = ROOT / "docs" / "reference" / "conformance.json"

_HEAD = """\
# Conformance of kube-proxy

`proxylab conformance` ran the scenarios of the catalogue on these releases of kube-proxy, built from their Go
modules. The table names the kernel, the number of scenarios, the digest of their files, and the time of each run. The
releases and modes that it lacks have not been run. Mode ipvs ran in the guest (`--kernel uml`).

An item is a probe or step. A known difference is what `except` in a scenario says of the proxy's mode or version: the
proxy does what the exception expects, for the reason below. What was not judged needs something that the machine
lacked.

[conformance.json](conformance.json) has each item with its results. `proxylab conformance --compare` compares a run
of yours with it. A run of one release is `proxylab conformance --engine kube-proxy@v1.37/nftables --report
v1.37-nftables.json`. `proxylab conformance --from v1.36-nftables.json --from v1.37-nftables.json --report
docs/reference/conformance.json` puts several together, and `LAB_DOCS=write ./dev pytest tests/docs/test_reference.py`
writes this page.

## What failed

These runs found faults of the scenarios, which have been mended since, and open questions:

* `loadbalancer/health-check-on-node-port-addresses` did not know that kube-proxy before 1.36 fails to serve
  health-check node ports over IPv6 beside a list of IPv4 networks (kubernetes#114702). It is a known difference now.
* `steps/affinity-timeout-at-a-node-port` relied on two probes within two seconds, and the machine was busy.
* In `sctp/associations`, no node had an entry of connection tracking for some flows: inconclusive. Such entries are
  short-lived, and a busy machine reads them late; no test shows that this is the cause.

* In mode ipvs, `bugs/130542-target-port-changes` allowed one lost packet, and a busy guest loses more. The probe of a
  host-network pod in `dns/cluster-ip-by-name` relied on the order in which kube-ipvs0 gets its addresses. Two steps
  under streams and one rolling update failed or could not be decided on the busy guest as well; they passed alone
  before, and are not explained yet.

## Summary

"""


def conformance_page() -> str:
    """The page."""
    _, _, tables = markdown(read(_REPORT.read_text())).partition("\n\n")
    return f"{_HEAD}{tables}\n"
