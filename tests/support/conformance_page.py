"""The reference page of kube-proxy's conformance, made from the report of its runs."""

from documents import ROOT

from proxylab.features.conformance.conformance_files import markdown
from proxylab.features.conformance.conformance_table import read

__all__ = ["conformance_page"]

_REPORT = ROOT / "scenarios" / "conformance.json"

_HEAD = """\
# Conformance of kube-proxy

`proxylab conformance` ran the scenarios of the catalogue on these releases of kube-proxy. The table names the kernel,
the number of scenarios, the digest of their files, the time of each run, and the binary: its version, where it came
from, and the beginning of its SHA-256. Mode ipvs ran in the guest (`--kernel uml`). The table has no run whose binary
is not known; releases and modes that it lacks have not been run since reports name their binary.

An item is a probe or step. A known difference is what `except` in a scenario says of the proxy's mode or version: the
proxy does what the exception expects, for the reason below. What was not judged needs something that the machine
lacked.

[conformance.json](../../scenarios/conformance.json) has each item with its results. `proxylab gate` compares a change
with it, and so does `proxylab conformance --compare`. A run of one release is `proxylab conformance --engine
kube-proxy@v1.36/nftables --report v1.36-nftables.json`. `proxylab conformance --from scenarios/conformance.json --from
v1.36-nftables.json --report scenarios/conformance.json` puts several together, and `LAB_DOCS=write ./dev lint` writes
this page.

## Summary

"""


def conformance_page() -> str:
    """The page."""
    _, _, tables = markdown(read(_REPORT.read_text())).partition("\n\n")
    return f"{_HEAD}{tables}\n"
