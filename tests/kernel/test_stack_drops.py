"""A packet that a node's stack drops has a witness: what the kernel counted of it, and of nothing else."""

import re
from ipaddress import IPv4Address
from pathlib import Path
from typing import Any

from msgspec.structs import replace
from recorded import World
from sandboxed import sandboxed
from test_traffic import Stage, stage
from traffic_plan import NODE, PODS, resolved, spread, traffic_plan

from proxylab.addresses import IPAddress, Transport
from proxylab.kernel.capture.stack_counters import StackCounters, counters_in
from proxylab.kernel.netlink.links_carry import kernel_release
from proxylab.kernel.sandbox.launcher import Launcher
from proxylab.kernel.sandbox.netns import NetNs, inside
from proxylab.report.trace_text import journey
from proxylab.scenario.words import Outcome
from proxylab.verdict.case import Case
from proxylab.verdict.causes.table import cause
from proxylab.verdict.drops import reported_drop
from proxylab.verdict.judge import judge
from proxylab.verdict.model import Judgement

FLOWS = 7
STRANGER = PODS["echo-2"][0]
SYS_ADMIN, PERFMON = 21, 38  # include/uapi/linux/capability.h
REASONS = {
    "martian": "IP_LOCAL_SOURCE",
    "loopback": "IP_LOCALNET",
    "filtered": "IP_RPFILTER",
    "not forwarded": "IP_INADDRERRORS",
    "policy": "NETFILTER_DROP",
}
SHUT = "*filter\n:FORWARD DROP [0:0]\nCOMMIT\n"


def write(netns: NetNs, sysctl: str, value: str) -> None:
    with inside(netns):
        file = open(f"/proc/sys/net/ipv4/{sysctl}", "w")  # noqa: SIM115 - it is written outside
    with file:
        file.write(value)


def is_machines_root() -> bool:
    """Whether this process may ask the kernel for its reasons: root with its capabilities, in no user namespace."""
    capabilities = re.search(r"CapEff:\t(\w+)", Path("/proc/self/status").read_text())
    whole = Path("/proc/self/uid_map").read_text().split() == ["0", "0", "4294967295"]
    may = capabilities is not None and all(int(capabilities[1], 16) >> each & 1 for each in (SYS_ADMIN, PERFMON))
    return may and whole and "tracefs" in Path("/proc/filesystems").read_text() and kernel_release() >= (5, 17)


async def told(lab: Stage, sender: IPAddress | None = None, destination: IPAddress | None = None) -> dict[str, Any]:
    base = resolved(Transport.UDP, flows=FLOWS)
    sent = replace(
        base,
        sender=replace(base.sender, address=sender or base.sender.address),
        destination=destination or base.destination,
    )
    evidence = await lab.run(sent)
    followed = await lab.runner.run(replace(sent, flows=1), trace=True)
    world = World(flows=FLOWS, outcome=Outcome.DROPPED, at="node-a")
    verdict = judge(world.probe, sent, None, evidence)
    case = Case(world.probe, sent, evidence)
    failed = replace(verdict.verdicts[0], judgement=Judgement.FAIL)
    return {
        "overall": verdict.overall,
        "at": verdict.verdicts[-1].observed,
        "observed": verdict.verdicts[0].observed,
        "witnesses": [*verdict.verdicts[0].witnesses],
        "why": cause(case, failed, traffic_plan()),
        "reason": getattr(reported_drop(sent, followed), "reason", ""),
        "way": " ".join(" ".join(journey(sent, followed)).split()),
        "moved": [count.counter for count in evidence.kernel],
    }


async def dropped(launcher: Launcher) -> dict[str, Any]:
    found: dict[str, Any] = {}
    async with stage(launcher) as lab:
        await lab.rules(spread(Transport.UDP))
        node = lab.netns["node-a"]
        found["martian"] = await told(lab, sender=NODE)
        found["loopback"] = await told(lab, sender=IPv4Address("127.0.0.1"))
        write(node, "conf/all/rp_filter", "1")
        found["filtered"] = await told(lab, sender=STRANGER)
        write(node, "conf/all/rp_filter", "0")
        write(node, "ip_forward", "0")
        found["not forwarded"] = await told(lab)
        write(node, "ip_forward", "1")
        await lab.rules(SHUT)
        found["policy"] = await told(lab)
    return found


async def martian(launcher: Launcher) -> dict[str, Any]:
    async with stage(launcher) as lab:
        await lab.rules(spread(Transport.UDP))
        return await told(lab, sender=NODE)


MARTIAN = (
    "node-a dropped the packet by its routing, since {why}: IpInReceives counted {count} packets, and the stack "
    "forwarded, delivered or refused none."
)


def test_an_ordinary_user_is_told_by_counters_alone() -> None:
    found = sandboxed(martian, ordinary=True)
    assert found["overall"] == "pass"
    assert found["why"] == MARTIAN.format(why=f"node-a itself has the source address {NODE}", count=FLOWS)
    assert found["reason"] == ""


def test_the_stack_that_dropped_a_packet_is_named() -> None:
    found = sandboxed(dropped)
    for name, by, counter in (
        ("filtered", "its reverse-path filter", "TcpExtIPReversePathFilter"),
        ("not forwarded", "its routing: the packet is not for this node, and forwarding is off", "IpInAddrErrors"),
    ):
        assert found[name]["overall"] == "pass", found[name]
        assert found[name]["at"].startswith("node-a")
        assert found[name]["observed"] == f"dropped on node-a by {by}"
        assert found[name]["witnesses"] == [f"node-a dropped the packet by {by}: {counter} counted {FLOWS} packets"]
    for name, source, why in (
        ("martian", NODE, f"node-a itself has the source address {NODE}"),
        ("loopback", "127.0.0.1", "127.0.0.1 is no valid source address"),
    ):
        assert found[name]["overall"] == "pass", (source, found[name])
        assert found[name]["why"] == MARTIAN.format(why=why, count=FLOWS)
    reasons = REASONS if is_machines_root() else dict.fromkeys(REASONS, "")
    assert {name: found[name]["reason"] for name in REASONS} == reasons, "the kernel tells them to the machine's root"
    for name, reason in reasons.items():
        said = reason if name != "policy" else ""  # that, a rule's own words say
        assert ("the kernel drops it there" in found[name]["way"]) is bool(said), found[name]["way"]
        assert said in found[name]["way"]
    # A policy names nothing that was dialled, but it has counted the probe, the lost sentinel packets and no more.
    assert found["policy"]["overall"] == "pass", found["policy"]
    assert found["policy"]["why"].startswith("node-a dropped the packet by the policy of FORWARD, which counted ")


async def read_twice(_: Launcher) -> list[dict[str, int]]:
    from proxylab.kernel.sandbox.netns import make_netns

    counters = StackCounters(make_netns("n"))
    read = [counters_in(counters.read()), counters_in(counters.read())]
    counters.close()
    return read


def test_an_empty_namespace_has_counted_nothing() -> None:
    first, second = sandboxed(read_twice)
    assert first == second
    assert {first[name] for name in ("IpInReceives", "TcpExtIPReversePathFilter", "ConntrackInsertFailed")} == {0}
