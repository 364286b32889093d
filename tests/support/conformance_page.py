"""The reference pages of kube-proxy's conformance, and of the next release beside the last, from reports of runs."""

from documents import ROOT

from proxylab.features.conformance.conformance_files import markdown
from proxylab.features.conformance.conformance_table import read

__all__ = ["conformance_page", "next_release_page"]

_REPORT = ROOT / "scenarios" / "conformance.json"
_NEXT = ROOT / "docs" / "reference" / "next-release.json"

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

_NEXT_HEAD = """\
# The next release beside the last

`proxylab conformance` ran scenarios of the catalogue on kube-proxy 1.38.0-beta.0 and on 1.37.2, in modes iptables and
nftables, on one kernel. The summary below has how many, and the digest of their files: on 1.38.0-beta.0, the whole
catalogue of that day.
[next-release.json](next-release.json) has each item with its results. An item is a probe or step of a
[scenario](scenarios.md). A known difference is what `except` in a scenario says of the proxy's mode or version. The
catalogue expects what 1.37 does: where 1.38.0-beta.0 "does not conform", it does otherwise, which may be meant.

## What differs, and why

**Mode nftables rejects node ports at loopback addresses.** The feature gate KubeProxyNFTablesLocalhostNodePorts is
alpha and off in 1.37, beta and on in 1.38. With it, a packet of the node itself to a node port at 127.0.0.0/8 or ::1
is answered by ICMP port unreachable. In 1.37 it goes to the node's own programs. So

* a program that listens on 127.0.0.1 at the number of a node port is not reached any more
  ([nodeport/at-every-address](../../scenarios/nodeport/at-every-address.lab.yaml),
  [nodeport/localhost-node-ports-off](../../scenarios/nodeport/localhost-node-ports-off.lab.yaml));
* a client of the node gets the ICMP error, where the node reset the connection;
* where `nodePortAddresses` names a loopback address, the process of kube-proxy takes the connection and opens another
  one to an endpoint ([nodeport/loopback-addresses-only](../../scenarios/nodeport/loopback-addresses-only.lab.yaml)).

With the gate off, the nine scenarios of mode nftables that met that conform as on 1.37.2: its last column shows them.
In mode iptables one scenario differs by it: steps/proxy-mode-switches, which changes to mode nftables.

**UDP flows to the node port of a deleted Service keep their translation**, in both modes
([bugs/139628-udp-after-service-deletion](../../scenarios/bugs/139628-udp-after-service-deletion.lab.yaml),
[kubernetes#139628](https://github.com/kubernetes/kubernetes/issues/139628)). 1.38.0-beta.0 deletes the entries of
connection tracking of the cluster IP with the Service. 1.37 does that only if it learns of the endpoints first. Those
of the node port stay in both: `CleanStaleEntries` passes over node ports without serving endpoints. A client that goes
on sending from the same port reaches the pod while it lives, and then its address.

Nothing else differs in the scenarios that ran on both.

## The binary

kube-proxy is built from the Go module k8s.io/kubernetes@v1.38.0-beta.0 with the staging modules published with it, by
Go 1.27.3. `cmd/kube-proxy` and `pkg/proxy` are unchanged. `-dirty` is its go.mod, which replaces four modules that no
module proxy at hand served; the commit is of a repository that has just these sources.

* sigs.k8s.io/iptables-wrappers v1.0.0, by `pkg/util/iptables` of 1.37.2, from which it was made, with the signatures
  that 1.38 calls. So mode iptables runs iptables, iptables-save and iptables-restore with the arguments of 1.37.2. A
  fault of the new module itself, such as in its choice between iptables-legacy and iptables-nft, does not show here.
* sigs.k8s.io/structured-merge-diff/v7 v7.0.1, by v7.0.0. It merges applied objects, and kube-proxy applies none.
* k8s.io/apiextensions-api and k8s.io/ktesting v0.38.0-beta.0, by empty modules: kube-proxy imports none of their
  packages.

## Summary

"""


def conformance_page() -> str:
    """The page."""
    _, _, tables = markdown(read(_REPORT.read_text())).partition("\n\n")
    return f"{_HEAD}{tables}\n"


def next_release_page() -> str:
    """The page: what differs comes before the counts of themes."""
    _, _, tables = markdown(read(_NEXT.read_text())).partition("\n\n")
    summary, *sections = tables.split("\n\n## ")
    ordered = sorted(sections, key=lambda each: not each.startswith("Differs"))
    return "\n\n## ".join([f"{_NEXT_HEAD}{summary}", *ordered]) + "\n"
