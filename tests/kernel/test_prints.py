"""What iptables-save printed once is told of tables with the same rules, counters and all, as it would print it."""

import socket
from typing import Any

from sandboxed import sandboxed

from lab.ip import Family
from lab.kernel.launcher import Completed, Launcher
from lab.kernel.netns import NetNs, inside, make_netns
from lab.kernel.rules import IptablesTool, choose_iptables
from lab.timing import Deadline

TABLES = ("mangle", "filter", "nat")
RULES = """\
*filter
:INPUT DROP [3:4]
:MINE - [0:0]
-A INPUT -i lo -m comment --comment "all [1:2] of it" -j MINE
-A MINE -m statistic --mode nth --every 2 --packet 1
-A MINE -m recent --name ASKED --set
-A MINE -m statistic --mode random --probability 0.5
-A MINE
-A MINE
COMMIT
*nat
:MINE - [0:0]
-A OUTPUT -j MINE
-A MINE -p udp -j RETURN
COMMIT
"""
MORE = "*nat\n-A MINE -j RETURN\nCOMMIT\n"
OTHER = "*nat\n-D MINE 2\n-A MINE -j ACCEPT\nCOMMIT\n"  # as long as what it replaces
LOOPBACK = {Family.IPV4: (socket.AF_INET, "127.0.0.1"), Family.IPV6: (socket.AF_INET6, "::1")}


class Counting:
    """A launcher that counts which tables iptables-save was asked for."""

    def __init__(self, launcher: Launcher) -> None:
        self._launcher = launcher
        self.asked: list[str] = []

    async def run(self, netns: NetNs, argv: Any, **how: Any) -> Completed:
        if "--table" in argv:
            self.asked.append(argv[-1])
        return await self._launcher.run(netns, argv, **how)


async def told_and_printed(launcher: Launcher) -> list[dict[str, Any]]:
    """Of each family: which tables were asked for in two nodes, one after the other, and what was told and printed."""
    variant = await choose_iptables(launcher, ("legacy",))
    found = []
    for family, (kind, address) in LOOPBACK.items():
        counting = Counting(launcher)
        for node, more in (("a", ()), ("b", ()), ("a", (MORE,)), ("b", (MORE, OTHER))):
            netns = make_netns(node)
            place = f"{family}{len(found)}"
            tool = IptablesTool(counting, netns, place, variant)

            async def run(*argv: str, stdin: str = "", netns: NetNs = netns, place: str = place) -> str:
                done = await launcher.run(netns, argv, place=place, stdin=stdin.encode(), deadline=Deadline.after(10))
                assert done.status == 0, done.stderr
                return "".join(line for line in done.stdout.decode().splitlines(True) if not line.startswith("#"))

            await run("ip", "link", "set", "lo", "up")
            for text in (RULES, *more):
                await run(variant.command(family, "restore"), "--noflush", "--counters", stdin=text)
            with inside(netns), socket.socket(kind, socket.SOCK_DGRAM) as sock:
                for _ in range(len(found) + 1):
                    sock.sendto(b"four", (address, 9))
            counting.asked.clear()
            told = await tool.save_all(family)
            save = variant.command(family, "save")
            tables = [await run(save, "-c", "-t", table) for table in TABLES]
            printed = "".join([f"# {save} --counters\n", *tables])
            found.append({"asked": list(counting.asked), "told": told, "printed": printed})
            launcher.forget([place])
            netns.close()
    return found


def test_the_same_rules_are_printed_once() -> None:
    found = sandboxed(told_and_printed)
    for each in found:
        assert each["told"] == each["printed"]
    assert [each["asked"] for each in found] == [["filter", "nat"], [], ["nat"], ["nat"]] * 2
    assert len({each["told"] for each in found}) == len(found), "every node has counted otherwise"
