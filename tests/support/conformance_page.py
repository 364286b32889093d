"""The reference page of kube-proxy's conformance, made from the report of its runs."""

from documents import ROOT

from proxylab.features.conformance.conformance_files import markdown
from proxylab.features.conformance.conformance_table import read

__all__ = ["conformance_page"]

_REPORT = ROOT / "scenarios" / "conformance.json"

_HEAD = """\
# Conformance of kube-proxy

`proxylab conformance` ran the scenarios of the catalogue on these releases of kube-proxy, built from their Go
modules. The table names the kernel, the number of scenarios, the digest of their files, the time of each run, and the
binary. Where that is unknown, the run is from before reports named it: the version is what the binary printed. The
releases and modes that the table lacks have not been run. Mode ipvs ran in the guest (`--kernel uml`).

An item is a probe or step. A known difference is what `except` in a scenario says of the proxy's mode or version: the
proxy does what the exception expects, for the reason below. What was not judged needs something that the machine
lacked.

[conformance.json](../../scenarios/conformance.json) has each item with its results. `proxylab conformance --compare`
compares a run of yours with it. A run of one release is `proxylab conformance --engine kube-proxy@v1.37/nftables
--report v1.37-nftables.json`. `proxylab conformance --from v1.36-nftables.json --from v1.37-nftables.json --report
scenarios/conformance.json` puts several together, and `LAB_DOCS=write ./dev lint` writes this page.

## What failed

Modes iptables and nftables failed nowhere. One probe of `spread/two-three-four-and-seven-endpoints` was inconclusive on
1.37 in mode nftables, on a machine with twenty times more work than processors: no tap saw a sixth of its 7,000 flows
again. The scenario passed on the same binary afterwards.

The runs of mode ipvs, on a busy machine, found these faults of the scenarios and of the lab, which have been mended
since. The named scenarios passed on the release afterwards, but for `steps/service-type-changes`, which was not run
again there.

* `steps/service-type-changes` on 1.37: a Service that is created again at its former cluster IP can lose its endpoint
  after up to a minute. kube-proxy keeps the destinations of a deleted virtual server in its list for graceful
  termination (`pkg/proxy/ipvs/graceful_termination.go`), and deletes those of the new one by it. That is read from the
  code; the scenario now takes another cluster IP.
* `workloads/a-rolling-update-of-a-deployment` gave its pods one second of grace, and a busy guest needs longer for a
  sync.
* `topology/incomplete-hints` on 1.33 and 1.35: the lab took a sync with the former zone of a node for the one with the
  new zone.
* `bugs/130542-target-port-changes` and `loadbalancer/source-ranges-of-several-addresses` on 1.33 are known differences
  of the version now.

## Summary

"""


def conformance_page() -> str:
    """The page."""
    _, _, tables = markdown(read(_REPORT.read_text())).partition("\n\n")
    return f"{_HEAD}{tables}\n"
