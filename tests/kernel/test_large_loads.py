"""Rules that exceed an ordinary user's socket buffers load whole, or not at all."""

from typing import Any

from sandboxed import sandboxed
from users import EITHER

from proxylab.addresses import Family
from proxylab.errors import CapabilityError
from proxylab.kernel.netfilter.iptables_tool import IptablesTool, RestoreRefusedError, choose_iptables
from proxylab.kernel.sandbox.launcher import Launcher
from proxylab.kernel.sandbox.netns import make_netns
from proxylab.timing import Deadline


def text(services: int, more: str = "") -> str:
    """Rules like kube-proxy's: a chain and a rule for each of many Services."""
    chains = "".join(f":KUBE-SVC-{n:05d} - [0:0]\n" for n in range(services))
    rules = "".join(
        f'-A KUBE-SVC-{n:05d} -m comment --comment "default/service-{n}:http cluster IP" '
        f"-d 10.96.{n >> 8}.{n & 255}/32 -p tcp -m tcp --dport 80 -j MARK --set-xmark 0x4000/0x4000\n"
        for n in range(services)
    )
    return f"*nat\n{chains}{rules}{more}COMMIT\n"


async def loads(launcher: Launcher) -> dict[str, Any]:
    """How many of the chains exist after each load."""
    variant = await choose_iptables(launcher, ["nft"])
    netns = make_netns("node-a")
    tool = IptablesTool(launcher, netns, "node-a", variant)
    found: dict[str, Any] = {}

    async def chains() -> int:
        return (await tool.save(Family.IPV4)).count(":KUBE-SVC-")

    try:
        await tool.load(Family.IPV4, text(2000))
        found["large"] = await chains()
        try:
            await tool.load(Family.IPV4, text(2100, "-A KUBE-SVC-00000 -j NO-SUCH-CHAIN\n"))
        except RestoreRefusedError as refused:
            found["refused"] = refused.output
        found["after a refusal"] = await chains()
        try:
            await tool.load(Family.IPV4, text(16000))
            found["huge"] = "loaded"
        except CapabilityError as error:
            found["huge"] = error.missing
        found["after the huge one"] = await chains()
        fed = await launcher.run(
            netns, ["cat"], netns_name="node-a", stdin=b"x" * 300_000, fed=True, deadline=Deadline.after(20)
        )
        found["fed"] = len(fed.stdout)
    finally:
        netns.close()
    return found


@EITHER
def test_a_large_transaction_is_whole_or_a_lack_of_the_machine(ordinary: bool) -> None:
    found = sandboxed(loads, ordinary=ordinary, seconds=300)
    assert found["large"] == 2000
    assert "line" in found["refused"], "the tool still says which line it refused"
    assert found["after a refusal"] == 2000
    if found["huge"] == "loaded":
        assert found["after the huge one"] == 16000
    else:
        assert "nf_tables transaction" in found["huge"]
        assert found["after the huge one"] == 2000
    assert found["fed"] == 300_000, "one that opens no netlink socket is fed all the same"
