"""netem on the links of a plan, and what its queues have dropped (net/sched/sch_netem.c).

Each way through a link with a middle has a queue for the lab's whole life. Without netem it passes every packet at
once, in the sender's own system call. A queue that is changed keeps its counters; one that is replaced would not.
"""

from collections.abc import Mapping

from msgspec import Struct
from msgspec.structs import replace

from proxylab.errors import ScenarioError
from proxylab.evidence.evidence import LinkCount
from proxylab.kernel.netlink.build import Wiring
from proxylab.kernel.netlink.messages import Kind
from proxylab.kernel.netlink.requests import set_netem
from proxylab.plan.device_names import FABRIC
from proxylab.plan.impairments import LinkDirection, ways
from proxylab.scenario.network import Netem

_NONE = Netem()


class Counters(Struct, frozen=True):
    """What a queue has dropped and passed on so far, how many packets wait in it, and whether it copies them now."""

    dropped: int
    passed: int
    waiting: int
    copies: bool = False


class NetemLinks:
    """The links of a lab that have a middle."""

    def __init__(self, wiring: Wiring) -> None:
        """Set up every queue as the plan says. Raises ``CapabilityError``."""
        self._wiring = wiring
        self._ways = ways(wiring.plan)
        self._netem: dict[tuple[str, str], Netem] = {}
        for link in wiring.plan.links:
            if link.middle is not None:
                self.change(link.second.namespace, link.second.device, link.middle.netem)

    def change(self, netns_name: str, device: str, netem: Netem | None) -> None:
        """Let the link of that device do this to packets from now on, or nothing. A plain link stays plain.

        Raises:
            CapabilityError: the kernel has no netem.
            ScenarioError: the lab was built before a step of its author gave the link netem.
        """
        middle = self._wiring.plan.link(netns_name, device).middle
        if middle is None:
            if netem is not None:
                cure = "give it a netem such as {delay: 1ms} where the scenario declares it, and mend it by a step"
                raise ScenarioError(
                    [f"the link of {netns_name} was built without netem, and cannot get it now; {cure}"]
                )
            return
        self._netem[netns_name, device] = netem or _NONE
        self._wiring.routes[FABRIC].send([set_netem(end, netem or _NONE) for end in middle.ends])

    @property
    def any(self) -> bool:
        """Whether some link has a middle, and so may have netem in a step."""
        return bool(self._ways)

    @property
    def active(self) -> bool:
        """Whether any link may lose, delay or copy packets."""
        return any(netem != _NONE for netem in self._netem.values())

    def longer(self, seconds: float) -> float:
        """The seconds for traffic that takes so long without netem: packets repeat, and go there and back many times.

        TCP sends a SYN again after 1, 2, 4 and 8 s.
        """
        return seconds + 20 * self.round_trip + (20.0 if self.loses else 0.0)

    @property
    def loses(self) -> bool:
        """Whether any link loses packets by chance."""
        return any(netem.loss for netem in self._netem.values())

    @property
    def round_trip(self) -> float:
        """The longest that a packet and its answer take, in seconds: once in each direction of every link."""
        return 2 * sum(netem.longest for netem in self._netem.values())

    def read(self) -> Mapping[LinkDirection, Counters]:
        if not self._ways:
            return {}
        by_index = {
            each.need(int, "index"): Counters(
                each.need(int, "TCA_STATS2", "TCA_STATS_QUEUE", "drops"),
                each.need(int, "TCA_STATS2", "TCA_STATS_BASIC", "packets"),
                each.need(int, "TCA_STATS2", "TCA_STATS_QUEUE", "qlen"),
            )
            for each in self._wiring.routes[FABRIC].dump(Kind.GET_QUEUE)
            if each.find(str, "TCA_KIND") == "netem"
        }
        return {way: replace(by_index[way.port.index], copies=bool(self._of(way).duplicate)) for way in self._ways}

    def at_rest(self) -> bool:
        """Whether no packet is on its way through any link: two looks find all queues empty, and nothing passed."""
        before = self.read()
        return not any(each.waiting for each in before.values()) and self.read() == before

    def since(self, before: Mapping[LinkDirection, Counters]) -> tuple[LinkCount, ...]:
        """What every way with netem, now or before, has dropped since ``before``.

        A way that copied packets then may have copied what passed before it was mended.
        """
        return tuple(
            LinkCount(
                link=way.link,
                outward=way.outward,
                netem=str(self._of(way)),
                dropped=now.dropped - before[way].dropped,
                copies=now.copies or before[way].copies,
                behind=way.behind,
            )
            for way, now in self.read().items()
            if now.dropped > before[way].dropped or self._of(way) != _NONE or before[way].copies
        )

    def _of(self, way: LinkDirection) -> Netem:
        return self._netem[way.link.partition("/")[0], way.device]
