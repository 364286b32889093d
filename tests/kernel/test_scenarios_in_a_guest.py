"""Scenarios that need what few machines have run in a guest: mode ipvs, links with netem, and SCTP sockets.

``test_recorded_mutants`` shows that such scenarios can fail there.
"""

from pathlib import Path

import pytest
from guest_runs import files, lacking_mode_ipvs, of_mode_ipvs, run
from guests import OWN

from proxylab.errors import ExitCode

pytestmark = [OWN, pytest.mark.timeout(1200)]

IPVS = {
    "core": """
        clusterip/from-a-pod nodeport/traffic-policy-local rejections/no-local-endpoint-or-no-endpoint
        steps/udp-client-outlives-its-backend
    """,
    "rest of the core": """
        externalip/unassigned-address loadbalancer/source-ranges senders/from-a-node
        hairpin/same-node-reply-past-a-bridge affinity/client-ip untranslated/unused-port-of-a-cluster-ip
    """,
    "frontends": """
        clusterip/headless clusterip/host-network-endpoints clusterip/no-endpoints
        clusterip/ignores-external-traffic-policy clusterip/internal-traffic-policy-local clusterip/several-ports
        clusterip/one-pod-at-two-ports clusterip/one-port-over-tcp-and-udp clusterip/publish-not-ready-addresses
        nodeport/traffic-policy-cluster nodeport/node-port-addresses
        nodeport/range-of-its-own externalip/hijacked-address
        loadbalancer/short-circuits loadbalancer/without-node-ports
    """,
    "senders": """
        senders/from-loopback network/hairpin
        detect-local/cluster-cidr detect-local/node-cidr detect-local/without-cluster-cidr masquerade/all
        masquerade/once-through-a-tunnel icmp/echo-requests sctp/associations
        affinity/separate-for-each-port topology/prefer-same-zone terminating/local-policy-fallback
    """,
    "refusals and steps": """
        ipvs/feature-gate-off rejections/at-every-frontend
        rejections/daemon-on-the-node-port untranslated/other-ports-and-addresses
        steps/endpoints-move steps/service-type-changes
        steps/scaled-to-zero steps/proxy-killed-and-restarted
        steps/node-port-number-used-again loadbalancer/settings-at-the-second-port
    """,
}
"""What ``./dev test`` runs in mode ipvs: the core always, its rest where an engine changed, and the others where files
of the mode or of guests changed.

``--all`` runs every scenario.
"""

LACKING = {
    "netem": "links/lossy-link links/link-begins-to-lose links/link-begins-to-delay",
    "SCTP sockets": "sctp/connections sctp/associations",
    "limit of conntrack": "conntrack/table-is-full conntrack/no-source-port-is-left",
    "nft flowtables": "conntrack/flowtable-of-a-node",
}
"""The scenarios of a folder that ``./dev test`` runs for what many kernels lack; ``--all`` runs all of the folder."""


# In every run the same scenarios send crafted packets of SCTP on this machine's kernel.
SCTP = pytest.param(LACKING["SCTP sockets"], id="SCTP sockets", marks=pytest.mark.traffic)


def test_every_named_scenario_has_a_case_in_mode_ipvs() -> None:
    assert lacking_mode_ipvs(files(" ".join(IPVS.values()))) == []


@pytest.mark.parametrize(
    "names",
    [
        pytest.param(names, id=part, marks=[pytest.mark.engines] if part == "rest of the core" else [])
        for part, names in IPVS.items()
    ],
)
def test_mode_ipvs_passes(names: str) -> None:
    run("embedded/ipvs", files(names))


# The named sets have every kind of frontend, sender and change.
@pytest.mark.thorough
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("part", range(8))
def test_every_scenario_passes_in_mode_ipvs(part: int) -> None:
    run("embedded/ipvs", of_mode_ipvs()[part::8], seconds=7000)


# Neither a link nor the sockets ask how rules were loaded.
@pytest.mark.parametrize("engine", ["embedded/iptables", pytest.param("embedded/nftables", marks=pytest.mark.thorough)])
@pytest.mark.parametrize("names", [pytest.param(LACKING["netem"], id="netem"), SCTP])
def test_what_many_kernels_lack_is_there(names: str, engine: str) -> None:
    assert "skipped" not in run(engine, files(names))


def test_a_table_with_room_drops_nothing(tmp_path: Path) -> None:
    """What ``conntrack/table-is-full`` shows turns red without the low limit."""
    (full,) = files("conntrack/table-is-full")
    (room := tmp_path / full.name).write_text(
        full.read_text().replace("nf_conntrack_max: 2000", "nf_conntrack_max: 90000")
    )
    printed = run("embedded/iptables", [room], status=ExitCode.FAILED)
    assert "1 failed" in printed


@pytest.mark.thorough  # some files of each folder run without it
@pytest.mark.parametrize("engine", ["embedded/iptables", "embedded/nftables"])
@pytest.mark.parametrize("names", LACKING.values(), ids=LACKING)
def test_all_that_many_kernels_lack_is_there(names: str, engine: str) -> None:
    (folder,) = {path.parent for path in files(names)}
    assert "skipped" not in run(engine, sorted(folder.glob("*.lab.yaml")))
