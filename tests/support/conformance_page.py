"""The reference page of kube-proxy's conformance, made from the report of its runs."""

from documents import ROOT

from proxylab.report.conformance import read
from proxylab.report.conformance_files import markdown

__all__ = ["conformance_page"]

_REPORT = ROOT / "docs" / "reference" / "conformance.json"

_HEAD = """\
# Conformance of kube-proxy

`proxylab conformance` ran the scenarios of the catalogue on these releases of kube-proxy, built from their Go
modules. The table names the kernel, the number of scenarios, the digest of their files, and the time of each run. "on
uml" is a guest (`--kernel uml`), which has IPVS.

An item is a probe or step. A known difference is what `except` in a scenario says of the proxy's mode or version: the
proxy does what the exception expects, for the reason below. What was not judged needs something that the machine
lacked.

[conformance.json](conformance.json) has each item with its results. `proxylab conformance --compare` compares a run
of yours with it. A run of one release is `proxylab conformance --engine kube-proxy@v1.37/nftables --report
v1.37-nftables.json`. `proxylab conformance --from v1.36-nftables.json --from v1.37-nftables.json --report
docs/reference/conformance.json` puts several together, and `LAB_DOCS=write ./dev pytest tests/docs/test_reference.py`
writes this page.

## Summary

"""


def conformance_page() -> str:
    """The page."""
    _, _, tables = markdown(read(_REPORT.read_text())).partition("\n\n")
    return f"{_HEAD}{tables}\n"
