"""Writes virtual servers and sets in its own namespace, and prints as JSON what the kernel gives back otherwise.

``test_ipvs_in_a_guest`` runs it in a guest.
"""

import json
import os
import sys
from contextlib import closing
from ipaddress import ip_address, ip_network

from proxylab.addresses import Family, Protocol
from proxylab.evidence.ipvs import IpSet, IpvsDestination, IpvsTimeouts, Member, VirtualServer
from proxylab.kernel.netfilter.ipset import IpSets
from proxylab.kernel.netfilter.ipvs import Ipvs, IpvsRefusedError
from proxylab.kernel.sandbox.netns import NetNs

ONE, TWO = ip_address("10.96.0.10"), ip_address("fd00:10:96::10")
SERVERS = [
    VirtualServer(
        address=ONE,
        port=80,
        protocol=Protocol.TCP,
        scheduler="mh",
        scheduler_flags=0x10,
        persistence=30,
        destinations=(
            IpvsDestination(address=ip_address("10.244.0.2"), port=8080),
            IpvsDestination(address=ip_address("10.244.0.3"), port=8080, weight=0),
        ),
    ),
    VirtualServer(
        address=TWO,
        port=53,
        protocol=Protocol.UDP,
        persistence=10,
        destinations=(IpvsDestination(address=ip_address("fd00:10:244::2"), port=5353),),
    ),
    VirtualServer(address=ONE, port=80, protocol=Protocol.SCTP),
]
FRONTEND = Member(address=ONE, protocol=Protocol.SCTP, port=80)
SETS = [
    IpSet(name="PORTS", kind="bitmap:port", family=None, members=frozenset({Member(port=1), Member(port=65535)})),
    IpSet(name="ADDRESSES", kind="hash:ip", members=frozenset(Member(address=ONE + number) for number in range(1000))),
    IpSet(name="FRONTENDS", kind="hash:ip,port", members=frozenset({FRONTEND})),
    IpSet(
        name="HAIRPINS",
        kind="hash:ip,port,ip",
        family=Family.IPV6,
        members=frozenset({Member(address=TWO, protocol=Protocol.TCP, port=80, other=TWO)}),
    ),
    IpSet(
        name="RANGES",
        kind="hash:ip,port,net",
        members=frozenset(
            Member(address=ONE, protocol=Protocol.TCP, port=80, other=ip_network(each))
            for each in ("10.0.0.0/8", "192.0.2.1/32")
        ),
    ),
]


def virtual_servers(netns: NetNs) -> list[str]:
    wrong = []
    with closing(Ipvs(netns)) as ipvs:
        ipvs.add(SERVERS)
        written = sorted(line for each in SERVERS for line in each.lines())
        found = sorted(line for each in ipvs.servers() for line in each.lines())
        wrong += {*written} ^ {*found}
        try:
            ipvs.add(SERVERS[:1])
            wrong.append("the kernel takes a virtual server twice")
        except IpvsRefusedError as refused:
            wrong += [] if "add -t 10.96.0.10:80: File exists" in str(refused) else [str(refused)]
        ipvs.delete_destinations([(SERVERS[0], SERVERS[0].destinations[0])])
        ipvs.edit_destinations([(SERVERS[0], IpvsDestination(address=ip_address("10.244.0.3"), port=8080, weight=5))])
        changed = ipvs.server(SERVERS[0].key)
        wrong += [] if changed and [each.weight for each in changed.destinations] == [5] else [f"{changed}"]
        ipvs.set_timeouts(IpvsTimeouts(tcp=100))
        wrong += [] if ipvs.timeouts().tcp == 100 else ["the timeout is another one"]
        ipvs.delete(SERVERS)
        wrong += [f"left: {each}" for each in ipvs.servers()]
        wrong += [] if ipvs.server(SERVERS[0].key) is None else ["a deleted virtual server is found"]
    return wrong


def sets(netns: NetNs) -> list[str]:
    with closing(IpSets(netns)) as ipset:
        ipset.create(SETS)
        found = {each.name: each for each in ipset.sets()}
        wrong = [each.name for each in SETS if found[each.name] != each]
        ipset.delete(SETS[2], SETS[2].members)
        ipset.delete(SETS[2], SETS[2].members)
        addresses = found["ADDRESSES"]
        ipset.delete(addresses, addresses.members)
        left = {each.name: len(each.members) for each in ipset.sets()}
        wrong += [] if (left["FRONTENDS"], left["ADDRESSES"]) == (0, 0) else [f"{left}"]
        ipset.destroy(each.name for each in SETS)
        return wrong + [f"left: {each.name}" for each in ipset.sets()]


def main() -> None:
    netns = NetNs("the guest's", os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC))
    sys.stdout.write(json.dumps([*virtual_servers(netns), *sets(netns)]) + "\n")


if __name__ == "__main__":
    main()
