"""IPv6 addresses answer when a build ends, however busy the machine's RTNL lock is."""

import asyncio
import ctypes
import os
import resource
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from ipaddress import IPv6Address, ip_address

from network_scenarios import BASIC
from sandboxed import sandboxed

from proxylab.errors import InternalError
from proxylab.kernel.netlink.addresses_answer import make_addresses_answer
from proxylab.kernel.netlink.build import Wiring, realise
from proxylab.kernel.sandbox.launcher import Launcher
from proxylab.kernel.sandbox.netns import NetNs, inside
from proxylab.plan.topology import draw
from proxylab.timing import Deadline

ROUNDS = 15
FD_SETSIZE = 1024
CLONE_NEWNET = 0x40000000
RTF_LOCAL = 0x80000000  # include/uapi/linux/ipv6_route.h
LATE = "fd00:10:244::a"


def taken_for_own(netns: NetNs) -> set[IPv6Address]:
    """The addresses that /proc shows as local: a second opinion beside netlink's."""
    with inside(netns), open("/proc/thread-self/net/ipv6_route") as table:
        rows = [line.split() for line in table]
    return {IPv6Address(int(row[0], 16)) for row in rows if int(row[8], 16) & RTF_LOCAL}


def unanswered(wiring: Wiring) -> list[str]:
    return [
        f"{namespace.name}: {address.interface.ip}"
        for namespace in wiring.plan.namespaces
        for address in namespace.addresses
        if address.interface.ip not in taken_for_own(wiring.namespaces[namespace.name])
    ]


@contextmanager
def contention() -> Iterator[None]:
    """Threads that make and close namespaces; each takes the RTNL lock that IPv6 addresses need."""
    over = threading.Event()
    libc = ctypes.CDLL(None, use_errno=True)

    def make_and_drop() -> None:
        while not over.is_set() and libc.unshare(CLONE_NEWNET) == 0:
            pass

    threads = [threading.Thread(target=make_and_drop) for _ in range(4)]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        over.set()
        for thread in threads:
            thread.join()


async def built_under_contention(_: Launcher) -> list[str]:
    found = []
    with contention():
        for _round in range(ROUNDS):
            with realise(draw(BASIC["ptp IPv6"])) as wiring:
                found += unanswered(wiring)
    return found


def test_every_address_is_the_namespaces_own_when_a_build_ends() -> None:
    assert sandboxed(built_under_contention) == []


async def ip(launcher: Launcher, wiring: Wiring, *argv: str) -> None:

    done = await launcher.run(
        wiring.namespaces["echo-1"], ("ip", *argv), netns_name="echo-1", deadline=Deadline.after(10)
    )
    assert done.status == 0, done.stderr


@contextmanager
def descriptors_of_a_large_lab() -> Iterator[None]:
    """More than select(2) can wait for, where the limit of the process allows that."""
    wanted = min(FD_SETSIZE, resource.getrlimit(resource.RLIMIT_NOFILE)[0] - 256)
    opened = [os.open(os.devnull, os.O_RDONLY) for _ in range(wanted)]
    try:
        yield
    finally:
        for each in opened:
            os.close(each)


async def an_address_that_comes_late(launcher: Launcher) -> dict[str, object]:
    with realise(draw(BASIC["ptp IPv6"])) as wiring, descriptors_of_a_large_lab():
        await ip(launcher, wiring, "address", "del", f"{LATE}/128", "dev", "eth0")
        try:
            make_addresses_answer(wiring.plan, wiring.namespaces, wiring.routes, patience=0.1)
            refusal = ""
        except InternalError as error:
            refusal = str(error)
        seen = (wiring.plan, wiring.namespaces, wiring.routes)
        waiting = asyncio.create_task(asyncio.to_thread(make_addresses_answer, *seen))
        await asyncio.wait({waiting}, timeout=0.2)
        early = waiting.done()
        await ip(launcher, wiring, "address", "add", f"{LATE}/128", "dev", "eth0", "nodad")
        await waiting
        return {
            "refusal": refusal,
            "early": early,
            "own": ip_address(LATE) in taken_for_own(wiring.namespaces["echo-1"]),
        }


def test_a_late_address_is_waited_for_and_a_missing_one_is_named() -> None:
    found = sandboxed(an_address_that_comes_late)
    assert f"echo-1: the address {LATE}" in found.pop("refusal")
    assert found == {"early": False, "own": True}
