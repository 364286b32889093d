"""Mode userspace under attack: others do the work of the proxy's process, and the network loses what it sends."""

from altered_data import altered_connection, altered_datagrams
from attacked_lab import (
    BY_PROGRAM,
    CLIENT,
    ECHO,
    EMPTY,
    OTHER,
    VIP,
    Alteration,
    Attack,
    Dialled,
    each_of,
    iptables,
    lab_of_module,
    nft,
    program,
    route,
)

CONNECT = {"as": "connect"}
OVER_TCP, OVER_UDP = Dialled(send=CONNECT), Dialled(port="udp", send=CONNECT)
OF_EMPTY = Dialled(service="empty", send=CONNECT)
BY_NODE_PORT = Dialled(sender="outside", to={"via": "nodePort", "node": "node-a"}, send=CONNECT)
ENDED, LOST = {"outcome": "closed"}, {"outcome": "dropped"}

LISTENS = "s = socket.socket(); s.setsockopt(1, 2, 1); s.bind(('', 7777)); s.listen(64)\n"
MUTE = program("node-a", LISTENS, "kept = []\nwhile 1: kept.append(s.accept())")
CLOSES = program(
    "node-a",
    LISTENS,
    "import time\nwhile 1:\n c, _ = s.accept(); c.recv(999); c.shutdown(1); time.sleep(.1); c.close()",
)
PASSES_ON = program(
    "node-a",
    LISTENS,
    f"""import threading
def pipe(a, b):
    with contextlib.suppress(OSError):
        while d := a.recv(65536): b.sendall(d)
    with contextlib.suppress(OSError): b.shutdown(1)
while 1:
    c, _ = s.accept()
    f = socket.create_connection(('{ECHO}', 8080))
    threading.Thread(target=pipe, args=(c, f), daemon=True).start()
    threading.Thread(target=pipe, args=(f, c), daemon=True).start()
""",
)
PASSES_DATAGRAMS_ON = program(
    "node-a",
    "s, f = (socket.socket(type=socket.SOCK_DGRAM) for _ in range(2)); "
    f"s.bind(('', 7777)); f.connect(('{ECHO}', 8080))\n",
    "while 1:\n d, c = s.recvfrom(65536); f.send(d); s.sendto(f.recv(65536), c)\n",
)
# Whenever a datagram of the client comes, it sends another one to the same Service.
SENDS_ANOTHER = program(
    "node-a",
    "s = socket.socket(17, 3, socket.htons(3)); s.bind(('client', 3)); u = socket.socket(type=socket.SOCK_DGRAM)\n",
    "while 1:\n"
    " d, a = s.recvfrom(2048)\n"
    f" if a[2] != 4 and d[23] == 17 and d[30:34] == socket.inet_aton('{EMPTY}'): u.sendto(b'x', ('{EMPTY}', 80))\n",
)


def redirect(address: str, protocol: str = "tcp") -> Alteration:
    """A rule before the engine's that leads a Service to port 7777."""
    to = f"-d {address} -p {protocol} --dport 80 -j REDIRECT --to-ports 7777"
    return iptables("node-a", "nat", "PREROUTING", to)


RULE_OF_NODE_PORT = "iptables -w -t nat -S KUBE-NODEPORT-CONTAINER | grep default/echo:tcp"
NODE_PORT = f"port=$({RULE_OF_NODE_PORT} | sed 's/.*--dport \\([0-9]*\\).*/\\1/')"
REDIRECT_OF_NODE_PORT = Alteration(
    "node-a",
    f"{NODE_PORT}; iptables -w -t nat -I PREROUTING -p tcp --dport $port -j REDIRECT --to-ports 7777",
    "iptables -w -t nat -D PREROUTING 1",
)
BEHIND_THE_ENGINES = Alteration(
    "node-a",
    f"port=$(iptables -w -t nat -S KUBE-PORTALS-CONTAINER | grep -e '-d {VIP}/32 .*-p tcp' | grep -e '--dport 80 ' | "
    "grep -o '[0-9]*$'); "
    'nft "table ip attack { '
    "chain i { type filter hook input priority 300; "
    f"tcp dport $port ip saddr {CLIENT} counter tcp dport set 7777; }}; "
    "chain o { type filter hook output priority -350; "
    f'tcp sport 7777 ip daddr {CLIENT} counter tcp sport set $port; }}; }}"',
    "nft delete table ip attack",
)
BLACKHOLE_OF_DATAGRAMS = Alteration(
    "node-a",
    "ip rule add pref 100 lookup local && ip rule del pref 0 && "
    f"ip rule add pref 1 from {CLIENT} ipproto udp blackhole",
    "ip rule del pref 1; ip rule add pref 0 lookup local && ip rule del pref 100",
)
SYNS = f"ip daddr {ECHO} tcp dport 8080 tcp flags syn / syn,ack"
NOT_THE_ENGINES = "which belongs to no engine"

ATTACKS = [
    Attack(
        "the first four SYNs of the process are lost",
        (nft("node-b", "forward", -10, f"{SYNS} quota until 240 bytes drop"),),
        "pass", "The kernel sends the SYN of the fourth attempt again, and that one arrives.",
        BY_PROGRAM, OVER_TCP,
    ),
    Attack(
        "no SYN of the process arrives",
        (iptables("node-b", "filter", "FORWARD", f"-d {ECHO} -p tcp --dport 8080 --syn -j DROP"),),
        "pass", "The process gives up after 3.75 s, and a plain client hears the end of its connection then.",
        ENDED, OVER_TCP,
    ),
    Attack(
        "a rule leads the connection to a program that passes it on",
        (PASSES_ON, redirect(VIP)),
        "inconclusive", "The proxy's process has not seen the connection.",
        BY_PROGRAM, OVER_TCP, says=("rules that lead to a proxy's process counted 0 of 1 flow", NOT_THE_ENGINES),
    ),
    Attack(
        "a rule leads datagrams to a program that passes them on",
        (PASSES_DATAGRAMS_ON, redirect(VIP, "udp")),
        "inconclusive", "The proxy's process has not seen the datagram.",
        BY_PROGRAM, OVER_UDP, says=("rules that lead to a proxy's process counted 0 of 1 flow", NOT_THE_ENGINES),
    ),
    Attack(
        "a rule leads the node port to a program that passes it on",
        (PASSES_ON, REDIRECT_OF_NODE_PORT),
        "inconclusive", "The proxy's process has not seen the connection.",
        BY_PROGRAM, BY_NODE_PORT, says=("rules that lead to a proxy's process counted 0 of 1 flow", NOT_THE_ENGINES),
    ),
    Attack(
        "a rule leads the connection to a program that closes it",
        (CLOSES, redirect(EMPTY)),
        "inconclusive", "The proxy's process has closed nothing.",
        ENDED, OF_EMPTY, says=("rules that lead to a proxy's process counted 0 of 1 flow", NOT_THE_ENGINES),
    ),
    Attack(
        "a rule leads the connection to a mute program",
        (MUTE, redirect(VIP)),
        "fail", "It reached no pod; the proxy's process has no part in that.",
        BY_PROGRAM, OVER_TCP, why="no rule of the engine led the packet to the proxy's process: node-a accepted the",
        never="the proxy's process on node-a got the connection",
    ),
    Attack(
        "a rule behind the engine's leads the connection to a program that passes it on",
        (PASSES_ON, BEHIND_THE_ENGINES),
        "inconclusive", "The engine's rule counted the connection, and yet the process has not seen it.",
        BY_PROGRAM, OVER_TCP,
        says=("no rule that counted leads to 10.244.0.1:7777", "and may have led it to another program"),
    ),
    Attack(
        "a rule behind the engine's leads the connection to a mute program",
        (MUTE, BEHIND_THE_ENGINES),
        "fail", "It reached no pod; the proxy's process has no part in that.",
        BY_PROGRAM, OVER_TCP, why="node-a accepted the connection at",
        never="the proxy's process on node-a got the connection",
    ),
    Attack(
        "routing drops the datagram, and the process discards another one",
        (BLACKHOLE_OF_DATAGRAMS, SENDS_ANOTHER),
        # The reason depends on whether the other datagram comes before the lab reads the counters of the stack.
        "inconclusive", "The process has not seen the probe's datagram.",
        LOST, Dialled(service="empty", port="udp", send=CONNECT),
    ),
    Attack(
        "a route of the node drops what the process sends",
        (route("node-a", f"blackhole {ECHO}"),),
        "fail", "The process had an endpoint; its kernel refused to send to it.",
        BY_PROGRAM, OVER_TCP, why="accepted the connection and closed it, and no tap saw it try an endpoint",
        never="had no endpoint",
    ),
    *altered_datagrams("connect", BY_PROGRAM),
    altered_connection(BY_PROGRAM),
    Attack(
        "a copy of a datagram of the process comes to another pod",
        (nft("node-b", "postrouting", 300, f'ip daddr {ECHO} udp dport 8080 dup to {OTHER} device "other"'),),
        "fail", "The process leads a datagram to one endpoint.", BY_PROGRAM, OVER_UDP,
    ),
]  # fmt: skip

lab = lab_of_module("embedded/userspace")
test_the_work_of_others_never_passes_for_the_process = each_of(ATTACKS)
