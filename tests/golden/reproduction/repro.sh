#!/bin/sh
# case.lab.yaml:2:1: FAIL: a pod reaches echo
#   sender (10.244.0.12) to Service default/echo by its clusterIP, dialling
#   10.96.1.1:80: 1 flow of TCP by connect
#
#                          expected                 observed
#   fail          outcome  delivered                lost
#   inconclusive  reply    from 10.96.1.1:80        none
#   inconclusive  source   preserved (10.244.0.12)  none
#
#   outcome: nothing of it was seen again after it left
#
#   the packet, hop by hop (* changed since the hop before):
#     hop                 packet   from               to
#     sender eth0 out     request  10.244.0.12:40000  10.96.1.1:80
#     expected, not seen  request  10.244.0.12        a pod
#     the sender's socket: timeout
#
#   why: it was lost behind sender: seen to leave by eth0, addressed to
#        10.96.1.1:80, and to come in at no node.
#
#   reproduce: proxylab run case.lab.yaml --probe 'a pod reaches echo'
#
# This script shows it again without proxylab: it rebuilds the wire and the rules in
# namespaces of its own, sends the packets, and tells what became of them. Nothing
# outside is touched, and with the script everything is gone.
#
#   sh repro.sh          rebuild, send, tell; exit 1 if the failure shows, 0 if not,
#                        2 if the case could not be rebuilt
#   sh repro.sh shell    the same, then a shell inside, for a look around:
#                        nsenter --net=/run/netns/NAME COMMAND …
#
# Needs unshare and nsenter (util-linux), ip and bridge (iproute2), iptables-legacy-restore
# and python3; root, or the right to make user namespaces.

set -eu

# --- A sandbox: user, network, mount and pid namespaces of its own.

if [ "${INSIDE-}" != yes ]; then
    user=''
    [ "$(id -u)" = 0 ] || user='--user --map-root-user'
    # shellcheck disable=SC2086
    INSIDE=yes exec unshare $user --net --mount --pid --fork --kill-child --propagation private sh "$0" "$@"
fi
trap '[ "${built-}" = yes ] || { echo "the case could not be rebuilt" >&2; exit 2; }' EXIT
mount -t tmpfs none /run
mkdir /run/netns /run/case

inside() { # NAMESPACE COMMAND…
    name=$1
    shift
    nsenter --net="/run/netns/$name" "$@"
}

sysctls() { # NAMESPACE…, and a line for each key: path below /proc/sys, value
    cat > /run/case/sysctls
    for name in "$@"; do
        inside "$name" sh -c 'while read -r key value; do
            [ ! -e "/proc/sys/$key" ] || echo "$value" > "/proc/sys/$key"
        done' < /run/case/sysctls
    done
}

# --- The wire: namespaces, their sysctls before any link, links, addresses, routes.

names='fabric router node-a node-b echo-1 sender'
for name in $names; do ip netns add "$name"; done

sysctls echo-1 sender << 'END'
net/ipv4/ip_forward 0
net/ipv4/conf/default/forwarding 0
net/ipv4/conf/all/rp_filter 0
net/ipv4/conf/all/accept_local 0
net/ipv4/conf/all/route_localnet 0
net/ipv4/conf/all/accept_redirects 0
net/ipv4/conf/all/arp_accept 0
net/ipv4/conf/all/arp_announce 0
net/ipv4/conf/all/arp_filter 0
net/ipv4/conf/all/arp_ignore 0
net/ipv4/conf/default/rp_filter 0
net/ipv4/conf/default/accept_local 0
net/ipv4/conf/default/route_localnet 0
net/ipv4/conf/default/accept_redirects 0
net/ipv4/conf/default/arp_accept 0
net/ipv4/conf/default/arp_announce 0
net/ipv4/conf/default/arp_filter 0
net/ipv4/conf/default/arp_ignore 0
net/ipv4/icmp_ratemask 0
net/ipv4/tcp_no_metrics_save 1
net/ipv6/conf/all/disable_ipv6 1
net/ipv6/conf/default/disable_ipv6 1
net/bridge/bridge-nf-call-iptables 0
net/bridge/bridge-nf-call-ip6tables 0
net/bridge/bridge-nf-call-arptables 0
END

sysctls fabric << 'END'
net/ipv4/ip_forward 0
net/ipv6/conf/all/disable_ipv6 1
net/ipv6/conf/default/disable_ipv6 1
net/bridge/bridge-nf-call-iptables 0
net/bridge/bridge-nf-call-ip6tables 0
net/bridge/bridge-nf-call-arptables 0
END

sysctls node-a node-b << 'END'
net/ipv4/ip_forward 1
net/ipv4/conf/default/forwarding 1
net/ipv4/conf/all/rp_filter 0
net/ipv4/conf/all/accept_local 0
net/ipv4/conf/all/route_localnet 0
net/ipv4/conf/all/accept_redirects 0
net/ipv4/conf/all/arp_accept 0
net/ipv4/conf/all/arp_announce 0
net/ipv4/conf/all/arp_filter 0
net/ipv4/conf/all/arp_ignore 0
net/ipv4/conf/all/accept_source_route 0
net/ipv4/conf/all/bc_forwarding 0
net/ipv4/conf/all/ignore_routes_with_linkdown 0
net/ipv4/conf/all/log_martians 0
net/ipv4/conf/all/proxy_arp 0
net/ipv4/conf/all/proxy_arp_pvlan 0
net/ipv4/conf/all/secure_redirects 1
net/ipv4/conf/all/send_redirects 0
net/ipv4/conf/all/shared_media 1
net/ipv4/conf/all/src_valid_mark 0
net/ipv4/conf/default/rp_filter 0
net/ipv4/conf/default/accept_local 0
net/ipv4/conf/default/route_localnet 0
net/ipv4/conf/default/accept_redirects 0
net/ipv4/conf/default/arp_accept 0
net/ipv4/conf/default/arp_announce 0
net/ipv4/conf/default/arp_filter 0
net/ipv4/conf/default/arp_ignore 0
net/ipv4/conf/default/accept_source_route 0
net/ipv4/conf/default/bc_forwarding 0
net/ipv4/conf/default/ignore_routes_with_linkdown 0
net/ipv4/conf/default/log_martians 0
net/ipv4/conf/default/proxy_arp 0
net/ipv4/conf/default/proxy_arp_pvlan 0
net/ipv4/conf/default/secure_redirects 1
net/ipv4/conf/default/send_redirects 0
net/ipv4/conf/default/shared_media 1
net/ipv4/conf/default/src_valid_mark 0
net/ipv4/conf/lo/rp_filter 0
net/ipv4/conf/lo/accept_local 0
net/ipv4/conf/lo/route_localnet 0
net/ipv4/conf/lo/accept_redirects 0
net/ipv4/conf/lo/arp_accept 0
net/ipv4/conf/lo/arp_announce 0
net/ipv4/conf/lo/arp_filter 0
net/ipv4/conf/lo/arp_ignore 0
net/ipv4/conf/lo/accept_source_route 0
net/ipv4/conf/lo/bc_forwarding 0
net/ipv4/conf/lo/ignore_routes_with_linkdown 0
net/ipv4/conf/lo/log_martians 0
net/ipv4/conf/lo/proxy_arp 0
net/ipv4/conf/lo/proxy_arp_pvlan 0
net/ipv4/conf/lo/secure_redirects 1
net/ipv4/conf/lo/send_redirects 0
net/ipv4/conf/lo/shared_media 1
net/ipv4/conf/lo/src_valid_mark 0
net/ipv4/icmp_ratemask 0
net/ipv4/tcp_no_metrics_save 1
net/ipv6/conf/all/disable_ipv6 1
net/ipv6/conf/default/disable_ipv6 1
net/bridge/bridge-nf-call-iptables 1
net/bridge/bridge-nf-call-ip6tables 1
net/bridge/bridge-nf-call-arptables 1
net/netfilter/nf_conntrack_checksum 1
net/netfilter/nf_conntrack_generic_timeout 600
net/netfilter/nf_conntrack_icmp_timeout 30
net/netfilter/nf_conntrack_log_invalid 0
net/netfilter/nf_conntrack_tcp_be_liberal 0
net/netfilter/nf_conntrack_tcp_ignore_invalid_rst 0
net/netfilter/nf_conntrack_tcp_loose 1
net/netfilter/nf_conntrack_tcp_max_retrans 3
net/netfilter/nf_conntrack_tcp_timeout_close 120
net/netfilter/nf_conntrack_tcp_timeout_close_wait 60
net/netfilter/nf_conntrack_tcp_timeout_established 432000
net/netfilter/nf_conntrack_tcp_timeout_fin_wait 120
net/netfilter/nf_conntrack_tcp_timeout_last_ack 30
net/netfilter/nf_conntrack_tcp_timeout_max_retrans 300
net/netfilter/nf_conntrack_tcp_timeout_syn_recv 60
net/netfilter/nf_conntrack_tcp_timeout_syn_sent 120
net/netfilter/nf_conntrack_tcp_timeout_time_wait 120
net/netfilter/nf_conntrack_tcp_timeout_unacknowledged 300
net/netfilter/nf_conntrack_udp_timeout 30
net/netfilter/nf_conntrack_udp_timeout_stream 120
END

sysctls router << 'END'
net/ipv4/ip_forward 1
net/ipv4/conf/default/forwarding 1
net/ipv4/conf/all/rp_filter 0
net/ipv4/conf/all/accept_local 0
net/ipv4/conf/all/route_localnet 0
net/ipv4/conf/all/accept_redirects 0
net/ipv4/conf/all/arp_accept 0
net/ipv4/conf/all/arp_announce 0
net/ipv4/conf/all/arp_filter 0
net/ipv4/conf/all/arp_ignore 0
net/ipv4/conf/all/accept_source_route 0
net/ipv4/conf/all/bc_forwarding 0
net/ipv4/conf/all/ignore_routes_with_linkdown 0
net/ipv4/conf/all/log_martians 0
net/ipv4/conf/all/proxy_arp 0
net/ipv4/conf/all/proxy_arp_pvlan 0
net/ipv4/conf/all/secure_redirects 1
net/ipv4/conf/all/send_redirects 0
net/ipv4/conf/all/shared_media 1
net/ipv4/conf/all/src_valid_mark 0
net/ipv4/conf/default/rp_filter 0
net/ipv4/conf/default/accept_local 0
net/ipv4/conf/default/route_localnet 0
net/ipv4/conf/default/accept_redirects 0
net/ipv4/conf/default/arp_accept 0
net/ipv4/conf/default/arp_announce 0
net/ipv4/conf/default/arp_filter 0
net/ipv4/conf/default/arp_ignore 0
net/ipv4/conf/default/accept_source_route 0
net/ipv4/conf/default/bc_forwarding 0
net/ipv4/conf/default/ignore_routes_with_linkdown 0
net/ipv4/conf/default/log_martians 0
net/ipv4/conf/default/proxy_arp 0
net/ipv4/conf/default/proxy_arp_pvlan 0
net/ipv4/conf/default/secure_redirects 1
net/ipv4/conf/default/send_redirects 0
net/ipv4/conf/default/shared_media 1
net/ipv4/conf/default/src_valid_mark 0
net/ipv4/icmp_ratemask 0
net/ipv4/tcp_no_metrics_save 1
net/ipv4/fib_multipath_hash_policy 1
net/ipv6/conf/all/disable_ipv6 1
net/ipv6/conf/default/disable_ipv6 1
net/bridge/bridge-nf-call-iptables 0
net/bridge/bridge-nf-call-ip6tables 0
net/bridge/bridge-nf-call-arptables 0
END

ip -batch - << 'END'
link add name router netns fabric address 02:dc:f3:6a:e6:0e type veth peer name nodes netns router address 02:8d:15:a9:2c:6b
link add name router-outside netns fabric address 02:55:5f:8d:f8:35 type veth peer name outside netns router address 02:ef:74:c7:87:5c
link add name node-a netns fabric address 02:ff:2c:42:91:84 type veth peer name eth0 netns node-a address 02:12:5a:81:d9:06
link add name node-b netns fabric address 02:dc:26:0f:34:0e type veth peer name eth0 netns node-b address 02:58:17:48:78:b5
link add name echo-1 netns node-a address 02:90:3c:ce:64:f0 type veth peer name eth0 netns echo-1 address 02:cd:42:81:57:5c
link add name sender netns node-a address 02:e7:be:f5:1c:ea type veth peer name eth0 netns sender address 02:cd:64:8b:26:ff
END

# segment fabric
inside fabric ip -batch - << 'END'
link add name nodes address 02:9f:e3:d7:27:cd type bridge
link add name outside address 02:0d:47:7f:fb:88 type bridge
END
inside fabric ip -batch - << 'END'
link set dev lo up
link set dev router master nodes up
link set dev router-outside master outside up
link set dev node-a master nodes up
link set dev node-b master nodes up
link set dev nodes up
link set dev outside up
END

# router router
inside router ip -batch - << 'END'
link set dev lo up
address add 172.18.0.1/16 dev nodes
address add 203.0.113.1/24 dev outside
link set dev nodes up
link set dev outside up
END
inside router ip -batch - << 'END'
route add 10.244.0.0/24 via 172.18.0.2 dev nodes
route add 10.244.1.0/24 via 172.18.0.3 dev nodes
route add 10.96.0.0/16 via 172.18.0.2 dev nodes
END
inside router ip -batch - << 'END'
rule add from all lookup 50 priority 100
END

# node node-a
inside node-a ip -batch - << 'END'
link set dev lo up
address add 172.18.0.2/16 dev eth0
address add 10.244.0.1/32 dev echo-1
address add 10.244.0.1/32 dev sender
link set dev eth0 up
link set dev echo-1 up
link set dev sender up
neigh replace 10.244.0.10 lladdr 02:cd:42:81:57:5c dev echo-1 nud permanent
neigh replace 10.244.0.12 lladdr 02:cd:64:8b:26:ff dev sender nud permanent
END
inside node-a ip -batch - << 'END'
route add 0.0.0.0/0 via 172.18.0.1 dev eth0
route add 10.244.1.0/24 via 172.18.0.3 dev eth0
route add 10.244.0.10/32 dev echo-1
route add 10.244.0.12/32 dev sender
END

# node node-b
inside node-b ip -batch - << 'END'
link set dev lo up
address add 172.18.0.3/16 dev eth0
link set dev eth0 up
END
inside node-b ip -batch - << 'END'
route add 0.0.0.0/0 via 172.18.0.1 dev eth0
route add 10.244.0.0/24 via 172.18.0.2 dev eth0
END

# pod echo-1
inside echo-1 ip -batch - << 'END'
link set dev lo up
address add 10.244.0.10/32 dev eth0
link set dev eth0 up
neigh replace 10.244.0.1 lladdr 02:90:3c:ce:64:f0 dev eth0 nud permanent
END
inside echo-1 ip -batch - << 'END'
route add 10.244.0.1/32 dev eth0
route add 0.0.0.0/0 via 10.244.0.1 dev eth0
END

# pod sender
inside sender ip -batch - << 'END'
link set dev lo up
address add 10.244.0.12/32 dev eth0
link set dev eth0 up
neigh replace 10.244.0.1 lladdr 02:e7:be:f5:1c:ea dev eth0 nud permanent
END
inside sender ip -batch - << 'END'
route add 10.244.0.1/32 dev eth0
route add 0.0.0.0/0 via 10.244.0.1 dev eth0
END

# --- The rules, as they stood after the probe, without counters.

inside node-a iptables-legacy-restore << 'END'
*nat
:PREROUTING ACCEPT [0:0]
:KUBE-SERVICES - [0:0]
-A PREROUTING -m comment --comment "kubernetes service portals" -j KUBE-SERVICES
-A KUBE-SERVICES -m conntrack --ctstate INVALID -j DROP
-A KUBE-SERVICES -d 10.96.1.1/32 -p tcp -j DNAT --to-destination 10.244.0.10:8080
COMMIT
END

inside node-b iptables-legacy-restore << 'END'
*nat
:PREROUTING ACCEPT [0:0]
:KUBE-SERVICES - [0:0]
-A PREROUTING -m comment --comment "kubernetes service portals" -j KUBE-SERVICES
-A KUBE-SERVICES -m conntrack --ctstate INVALID -j DROP
-A KUBE-SERVICES -d 10.96.1.1/32 -p tcp -j DNAT --to-destination 10.244.0.10:8080
COMMIT
END

# --- Until every link carries: packets that are sent before are lost.

carrying() {
    for name in $names; do
        if inside "$name" ip -o link show up type veth | grep -qv 'state UP'; then return 1; fi
        if inside "$name" bridge link show | grep -q 'state disabled'; then return 1; fi
    done
}
tries=0
until carrying; do
    tries=$((tries + 1))
    [ "$tries" -lt 100 ] || { echo 'a link does not carry' >&2; exit 2; }
    sleep 0.05
done
built=yes

# --- The probe: what is sent and expected, and the program that does it.

cat > /run/case/case.json << 'END'
{
 "name": null,
 "version": 4,
 "protocol": "TCP",
 "sender": {
  "name": "sender",
  "namespace": "sender",
  "device": "eth0",
  "address": "10.244.0.12",
  "addresses": [
   "10.244.0.12"
  ]
 },
 "dialled": "10.96.1.1",
 "port": 80,
 "flows": 1,
 "payload": 0,
 "ports": [
  40000
 ],
 "pods": [
  {
   "name": "echo-1",
   "namespace": "echo-1",
   "device": "eth0",
   "address": "10.244.0.10"
  },
  {
   "name": "sender",
   "namespace": "sender",
   "device": "eth0",
   "address": "10.244.0.12"
  }
 ],
 "listeners": [
  {
   "namespace": "echo-1",
   "name": "echo-1",
   "protocol": "TCP",
   "address": "",
   "port": 8080,
   "says": []
  }
 ],
 "http": null,
 "nodes": [],
 "remembered": [],
 "conntrack": null,
 "expect": {
  "outcome": "delivered",
  "backends": [],
  "source": "10.244.0.12",
  "at": [],
  "hit all": false,
  "shares": {},
  "sticky": false,
  "reply": "translated"
 }
}
END

cat > /run/case/listeners.py << 'END'
"""Answer for the pods of a case, and for whoever else answered, by the kernel's own sockets.

Owns: the listening sockets of TCP and UDP, and what they say.
Must not: need anything but python3 and its standard library, or know whether an answer is right.
"""

import contextlib
import functools
import ipaddress
import selectors
import socket

from netns import enter

PKTINFO = {4: (socket.IPPROTO_IP, 8), 6: (socket.IPPROTO_IPV6, 50)}  # IP_PKTINFO; IPV6_PKTINFO
ASK_PKTINFO = {4: (socket.IPPROTO_IP, 8), 6: (socket.IPPROTO_IPV6, 49)}  # IP_PKTINFO; IPV6_RECVPKTINFO


class Listeners:
    """Everybody who listens, each of whom answers by its name. ``got`` is told of each request."""

    def __init__(self, case, waiting, got):
        self.case, self.waiting, self.got = case, waiting, got
        self.family = socket.AF_INET6 if case["version"] == 6 else socket.AF_INET
        self.kind = socket.SOCK_STREAM if case["protocol"] == "TCP" else socket.SOCK_DGRAM
        self.talking = {}

    def listen(self):
        """Open the sockets of the pods."""
        for each in self.case["listeners"] if self.case["protocol"] in ("TCP", "UDP") else ():
            enter(each["namespace"])
            sock = socket.socket(self.family, self.kind | socket.SOCK_NONBLOCK)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if self.family == socket.AF_INET6:
                sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            sock.bind((each["address"] or ("::" if self.family == socket.AF_INET6 else "0.0.0.0"), each["port"]))
            if self.kind == socket.SOCK_STREAM:
                sock.listen(1024)
            else:
                sock.setsockopt(*ASK_PKTINFO[self.case["version"]], 1)
            do = self.accept if self.kind == socket.SOCK_STREAM else self.answer
            self.waiting.register(sock, selectors.EVENT_READ, functools.partial(do, each))

    def accept(self, listener, sock):
        """Take connections; each says its token when it is established, and gets its answer."""
        with contextlib.suppress(BlockingIOError):
            while True:
                made, peer = sock.accept()
                made.setblocking(False)
                heard = functools.partial(self.converse, listener, peer)
                self.waiting.register(made, selectors.EVENT_READ, heard)
                self.talking[made] = listener["name"]

    def hang_up(self, names):
        """Close the connections of some pods, as a program does that ends."""
        for sock in [sock for sock, name in self.talking.items() if name in names]:
            self.close(sock)

    def close(self, sock):
        """Close a connection."""
        self.talking.pop(sock, None)
        self.waiting.unregister(sock)
        sock.close()

    def converse(self, listener, peer, sock):
        """Answer every token, or close with the other end."""
        try:
            data = sock.recv(65535)
        except OSError:
            data = b""
        if self.case["http"] and data:
            self.tell(listener, data, peer, sock)
            return
        for line in data.split(b"\n"):
            if line.startswith(b"proxylab probe "):
                self.got(listener, line, peer, sock.getsockname())
                with contextlib.suppress(OSError):
                    sock.send(b"proxylab reply " + line[15:48] + b" from " + listener["name"].encode() + b"\n")
        if not data:
            self.close(sock)

    def tell(self, listener, data, peer, sock):
        """Answer a request by HTTP and close: as it was answered in the lab, where that was no pod."""
        from hypertext import response, token_in  # noqa: PLC0415 - stands in scripts for HTTP

        asked = token_in(data)
        if asked:
            self.got(listener, asked, peer, sock.getsockname())
            said = listener["says"][int(asked[40:48], 16)] if listener["says"] else (200, None)
            sock.send(response(*said, listener["name"]) if said else b"")
        self.close(sock)

    def answer(self, listener, sock):
        """Answer datagrams, each from the address that was asked."""
        with contextlib.suppress(BlockingIOError):
            while True:
                data, control, _, peer = sock.recvmsg(65535, 256)
                if not data.startswith(b"proxylab probe "):
                    continue
                asked = control[0][2][:16] if self.case["version"] == 6 else control[0][2][8:12]
                self.got(listener, data, peer, (str(ipaddress.ip_address(asked)), listener["port"]))
                back = asked + b"\0" * 4 if self.case["version"] == 6 else b"\0" * 4 + asked + b"\0" * 4
                about = [(*PKTINFO[self.case["version"]], back)]
                said = b"proxylab reply " + data[15:48] + b" from " + listener["name"].encode()
                with contextlib.suppress(OSError):  # nothing leaves a pod that is gone
                    sock.sendmsg([said], about, 0, peer)
END

cat > /run/case/netns.py << 'END'
"""Be in a namespace of `ip netns`.

Owns: `enter`.
Must not: need anything but python3 and its standard library, or make a namespace.
"""

import ctypes
import os

NEWNET = 0x40000000  # CLONE_NEWNET of sched.h


def enter(namespace):
    """Let this process be in a namespace; a socket made there stays there."""
    libc = ctypes.CDLL(None, use_errno=True)
    fd = os.open(f"/run/netns/{namespace}", os.O_RDONLY)
    if libc.setns(fd, NEWNET):
        raise OSError(ctypes.get_errno(), f"cannot enter {namespace}")
    os.close(fd)
END

cat > /run/case/outcome.py << 'END'
"""What became of the flows of a probe, held against what was expected.

Owns: the fate of a flow, and a line for each expectation that did not come true.
Must not: need anything but python3 and its standard library, or touch sockets.
"""

import collections

from packets import end


def is_heard(seen, place):
    """Whether this is an answer of some kind, as the sender got it."""
    return seen.place == place and not seen.outgoing and seen.what != "request"


def arrivals(case, seen, flow):
    """The pods that a flow reached under their own address, and the packets."""
    pods = {(each["namespace"], each["address"]): each["name"] for each in case["pods"] if each["device"] != "stack"}
    pods |= {(each["name"], each["address"]): each["name"] for each in case["pods"] if each["device"] == "stack"}
    coming = [each for each in seen if each.flow == flow and not each.outgoing and each.what == "request"]
    found = [(pods.get((each.place, bare(each.destination))), each) for each in coming]
    return [(name, each) for name, each in found if name]


def bare(written):
    """The address of an end."""
    return written.rpartition(":")[0].strip("[]") if written.count(":") == 1 or "]" in written else written


def judge(case, seen):
    """A line for each thing that is not as it was expected, with a flow that shows it."""
    expect, sender, hits = case["expect"], case["sender"]["namespace"], collections.defaultdict(collections.Counter)
    for flow in range(case["flows"]):
        reached = arrivals(case, seen, flow)
        heard = [each for each in seen if each.flow == flow and is_heard(each, sender)]
        hits[client_of(case, flow)].update({name for name, _ in reached})
        if expect["at"]:
            yield from ((flow, line) for line in judge_end(case, seen, flow))
        if expect["outcome"] == "untranslated":
            yield from ((flow, line) for line in judge_passing(case, seen, flow, heard))
            continue
        outcome = fate(reached, heard)
        if not expect["outcome"]:
            continue
        if outcome != expect["outcome"]:
            yield flow, f"expected {expect['outcome']}, seen {outcome}"
            continue
        if outcome == "delivered":
            yield from ((flow, line) for line in judge_delivery(case, flow, reached, heard))
    yield from judge_shares(case, hits)


def fate(reached, heard):
    """What became of one flow, by what the pods and the sender saw."""
    what = [each.what for each in heard]
    if "reset" in what:
        return "refused"
    if "port unreachable" in what and not reached:
        return "rejected"
    turned_away = [each for each in what if each != "reply"]
    if turned_away:
        return f"answered by {turned_away[0]}"
    return "delivered" if len({name for name, _ in reached}) == 1 else "dropped" if not reached else "multiplied"


def judge_passing(case, seen, flow, heard):
    """What is wrong with a flow that was to be left as it was: it has to go on so, and nowhere as anything else."""
    dialled = end(case["dialled"], case["port"])
    requests = [each for each in seen if each.flow == flow and each.what == "request"]
    beyond = [each for each in requests if each.place != case["sender"]["namespace"]]
    changed = [each for each in beyond if each.destination != dialled]
    if changed:
        yield f"expected to stay addressed to {dialled}, seen for {changed[0].destination} at {changed[0].place}"
    elif not any(each.outgoing or "/" not in each.place for each in beyond):
        yield "expected to leave a node as it was sent, not seen to"
    turned = [each.what for each in heard if not each.what.startswith("ICMP")]
    if turned:
        yield f"expected untranslated, answered by {turned[0]}"


def client_of(case, flow):
    """The address that a flow leaves from."""
    addresses = case["sender"]["addresses"]
    return addresses[flow % len(addresses)]


def judge_end(case, seen, flow):
    """Where a flow was seen last, if that is not where it must end."""
    namespace, device, words = case["expect"]["at"]
    hops = [each.place for each in seen if each.flow == flow and each.what == "request"]
    last = hops[-1] if hops else "nowhere"
    if last.partition("/")[0] != namespace or (device and last != f"{namespace}/{device}"):
        yield f"expected to end at {words}, seen last at {last}"


def judge_delivery(case, flow, reached, heard):
    """What is wrong with a flow that reached a pod: which pod, from which source, answered from where."""
    expect = case["expect"]
    source = client_of(case, flow) if expect["source"] == "preserved" else expect["source"]
    for name, packet in reached[:1]:
        if expect["backends"] and name not in expect["backends"]:
            yield f"expected at {' or '.join(expect['backends'])}, seen at {name}"
        if source and bare(packet.source) != source:
            yield f"expected from {source}, seen from {bare(packet.source)} at {name}"
    dialled = end(case["dialled"], case["port"])
    if expect["reply"] == "untranslated" and reached:
        dialled = reached[0][1].destination
    if not heard:
        yield f"expected a reply from {dialled}, seen none"
    elif heard[0].source != dialled:
        yield f"expected a reply from {dialled}, seen from {heard[0].source}"


def judge_shares(case, by_client):
    """Which backends got too much, too little or nothing, and which clients were not kept by one."""
    hits = sum(by_client.values(), collections.Counter())
    names, flows = case["expect"]["backends"] or [], sum(hits.values())
    for name in names if case["expect"]["hit all"] else []:
        if not hits[name]:
            yield None, f"expected at {name} too, seen never in {flows} flows"
    for name, share in case["expect"]["shares"].items():
        due = flows * share
        if abs(hits[name] - due) > 0.3 * due:
            yield None, f"expected about {due:.0f} flows at {name}, seen {hits[name]}"
    for client, reached in by_client.items() if case["expect"]["sticky"] else ():
        if len(reached) > 1:
            yield None, f"expected all flows of {client} at one backend, seen at {' and '.join(sorted(reached))}"
END

cat > /run/case/packets.py << 'END'
"""What the packets of a probe look like, and which flow of it each belongs to.

Owns: tokens, addresses as one writes them, and reading Ethernet's payload.
Must not: need anything but python3 and its standard library, or touch sockets.
"""

import ipaddress
import struct

PORT_UNREACHABLE = {4: (3, 3), 6: (1, 4)}
ICMP_ERRORS = {4: (3, 11, 12), 6: (1, 3, 4)}
UNKNOWN_PROTOCOL = (3, 2), (4, 1)  # of ICMP and of ICMPv6
ECHOES = {8: "request", 0: "reply", 128: "request", 129: "reply"}
SYN, RST, ACK = 2, 4, 16
FRAGMENT = 44  # the extension header of IPv6 (RFC 8200, section 4.5)


def token(word, flow):
    """What a request or an answer begins with: 48 bytes, of which the last eight are the number of the flow."""
    return f"proxylab {word} {0:016x} {flow:016x}".encode()


def end(address, port):
    """An address with its port, as one writes it."""
    if not port:
        return str(address)
    return f"[{address}]:{port}" if ":" in str(address) else f"{address}:{port}"


class Packet:
    """One IP packet: addresses, ports, and what tells its flow. Raises ValueError for what is none."""

    def __init__(self, data):
        self.version = data[0] >> 4 if data else 0
        if self.version == 4 and len(data) >= 20:
            self.protocol, head = data[9], (data[0] & 15) * 4
            addresses = data[12:16], data[16:20]
        elif self.version == 6 and len(data) >= 40:
            self.protocol, head = data[6], 40
            if self.protocol == FRAGMENT and len(data) >= 48 and not struct.unpack_from("!H", data, 42)[0] >> 3:
                self.protocol, head = data[40], 48  # the first fragment bears what tells the flow
            addresses = data[8:24], data[24:40]
        else:
            raise ValueError
        self.source, self.destination = map(ipaddress.ip_address, addresses)
        self.body = data[head:]
        if len(self.body) < 8:
            raise ValueError
        self.ports = struct.unpack("!HH", self.body[:4]) if self.protocol in (6, 17, 132) else (0, 0)

    def ends(self):
        """Whence and whither."""
        return end(self.source, self.ports[0]), end(self.destination, self.ports[1])


class Matcher:
    """Tells which flow a packet belongs to, whatever was done to its addresses and ports.

    A datagram bears its flow in its first bytes. A SYN bears it in its sequence number, which is learnt where it leaves
    the sender; the answers acknowledge that number plus one.
    """

    def __init__(self, ports):
        self.learnt, self.ports = {}, ports

    def match(self, packet, leaving):
        """Flow and kind of a packet; None for any other packet."""
        if packet.protocol == 17:
            return self._datagram(packet.body[8:])
        if packet.protocol == 6 and len(packet.body) >= 14:
            return self._segment(packet.body, leaving)
        if packet.protocol == 132 and len(packet.body) >= 13:
            return self._chunk(packet.body, leaving)
        if packet.protocol in (1, 58) and packet.body[0] in ECHOES:
            found = self._datagram(packet.body[8:])
            return (found[0], ECHOES[packet.body[0]]) if found and found[1] == "request" else None
        if packet.protocol in (1, 58) and packet.body[0] in ICMP_ERRORS[packet.version]:
            try:
                quoted = Packet(packet.body[8:])
            except ValueError:
                return None
            about = self.match(quoted, False)
            if about is None and quoted.protocol == 6 and quoted.ports[0] in self.ports:
                about = self.ports[quoted.ports[0]], "request"
            kind = tuple(packet.body[:2])
            if quoted.protocol == 132 and kind in UNKNOWN_PROTOCOL:
                return None  # a pod's kernel without SCTP says so, and is answered for
            name = "port unreachable" if kind == PORT_UNREACHABLE[packet.version] else f"ICMP {kind[0]}/{kind[1]}"
            return (about[0], name) if about and about[1] == "request" else None
        return None

    @staticmethod
    def _datagram(payload):
        words = payload[:48].split()
        if len(words) < 4 or words[0] != b"proxylab" or words[1] not in (b"probe", b"reply"):  # a fence, or another's
            return None
        return int(words[3][-8:], 16), "request" if words[1] == b"probe" else "reply"

    def _chunk(self, body, leaving):
        """An INIT bears its flow in its initiate tag, and the answers in their header."""
        (verification,), kind = struct.unpack("!I", body[4:8]), {1: "request", 2: "reply", 6: "reset"}.get(body[12])
        if kind == "request":
            (tag,) = struct.unpack("!I", body[16:20])
            if leaving:
                self.learnt.setdefault(tag, len(self.learnt))
            flow = self.learnt.get(tag)
        else:
            flow = self.learnt.get(verification)
        return None if flow is None or kind is None else (flow, kind)

    def _segment(self, body, leaving):
        sequence, acknowledged = struct.unpack("!II", body[4:12])
        flags = body[13] & (SYN | RST | ACK)
        if flags == SYN:
            if leaving:
                self.learnt.setdefault(sequence, len(self.learnt))
            flow = self.learnt.get(sequence)
        else:
            flow = self.learnt.get((acknowledged - 1) & 0xFFFFFFFF)
        kind = {SYN: "request", SYN | ACK: "reply", RST | ACK: "reset"}.get(flags)
        return None if flow is None or kind is None else (flow, kind)
END

cat > /run/case/play.py << 'END'
"""Send the packets of one probe, answer for its pods, and say whether what was expected came true.

Owns: one run of one probe in a wire that stands, and its words.
Must not: need anything but python3 and its standard library, or make what it runs in.

Usage: python3 play.py CASE [FRAMES]. CASE is a JSON file, FRAMES has one frame in hexadecimal digits on each line;
without it, the kernel's own sockets send. The namespaces are those of `ip netns`.
Needs python3's standard library and the right to enter the namespaces. Exits 0 if what was expected came true, 1 if
not, and 2 if nothing could be sent.
"""

import collections
import contextlib
import errno
import functools
import json
import resource
import selectors
import socket
import struct
import sys
import time

from listeners import Listeners
from netns import enter
from outcome import is_heard, judge
from packets import Matcher, Packet, end, token

ALL = 0x0003  # ETH_P_ALL of if_ether.h
OUTGOING = 4  # PACKET_OUTGOING of if_packet.h
RCVBUFFORCE, TIMESTAMP = 33, 35  # SO_RCVBUFFORCE, SO_TIMESTAMPNS of asm-generic/socket.h
AT_ONCE = 16  # flows that are sent before everybody is heard: no tap may overflow
BUFFER = 8 << 20
PATIENCE, SILENCE = 5.0, 1.0  # seconds: in all, and without any packet

Seen = collections.namedtuple("Seen", "at flow place outgoing what source destination")


# The run.


class Run:
    """One run of a case: its taps, its listeners, what sends, and what was seen.

    Where a namespace's own programs send or get, no device shows what they see: rules come in between. There the
    programs' own sockets tell, and the devices are watched only to show the way.
    """

    def __init__(self, case, frames):
        self.case, self.sender = case, case["sender"]
        self.family = socket.AF_INET6 if case["version"] == 6 else socket.AF_INET
        self.kind = socket.SOCK_STREAM if case["protocol"] == "TCP" else socket.SOCK_DGRAM
        self.own = {each["namespace"] for each in [self.sender, *case["pods"]] if each["device"] == "stack"}
        self.crossed = self.own | set(case["nodes"])
        self.matcher, self.seen, self.flow_of = Matcher(self.own_ports()), [], {}
        self.finished, self.failed, self.unknown, self.unheard, self.answers = 0, [], [], [], {}
        self.crafted = bool(frames)
        self.waiting = selectors.DefaultSelector()
        self.mouths = {}
        if not frames:
            self.sending = self.echo() if case["protocol"] == "ICMP" else self.dial()
        else:
            self.sending = self.speak_raw(frames) if self.sender["device"] == "stack" else self.frames(frames)

    def own_ports(self):
        """The flow of each source port, where a refused SYN is seen in an ICMP error and nowhere else."""
        own = self.sender["namespace"] in self.own
        return {port: flow for flow, port in enumerate(self.case["ports"])} if own else {}

    def play(self):
        """Send everything, answer, and return what was seen, in order."""
        self.watch()
        Listeners(self.case, self.waiting, self.got).listen()
        self.listen_raw()
        self.remember()
        more, began, last = True, time.monotonic(), time.monotonic()
        while more or (time.monotonic() < min(began + PATIENCE, last + SILENCE) and not self.settled()):
            before = len(self.seen)
            for _ in range(AT_ONCE):
                more = next(self.sending, None) is not None
            for key, _ in self.waiting.select(0 if more else 0.05):
                key.data(key.fileobj)
            if more or len(self.seen) > before:
                last = time.monotonic()
        while ready := self.waiting.select(0.05):  # what the last answers have set off
            if time.monotonic() > began + PATIENCE + SILENCE:
                break
            for key, _ in ready:
                key.data(key.fileobj)
        for each in self.unknown:  # a pod's tap may have been read before the sender's, where numbers are learnt
            self.take(*each)
        for each in self.unheard:
            self.overhear(*each)
        self.resolve()
        return sorted(self.seen, key=lambda each: each.at)  # those of one time in the order in which they were read

    def remember(self):
        """Let the nodes remember flows as they did, which no rule is asked about."""
        for entry in self.case["remembered"]:
            from memory import remember  # noqa: PLC0415 - stands in the scripts that need it

            enter(entry["namespace"])
            with contextlib.suppress(FileExistsError):  # of what was said twice
                remember(entry)

    def settled(self):
        """Whether every flow has been answered or turned away; of its own flows a socket knows best."""
        if self.flow_of:
            return self.finished == len(self.case["ports"])
        here = self.sender["namespace"]
        return len({each.flow for each in self.seen if is_heard(each, here)}) == self.case["flows"]

    def note(self, flow, place, outgoing, what, ends):
        """Take down what a program did or got."""
        now = divmod(time.time_ns(), 10**9)
        self.seen.append(Seen(now, flow, place, outgoing, what, *ends))

    # Taps.

    def watch(self):
        """Open a packet socket at the sender's device and at every pod's; where programs are, at all devices."""
        for namespace, device in sorted(
            {(each["namespace"], each["device"]) for each in [self.sender, *self.case["pods"]]}
            | {(node, "stack") for node in self.case["nodes"]}
        ):
            enter(namespace)
            sock = socket.socket(socket.AF_PACKET, socket.SOCK_RAW | socket.SOCK_NONBLOCK, socket.htons(ALL))
            sock.setsockopt(socket.SOL_SOCKET, TIMESTAMP, 1)
            with contextlib.suppress(PermissionError):
                sock.setsockopt(socket.SOL_SOCKET, RCVBUFFORCE, BUFFER)
            if device != "stack":
                sock.bind((device, ALL))
            here = (namespace, device) == (self.sender["namespace"], self.sender["device"])
            self.waiting.register(sock, selectors.EVENT_READ, functools.partial(self.look, namespace, here))

    def look(self, namespace, here, sock):
        """Take down what waits at one tap and belongs to the probe."""
        while True:
            try:
                data, control, _, about = sock.recvmsg(65535, 256)
            except OSError:  # nothing waits; or first, that the device of a link that is cut is down
                return
            outgoing = about[2] == OUTGOING
            try:
                packet = Packet(data[14:])
            except ValueError:
                continue
            place = f"{namespace}/{about[0]}" if namespace in self.crossed else namespace
            at = struct.unpack("@qq", control[0][2])
            if not self.take(at, place, outgoing, packet, here and outgoing):
                self.unknown.append((at, place, outgoing, packet))
            if packet.protocol == 132 and not outgoing:
                self.associate(namespace, packet, data, sock)

    def associate(self, namespace, packet, data, sock):
        """Answer an INIT that came to a pod for the pod's own address."""
        from associations import answer  # noqa: PLC0415 - stands in scripts for SCTP

        if (namespace, str(packet.destination)) in {(each["namespace"], each["address"]) for each in self.case["pods"]}:
            reply = answer(data, {each["port"] for each in self.case["listeners"] if each["namespace"] == namespace})
            if reply:
                sock.send(reply)

    def take(self, at, place, outgoing, packet, leaving=False):
        """Take down a packet if it is the probe's."""
        matched = self.matcher.match(packet, leaving)
        if matched:
            self.seen.append(Seen(at, matched[0], place, outgoing, matched[1], *packet.ends()))
        return matched

    # Of programs of nodes.

    def listen_raw(self):
        """Hear what programs of nodes get of protocols for which there is no socket, and of SYNs that are crafted.

        A socket that listens tells nobody of those: the sender's own kernel resets what it has not begun.
        """
        if self.case["protocol"] not in ("SCTP", "ICMP") and not (self.crafted and self.case["protocol"] == "TCP"):
            return
        from raw import Mouth  # noqa: PLC0415 - stands in scripts that need it

        ends = {(each["namespace"], each["address"]) for each in [self.sender, *self.case["pods"]]}
        for namespace, address in sorted(each for each in ends if each[0] in self.own):
            enter(namespace)
            mouth = self.mouths[namespace, address] = Mouth(self.case["protocol"], address)
            for sock in mouth.ears:
                self.waiting.register(sock, selectors.EVENT_READ, functools.partial(self.hear_raw, namespace, mouth))

    def hear_raw(self, namespace, mouth, sock):
        """Take down what came to a node itself."""
        for packet in map(Packet, mouth.read(sock)):
            now = divmod(time.time_ns(), 10**9)
            if not self.overhear(namespace, packet, now):
                self.unheard.append((namespace, packet, now))

    def overhear(self, namespace, packet, at):
        """Take down a packet that came to a node itself, if it is the probe's. Whether it is."""
        ports = {each["port"]: each["name"] for each in self.case["listeners"] if each["namespace"] == namespace}
        flow, what = self.matcher.match(packet, False) or (None, "")
        place = ports.get(packet.ports[1], namespace) if what == "request" else namespace
        if what == "request" or (what and namespace == self.sender["namespace"]):
            self.seen.append(Seen(at, flow, place, False, what, *packet.ends()))
        return flow is not None

    def got(self, listener, data, peer, asked):
        """Take down what a program of a node got: no device shows it as it came to the program."""
        if listener["namespace"] in self.own:
            flow = int(data[40:48], 16)
            self.note(flow, listener["name"], False, "request", (end(*peer[:2]), end(*asked[:2])))

    # Senders.

    def frames(self, lines):
        """Send the frames of the probe, as they left in the lab."""
        enter(self.sender["namespace"])
        with socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0) as sock:
            sock.bind((self.sender["device"], 0))
            for line in lines:
                yield sock.send(bytes.fromhex(line))

    def speak_raw(self, lines):
        """Send the packets of a node's own program, which its rules are asked about first."""
        mouth = self.mouths[self.sender["namespace"], self.sender["address"]]
        for flow, packet in enumerate(Packet(bytes.fromhex(line)[14:]) for line in lines):
            self.matcher.match(packet, True)
            self.note(flow, self.sender["namespace"], True, "request", packet.ends())
            try:
                mouth.send(packet)
            except OSError as error:
                print(f"flow {flow}: the sender's own kernel refused to send: {error.strerror}")
            yield True

    def echo(self):
        """Ask by echo requests of this script's own making; the kernel cuts them where they are too long."""
        from raw import Mouth, echo_request  # noqa: PLC0415 - stands in scripts that need it

        here, address = self.sender["namespace"], self.sender["address"]
        enter(here)
        mouth = self.mouths.get((here, address)) or Mouth("ICMP", address)
        for flow, port in enumerate(self.case["ports"]):
            if here in self.own:
                self.note(flow, here, True, "request", (end(address, 0), end(self.case["dialled"], 0)))
            words = token("probe", flow) + b"." * self.case["payload"]
            try:
                mouth.ears[0].sendto(
                    echo_request(self.case["version"], port or flow + 1, words), (self.case["dialled"], 0)
                )
            except OSError as error:
                print(f"flow {flow}: the sender's own kernel refused to send: {error.strerror}")
            yield True

    def dial(self):
        """Dial once from each source port."""
        for flow, port in enumerate(self.case["ports"]):
            enter(self.sender["namespace"])
            sock = socket.socket(self.family, self.kind | socket.SOCK_NONBLOCK)
            sock.bind((self.sender["addresses"][flow % len(self.sender["addresses"])], port))
            ends = end(*sock.getsockname()[:2]), end(self.case["dialled"], self.case["port"])
            self.flow_of[sock] = flow, ends
            if self.sender["namespace"] in self.own:
                self.note(flow, self.sender["namespace"], True, "request", ends)
            try:
                sock.connect((self.case["dialled"], self.case["port"]))
            except BlockingIOError:
                pass
            except OSError as error:
                print(f"flow {flow}: the sender's own kernel refused to send: {error.strerror}")
            self.waiting.register(sock, selectors.EVENT_WRITE, self.speak)
            yield True

    def speak(self, sock):
        """Say the token, once the connection stands; a datagram leaves at once."""
        flow, (here, there) = self.flow_of[sock]
        failed = sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if not failed:
            try:
                sock.send(self.words(flow))
            except OSError as error:
                failed = error.errno
        if failed:
            self.fail(sock, failed)
            return
        if self.kind == socket.SOCK_STREAM and self.sender["namespace"] in self.own:
            self.note(flow, self.sender["namespace"], False, "reply", (there, here))
        self.waiting.modify(sock, selectors.EVENT_READ, self.hear)

    def words(self, flow):
        """What a flow says: its token, by HTTP where that is asked for."""
        if self.case["http"]:
            from hypertext import request  # noqa: PLC0415 - stands in scripts for HTTP

            return request(token("probe", flow))
        return token("probe", flow) + b"." * self.case["payload"] + b"\n"

    def hear(self, sock):
        """Take what comes back; by HTTP, all of it."""
        flow, (here, there) = self.flow_of[sock]
        try:
            heard = sock.recv(65535)
        except OSError as error:
            self.fail(sock, error.errno)
            return
        self.answers[flow] = self.answers.get(flow, b"") + heard
        if self.case["http"] and heard:
            return
        if self.kind == socket.SOCK_DGRAM and self.sender["namespace"] in self.own:
            self.note(flow, self.sender["namespace"], False, "reply", (there, here))
        self.finished += 1
        self.waiting.unregister(sock)

    def fail(self, sock, number):
        """Keep for later what a socket was told: devices may show by whom."""
        self.finished += 1
        self.waiting.unregister(sock)
        self.failed.append((*self.flow_of[sock], number))

    def resolve(self):
        """Take down what the sockets of a namespace's own programs were told: whether by ICMP, the devices show."""
        for flow, (here, there), number in self.failed if self.sender["namespace"] in self.own else ():
            errors = any(each.flow == flow and each.what == "port unreachable" for each in self.seen)
            if errors or number == errno.ECONNREFUSED:
                what = "port unreachable" if errors else "reset"
                self.note(flow, self.sender["namespace"], False, what, (there, here))


def tell(case, seen, wrong):
    """The way of one flow that shows what is wrong, and what that is."""
    shown = next((flow for flow, _ in wrong if flow is not None), 0)
    sent = f"flow {shown} of {case['flows']}, as it was seen:"
    print(sent if case["flows"] else "The name led nowhere, so nothing was dialled.")
    rows = [
        (each.place, "sends" if each.outgoing else "gets", each.what, each.source, ">", each.destination)
        for each in seen
        if each.flow == shown
    ]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        print("  " + "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())
    if case["flows"] and not rows:
        print("  not at all")
    for line, count in collections.Counter(line for _, line in wrong).most_common(10):
        print(f"{line}" + (f" ({count} of {case['flows']} flows)" if case["flows"] > 1 and count > 1 else ""))
    print("The failure shows again." if wrong else "All is as it was expected: the failure does not show.")


def main():
    """Play a case. Returns the exit code."""
    with open(sys.argv[1], encoding="utf-8") as file:
        case = json.load(file)
    frames = []
    if len(sys.argv) > 2:
        with open(sys.argv[2], encoding="ascii") as file:
            frames = file.read().split()
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))
    wrong = []
    try:
        if case["name"]:
            from names import resolve  # noqa: PLC0415 - stands in scripts for names

            wrong += ((None, line) for line in resolve(case["name"]))
        run = Run(case, frames)
        seen = run.play() if case["flows"] else []
    except OSError as error:
        print(f"the probe could not be sent: {error}", file=sys.stderr)
        return 2
    wrong += judge(case, seen)
    if case["http"]:
        from hypertext import judge_answer  # noqa: PLC0415 - stands in scripts for HTTP

        for flow in range(case["flows"]):
            wrong += ((flow, line) for line in judge_answer(case["http"], run.answers.get(flow, b"")))
    if case["conntrack"]:
        from tables import judge_tables  # noqa: PLC0415 - stands in scripts for expectations of tables

        wrong += ((None, line) for line in judge_tables(case["conntrack"]))
    tell(case, seen, wrong)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
END

status=0
python3 /run/case/play.py /run/case/case.json || status=$?
[ "${1-}" != shell ] || PS1='repro# ' sh -i || true
exit "$status"
