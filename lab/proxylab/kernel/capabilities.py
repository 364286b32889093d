"""What this machine's kernel and tools can do, found by trying.

Each trial runs in a network namespace of its own. It also names what the user loses without the capability, and the
cure. A version or a configuration file decides only what no trial can show. No trial loads a kernel module: only the
machine's root may do that. The kernel loads some modules by itself on first use, but others never, such as
br_netfilter.
"""

import errno
import os
import socket
from collections.abc import Awaitable, Callable, Collection, Sequence
from contextlib import closing
from ipaddress import IPv4Address
from pathlib import Path
from typing import Final

from msgspec import Struct

from proxylab.addresses import Family, Protocol
from proxylab.capability import Capability, in_words
from proxylab.errors import CapabilityError, InternalError
from proxylab.evidence.ipvs import VirtualServer
from proxylab.kernel.capture.drop_reasons import DropReasons
from proxylab.kernel.capture.stack import StackTap
from proxylab.kernel.capture.taps import WANTED_BUFFER
from proxylab.kernel.modules import feasible, known_modules, load_modules
from proxylab.kernel.netfilter.iptables_tool import choose_iptables
from proxylab.kernel.netfilter.ipvs import Ipvs, IpvsRefusedError
from proxylab.kernel.netfilter.packet_tracer import Tracer
from proxylab.kernel.netlink.buffers import raise_receive_buffer
from proxylab.kernel.netlink.connections import end_connections
from proxylab.kernel.netlink.links_carry import kernel_release
from proxylab.kernel.netlink.messages import Kind, NetlinkRequest
from proxylab.kernel.netlink.requests import add_bridge, add_device, add_veth, add_vxlan, set_loopback_up, set_netem
from proxylab.kernel.netlink.socket import NETLINK_NETFILTER, open_netlink
from proxylab.kernel.sandbox.launcher import Launcher
from proxylab.kernel.sandbox.netns import NetNs, inside
from proxylab.kernel.sandbox.running import how_it_ended
from proxylab.kernel.sandbox.sysctl import write_sysctls
from proxylab.plan.model import Bridge, LinkEnd, Sysctl, Veth, Vxlan
from proxylab.plan.sysctls import OF_THE_KERNEL
from proxylab.scenario.network import Netem
from proxylab.timing import Deadline

_NETNS_NAME: Final = "doctor"
_TRIAL_SECONDS: Final = 30.0
_SCTP: Final = 132  # IPPROTO_SCTP; the socket module has it only where the C library's headers had
_SO_SNDBUFFORCE: Final = 32
_LARGE: Final = 4 << 20
"""About what an nft transaction of 1,000 Services, or some thousand small packets, weigh in a socket's buffer."""

_FLOWTABLE_TRIAL: Final = """\
table inet trial {
  flowtable passing { hook ingress priority filter; devices = { lo }; }
  chain forward { type filter hook forward priority filter; ct state established flow add @passing; }
}
"""

# One rule for each thing that kube-proxy's nftables mode needs.
_NFT_TRIAL: Final = """\
table ip trial {
  map backends { typeof numgen random mod 1 : ip daddr . tcp dport; elements = { 0 : 192.0.2.1 . 1 } }
  map services { type ipv4_addr . inet_proto . inet_service : verdict; }
  set affinity { type ipv4_addr; flags dynamic,timeout; timeout 3s; }
  chain prerouting {
    type nat hook prerouting priority dstnat;
    fib daddr type local ip daddr . meta l4proto . th dport vmap @services
    update @affinity { ip saddr }
    meta l4proto tcp dnat ip to numgen random mod 1 map { 0 : 192.0.2.1 . 1 }
  }
  chain postrouting { type nat hook postrouting priority srcnat; meta mark & 0x4000 != 0 masquerade fully-random; }
  chain filter { type filter hook forward priority filter; ct state new reject; }
}
"""


_AND_MODULES: Final = ", and "
"""Between the program that a machine may lack and the modules that its kernel may lack."""


class Trial(Struct, frozen=True):
    """A capability without its outcome.

    Attributes:
        find: returns what it found, and raises where the capability is missing.
        program: the one that the lab runs; where it is missing, the cure is to install it, and no kernel's module.
    """

    name: str
    find: Callable[[NetNs, Launcher], Awaitable[str]]
    cost: str
    cure: str
    required: bool = False
    program: str = ""


async def examine(launcher: Launcher, names: Collection[str] = ()) -> tuple[Capability, ...]:
    """Try everything that a lab may use, or only what has these names, and report what works."""
    found, modules = [], known_modules()
    for trial in (each for each in TRIALS if not names or each.name in names):
        if trial.program and launcher.path_of(trial.program) is None:
            found.append(_without_program(trial))
            continue
        scratch = launcher.make_netns(_NETNS_NAME)
        try:
            answer, works = await trial.find(scratch, launcher), True
        except CapabilityError as error:
            answer, works = error.missing, False
        except (InternalError, OSError, TimeoutError) as error:
            answer, works = in_words(error), False
        finally:
            scratch.close()
        found.append(
            Capability(
                name=trial.name,
                found=answer.strip().partition("\n")[0],
                works=works,
                cost=trial.cost,
                cure=trial.cure if works else feasible(trial.cure, modules),
                required=trial.required,
            )
        )
    launcher.forget([_NETNS_NAME])
    return tuple(found)


def _without_program(trial: Trial) -> Capability:
    return Capability(
        name=trial.name,
        found=f"no program {trial.program} in the PATH of labs",
        works=False,
        cost=trial.cost,
        cure=trial.cure.partition(_AND_MODULES)[0],
        required=trial.required,
        of_program=True,
    )


def _device(make: Callable[[NetNs], Sequence[NetlinkRequest]]) -> Callable[[NetNs, Launcher], Awaitable[str]]:
    async def find(scratch: NetNs, _: Launcher) -> str:
        with closing(open_netlink(scratch)) as routes:
            routes.send(make(scratch))
        return "made one"

    return find


_TRIED_END: Final = LinkEnd(_NETNS_NAME, "one", 10, "02:00:00:00:00:01")


def _veth(scratch: NetNs) -> list[NetlinkRequest]:
    return [add_veth(Veth(_TRIED_END, LinkEnd(_NETNS_NAME, "two", 11, "02:00:00:00:00:02")), scratch)]


def _vxlan(scratch: NetNs) -> list[NetlinkRequest]:
    vxlan = Vxlan("tunnel", 12, "02:00:00:00:00:03", "one", IPv4Address("192.0.2.1"), 1, 8472)
    return [*_veth(scratch), add_vxlan(vxlan, 10)]


def _file(path: str) -> Callable[[NetNs, Launcher], Awaitable[str]]:
    """A trial that opens a file of /proc for writing, as the namespace sees it."""

    async def find(scratch: NetNs, _: Launcher) -> str:
        with inside(scratch):
            os.close(os.open(path, os.O_WRONLY | os.O_CLOEXEC))
        return path.removeprefix("/proc/sys/").replace("/", ".")

    return find


def _socket(family: int, kind: int, protocol: int) -> Callable[[NetNs, Launcher], Awaitable[str]]:
    async def find(scratch: NetNs, _: Launcher) -> str:
        with inside(scratch):
            made = socket.socket(family, kind | socket.SOCK_CLOEXEC, protocol)
        made.close()
        return "opened one"

    return find


def _iptables(*variants: str, family: Family = Family.IPV4) -> Callable[[NetNs, Launcher], Awaitable[str]]:
    async def find(_: NetNs, launcher: Launcher) -> str:
        return (await choose_iptables(launcher, variants, family)).version

    return find


def _command(*argv: str, stdin: str = "", version: Sequence[str] = ()) -> Callable[[NetNs, Launcher], Awaitable[str]]:
    """A trial that runs a command in the scratch namespace."""

    async def find(scratch: NetNs, launcher: Launcher) -> str:
        done = await launcher.run(
            scratch, argv, netns_name=_NETNS_NAME, stdin=stdin.encode(), deadline=Deadline.after(_TRIAL_SECONDS)
        )
        if done.status != 0:
            said = (done.stderr or done.stdout).decode(errors="replace").strip()
            raise OSError(said or f"{argv[0]} {how_it_ended(done.status)}")
        if not version:
            return "done"
        printed = await launcher.run(scratch, version, netns_name=_NETNS_NAME, deadline=Deadline.after(_TRIAL_SECONDS))
        text = (printed.stdout or printed.stderr).decode(errors="replace").strip()  # nginx prints it as an error
        return text if printed.status == 0 else f"works; {' '.join(version)} {how_it_ended(printed.status)}"

    return find


async def _ipvs(scratch: NetNs, _: Launcher) -> str:
    """Make a virtual server. The kernel names the family IPVS to every user, and lets only its own root use it."""
    server = VirtualServer(address=IPv4Address("192.0.2.1"), port=80, protocol=Protocol.TCP)
    with closing(Ipvs(scratch)) as ipvs:
        try:
            ipvs.add([server])
        except IpvsRefusedError as error:
            raise OSError(str(error)) from error
    return "made a virtual server"


async def _conntrack(scratch: NetNs, _: Launcher) -> str:
    """Ask conntrack for its statistics of the namespace (nf_conntrack_netlink.c)."""
    with closing(open_netlink(scratch, NETLINK_NETFILTER)) as netfilter:
        netfilter.one(NetlinkRequest("count connections", Kind.COUNT_CONNECTIONS, 0, {}))
    return "answers"


async def _conntrack_limit(scratch: NetNs, _: Launcher) -> str:
    """Write the limit of all tables anew, which only the kernel's first namespace can."""
    name, value = next(iter(OF_THE_KERNEL.items()))
    write_sysctls(scratch, [Sysctl(name, value)])
    return "can be written"


async def _send_buffer(scratch: NetNs, _: Launcher) -> str:
    """Whether a large netlink transaction fits: SO_SNDBUFFORCE needs CAP_NET_ADMIN over the machine."""
    with inside(scratch):
        made = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, NETLINK_NETFILTER)
    with made:
        try:
            made.setsockopt(socket.SOL_SOCKET, _SO_SNDBUFFORCE, _LARGE)
        except PermissionError:
            made.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _LARGE)
        size = made.getsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF)
    if size < _LARGE:
        raise OSError(f"send buffers end at {size // 1024} KiB (net.core.wmem_max)")
    return f"send buffers of {size // 1024} KiB"


async def _receive_buffer(scratch: NetNs, _: Launcher) -> str:
    """Whether a tap gets a large buffer: SO_RCVBUFFORCE needs CAP_NET_ADMIN over the machine."""
    with inside(scratch):
        made = socket.socket(socket.AF_PACKET, socket.SOCK_RAW | socket.SOCK_CLOEXEC, 0)
    with made:
        size = raise_receive_buffer(made, WANTED_BUFFER)
    if size < _LARGE:
        raise OSError(f"receive buffers end at {size // 1024} KiB (net.core.rmem_max)")
    return f"receive buffers of {size // 1024} KiB"


async def _tracing(scratch: NetNs, _: Launcher) -> str:
    Tracer(scratch).close()
    return "made a table and bound a log"


async def _drop_reasons(_: NetNs, __: Launcher) -> str:
    reasons = DropReasons()
    reasons.close()
    return f"reads {reasons.known} reasons"


async def _stack_tap(scratch: NetNs, _: Launcher) -> str:
    StackTap(scratch, _NETNS_NAME, "stack").close()
    return "made a table and bound a log"


async def _end_connection(scratch: NetNs, _: Launcher) -> str:
    """End a connection in TIME_WAIT (SOCK_DESTROY, CONFIG_INET_DIAG_DESTROY)."""
    with closing(open_netlink(scratch)) as routes:
        routes.send([set_loopback_up()])
    with inside(scratch):
        listening, calling = socket.socket(), socket.socket()
    with listening, calling:
        listening.bind(("127.0.0.1", 0))
        listening.listen()
        calling.connect(listening.getsockname())
        listening.accept()[0].close()
    if left := end_connections(scratch, even_waiting=True):
        raise OSError(left)
    return "ended one in TIME_WAIT"


async def _prompt_links(_: NetNs, __: Launcher) -> str:
    release = kernel_release()
    if release < (6, 8):
        raise OSError(f"kernel {os.uname().release}")
    return f"kernel {os.uname().release}"


async def _own_proc(_: NetNs, __: Launcher) -> str:
    """Containers mask parts of /proc; the sandbox mounts its own, which a masked one forbids (mount_too_revealing)."""
    pid = Path("/proc/self").readlink()
    if str(pid) != str(os.getpid()):
        raise OSError(errno.ENOENT, "/proc is not the sandbox's own")
    return "the sandbox's own"


TRIALS: Final = (
    Trial("/proc", _own_proc, "no lab", "in a container add '--security-opt systempaths=unconfined'", required=True),
    Trial("veth pairs", _device(_veth), "no lab", load_modules("veth"), required=True),
    Trial(
        "bridges",
        _device(lambda _: [add_bridge(Bridge("bridge", 10, "02:00:00:00:00:01"))]),
        "no lab",
        load_modules("bridge"),
        required=True,
    ),
    Trial(
        "packet sockets",
        _socket(socket.AF_PACKET, socket.SOCK_RAW, 0),
        "no lab: it could observe no packet",
        load_modules("af_packet"),
        required=True,
    ),
    Trial(
        "iptables legacy",
        _iptables("legacy"),
        "the iptables mode runs on the nft variant, which loads ten times slower",
        f"install iptables{_AND_MODULES}"
        + load_modules("ip_tables iptable_nat iptable_filter xt_conntrack xt_statistic xt_recent xt_MASQUERADE"),
    ),
    Trial(
        "iptables nft",
        _iptables("nft"),
        "no scenario is skipped while the legacy variant works",
        f"install iptables{_AND_MODULES}" + load_modules("nf_tables nft_compat"),
    ),
    Trial(
        "ip6tables",
        _iptables(family=Family.IPV6),
        "scenarios of IPv6 in iptables mode are skipped",
        f"install iptables{_AND_MODULES}" + load_modules("ip6table_nat ip6table_filter"),
    ),
    Trial(
        "nftables",
        _command("nft", "-f", "-", stdin=_NFT_TRIAL, version=("nft", "--version")),
        "scenarios of the nftables mode are skipped",
        f"install nftables 1.0.1 or later{_AND_MODULES}"
        + load_modules("nf_tables nft_nat nft_masq nft_fib_ipv4 nft_reject"),
        program="nft",
    ),
    Trial(
        "large nft transactions",
        _send_buffer,
        "the nftables mode cannot load some hundred Services at once (EMSGSIZE)",
        "run as root, or 'sudo sysctl -w net.core.wmem_max=16777216'",
    ),
    Trial(
        "large receive buffers",
        _receive_buffer,
        "the lab sends probes in smaller portions, some hundred packets at a time, so that taps lose nothing",
        "run as root, or 'sudo sysctl -w net.core.rmem_max=16777216'",
    ),
    Trial(
        "packet tracing",
        _tracing,
        "explanations do not name the rules that a packet met",
        load_modules("nf_tables nfnetlink_log"),
    ),
    Trial(
        "reasons for drops",
        _drop_reasons,
        "explanations lack the kernel's reason for a drop that no rule made",
        "run as the machine's root, with kernel 5.17 or later and tracefs",
    ),
    Trial(
        "taps on the programs of nodes",
        _stack_tap,
        "probes from nodes and from loopback are skipped",
        load_modules("nf_tables nft_log nfnetlink_log"),
    ),
    Trial(
        "ending of connections",
        _end_connection,
        "a lab whose steps blackhole a pod with open connections can take minutes to close",
        "use a kernel with CONFIG_INET_DIAG_DESTROY, and " + load_modules("inet_diag tcp_diag"),
    ),
    Trial(
        "IPv6",
        _file("/proc/sys/net/ipv6/conf/all/disable_ipv6"),
        "scenarios of IPv6 are skipped",
        "boot without ipv6.disable=1",
    ),
    Trial(
        "bridge-nf-call-iptables",
        _file("/proc/sys/net/bridge/bridge-nf-call-iptables"),
        "with podNetwork: bridge, packets between pods of one node bypass the node's rules",
        load_modules("br_netfilter"),
    ),
    Trial("VXLAN devices", _device(_vxlan), "scenarios with interNode: vxlan are skipped", load_modules("vxlan")),
    Trial(
        "conntrack by netlink",
        _conntrack,
        "expectations on conntrack are skipped",
        load_modules("nf_conntrack_netlink"),
    ),
    Trial(
        "limit of conntrack",
        _conntrack_limit,
        "scenarios whose connection tracking is full are skipped",
        "run them on a kernel of their own: --kernel uml",
    ),
    Trial(
        "nft flowtables",
        _command("nft", "-f", "-", stdin=_FLOWTABLE_TRIAL, version=("nft", "--version")),
        "scenarios whose nodes have flowtables are skipped",
        load_modules("nf_tables nft_flow_offload nf_flow_table nf_flow_table_inet"),
    ),
    Trial(
        "SCTP sockets",
        _socket(socket.AF_INET, socket.SOCK_STREAM, _SCTP),
        "scenarios that connect over SCTP are skipped",
        load_modules("sctp"),
    ),
    Trial(
        "netem",
        _device(lambda scratch: [*_veth(scratch), set_netem(_TRIED_END, Netem(loss=1.0))]),
        "scenarios with links that lose or delay packets are skipped",
        load_modules("sch_netem"),
    ),
    Trial("IPVS", _ipvs, "scenarios of the ipvs mode are skipped", load_modules("ip_vs")),
    Trial(
        "dummy devices",
        _device(lambda _: [add_device("kube-ipvs0", "dummy", 10)]),
        "scenarios of the ipvs mode are skipped",
        load_modules("dummy"),
    ),
    Trial(
        "ipset",
        _command("ipset", "create", "trial", "hash:ip,port", version=("ipset", "version")),
        "scenarios of the ipvs mode are skipped",
        f"install ipset{_AND_MODULES}" + load_modules("ip_set ip_set_hash_ipport xt_set"),
        program="ipset",
    ),
    Trial(
        "nginx",
        _command("nginx", "-v", version=("nginx", "-v")),
        "scenarios with an Ingress controller are skipped",
        "install nginx-light, or nginx",
        program="nginx",
    ),
    Trial(
        "openssl",
        _command("openssl", "version", version=("openssl", "version")),
        "scenarios with an Ingress controller that has a port for TLS are skipped",
        "install openssl",
        program="openssl",
    ),
    Trial(
        "links that carry on request",
        _prompt_links,
        "every build sends frames over each link until one arrives, some milliseconds a link",
        "use kernel 6.8 or later",
    ),
)
