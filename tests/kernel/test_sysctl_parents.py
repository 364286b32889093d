"""A lab is the same on every machine: its sysctls do not depend on its parents'.

A new network namespace copies the per-device defaults of the machine's first namespace, which no test may change. So
the test makes each namespace of two labs as if born of one of two opposite machines: before the lab writes its own
values, it sets every default that would have been copied to one of two opposite values. Afterwards it reads all of
/proc/sys/net in every namespace of both labs.
"""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from sandboxed import sandboxed
from scenario_cases import DUAL, two_nodes
from users import BOTH

from proxylab.kernel.netlink import build as room
from proxylab.kernel.sandbox.launcher import Launcher
from proxylab.kernel.sandbox.netns import NetNs, inside, make_netns
from proxylab.plan.topology import draw

# Sysctls that a lab inherits unchanged, by the reason why they have no effect in a lab.
LEFT_ALONE = {
    "IGMP and MLD: only neighbour discovery uses multicast": {
        "force_igmp_version",
        "force_mld_version",
        "igmpv2_unsolicited_report_interval",
        "igmpv3_unsolicited_report_interval",
        "mldv1_unsolicited_report_interval",
        "mldv2_unsolicited_report_interval",
    },
    "IPsec: there are no policies": {"disable_policy", "disable_xfrm"},
    "unsolicited ARP and neighbour advertisements: no address moves, so none are sent": {
        "accept_untracked_na",
        "arp_notify",
        "drop_gratuitous_arp",
        "drop_unsolicited_na",
        "force_tllao",
        "ndisc_notify",
        "ndisc_tclass",
        "suppress_frag_ndisc",
    },
    "loss of carrier and removal of addresses: neither happens while a lab lives": {
        "arp_evict_nocarrier",
        "keep_addr_on_down",
        "ndisc_evict_nocarrier",
        "promote_secondaries",
    },
    "multicast frames with unicast packets: no wireless network is near": {"drop_unicast_in_l2_multicast"},
    "relays, tags and media for programs and proxies of ARP that a lab has not": {"bootp_relay", "medium_id", "tag"},
    "segment routing and in-situ OAM: no packet bears such headers": {
        "ioam6_enabled",
        "ioam6_id",
        "ioam6_id_wide",
        "rpl_seg_enabled",
        "seg6_enabled",
        "seg6_require_hmac",
    },
    "router advertisements: accept_ra is 0 and no router sends any": {
        "accept_ra_defrtr",
        "accept_ra_from_local",
        "accept_ra_min_hop_limit",
        "accept_ra_min_lft",
        "accept_ra_mtu",
        "accept_ra_pinfo",
        "accept_ra_rt_info_max_plen",
        "accept_ra_rt_info_min_plen",
        "accept_ra_rtr_pref",
        "ra_defrtr_metric",
        "ra_honor_pio_life",
        "ra_honor_pio_pflag",
        "router_probe_interval",
        "router_solicitation_delay",
        "router_solicitation_interval",
        "router_solicitation_max_interval",
    },
    "addresses that a host makes itself, and their duplicates: it makes none": {
        "enhanced_dad",
        "max_addresses",
        "max_desync_factor",
        "optimistic_dad",
        "regen_max_retry",
        "regen_min_advance",
        "temp_prefered_lft",
        "temp_valid_lft",
        "use_optimistic",
    },
    "one device's word beside forwarding, which is written": {"force_forwarding"},
}
# In namespaces that forward nothing: the keys that are read on forwarding, and for redirects, which are not accepted.
OF_FORWARDERS = {
    "accept_source_route",
    "bc_forwarding",
    "ignore_routes_with_linkdown",
    "log_martians",
    "proxy_arp",
    "proxy_arp_pvlan",
    "secure_redirects",
    "send_redirects",
    "shared_media",
    "src_valid_mark",
}


def matters(namespace: str, key: str) -> bool:
    """Whether a key may not differ."""
    _, family, *_, device, name = key.split("/")
    if namespace == "fabric":
        return False  # it is a bridge without addresses and routes
    if device == "lo" and (not namespace.startswith("node") or family == "ipv6"):
        return False  # a namespace's packet to itself keeps its route; in nodes other packets enter by lo
    if key == "net/ipv6/conf/all/addr_gen_mode":
        return False  # a write sets all devices; a new device copies the default (addrconf_sysctl_addr_gen_mode)
    if name in OF_FORWARDERS and family == "ipv4" and not namespace.startswith(("node", "router")):
        return False
    return not any(name in keys for keys in LEFT_ALONE.values())


def write(path: str, value: str) -> None:
    try:
        Path(path).write_text(value)
    except OSError:
        return


def born_of(machine: int) -> Callable[[str], NetNs]:
    """A maker of namespaces with the per-device defaults of one of two opposite machines."""

    def make(name: str) -> NetNs:
        netns = make_netns(name)
        with inside(netns):
            for family in ("ipv4", "ipv6"):
                for device in ("default", "lo", "all"):
                    folder = f"/proc/sys/net/{family}/conf/{device}"
                    for key in sorted(os.listdir(folder)) if os.path.isdir(folder) else ():
                        write(f"{folder}/{key}", str(machine))
        return netns

    return make


def everything() -> dict[str, str]:
    """All of /proc/sys/net in the calling thread's namespace."""
    found = {}
    for folder, _, files in os.walk("/proc/sys/net"):
        for file in files:
            path = os.path.join(folder, file)
            try:
                found[path.removeprefix("/proc/sys/")] = Path(path).read_text()
            except OSError:
                continue
    return found


async def differences(_: Launcher) -> dict[str, Any]:
    labs = []
    written = 0
    for machine in (0, 1):
        room.make_netns = born_of(machine)
        with room.realise(draw(two_nodes(network=DUAL))) as wiring:
            lab = {}
            for name, netns in wiring.namespaces.items():
                with inside(netns):
                    lab[name] = everything()
            labs.append(lab)
            written = sum(len(each.sysctls) for each in wiring.plan.namespaces)
    different = sorted(
        f"{name}: {key}"
        for name in labs[0]
        for key in labs[0][name].keys() | labs[1][name].keys()
        if labs[0][name].get(key) != labs[1][name].get(key)
    )
    return {"different": different, "read": sum(map(len, labs[0].values())), "written": written}


@BOTH
def test_opposite_machines_bear_the_same_lab(ordinary: bool) -> None:
    found = sandboxed(differences, ordinary=ordinary)
    assert found["read"] > 5 * found["written"], "the comparison saw far more than what the lab writes"
    assert found["different"], "namespaces of the two machines are born different, or this test shows nothing"
    assert [each for each in found["different"] if matters(*each.split(": "))] == []
