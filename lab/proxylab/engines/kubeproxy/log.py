"""How far kube-proxy has come, by its log: whether it is at rest, and all of it in modes whose rules do not show it.

Any mode but userspace: some syncs change nothing, yet they load rules anew and clear the counters that a probe reads.
Each sync logs its begin and its end.

Mode userspace: no rule shows the endpoints that the process balances, but kube-proxy logs when it has new ones. It also
logs each datagram that it discards for want of an endpoint.

Mode ipvs: a virtual server has no name, and kube-proxy writes it long before it writes sets and iptables rules. But it
logs which ports of Services and which endpoints a sync takes up, and the end of each sync, of which it makes no partial
ones. Lines of one sync stand in this order (syncProxyRules in pkg/proxy/ipvs/proxier.go, since 1.23 or earlier)::

    "Adding new service port" portName="proxylab/barrier:b000002" servicePort="192.0.0.8:1/TCP"
    "Adding new service endpoints" portName="proxylab/barrier:b000002" endpoints=["192.0.0.9:1"]
    "Syncing ipvs proxier rules" ipFamily="IPv4"
    "syncProxyRules complete" ipFamily="IPv4" elapsed="1.174848256s"
"""

import math
import re
import time
from collections import Counter
from typing import Final, Protocol

from proxylab.addresses import Family, Transport
from proxylab.engines.barrier import family_of, highest_number_in
from proxylab.engines.embedded.settings import Periods

VERBOSE: Final = ("--vmodule=proxier=4,servicechangetracker=4,endpointschangetracker=3,service=1,endpointslicecache=3",)
"""The flags of kube-proxy by which its log has these lines: the files that log them, with their levels."""

_BEGINS: Final = re.compile(r'"Syncing (?:iptables|nftables|ipvs proxier) rules"')
_ENDS: Final = re.compile(r'"[Ss]yncProxyRules complete"')
_ERROR: Final = re.compile(
    r'^[EF]\d{4} (?:[^\n]*?\] "[^"\n]*" err=(?:"(?P<quoted>(?:[^"\\\n]|\\.)*)"|<\n(?P<lines>.*?)\n *>))?',
    re.MULTILINE | re.DOTALL,
)
"""An error, or a fatal one, as klog writes it: what it says is quoted, or has lines of its own below."""
_FAILS: Final = '"Failed to execute iptables-restore"'
_LATE: Final = 0.01
"""The seconds by which a busy machine may delay the next sync."""
_AHEAD: Final = 0.5
"""The seconds that a probe may take, before which no periodic sync should be due."""

_MOVES: Final = '"Updated proxier node'
"""The labels of its Node have changed, and kube-proxy syncs at once."""
_ZONE: Final = re.compile(r'\btopology\.kubernetes\.io/zone"?:"?([^",}\] ]+)')
_FAMILY: Final = re.compile(r' ipFamily="(IPv[46])"')
_PORT: Final = re.compile(r' servicePort="(\S+)"')
_ENDPOINTS: Final = re.compile(r' endpoints=\["?([^"\s]+:\d+)')
"""The first endpoint. kube-proxy 1.23 prints a list without quotation marks."""
_DISCARDS: Final = re.compile(r'"Couldn\'t find an endpoint for service" .*\bservice="([^"]+)"')
"""TryConnectEndpoints in pkg/proxy/userspace/proxysocket.go, for a datagram, or for a connection that it closes."""


class Rest:
    """Whether kube-proxy is at rest: no sync is under way, and none that has been asked for is still to come.

    A sync takes up all changes that kube-proxy knows then. But a change that comes while it begins asks for one more,
    which runs ``minSyncPeriod`` after its end. Without a change, mode ipvs syncs in each ``syncPeriod``, and the others
    sync once an hour (pkg/proxy/runner/bounded_frequency_runner.go).

    Args:
        periods: ``full`` is that of a sync without a reason.
    """

    def __init__(self, periods: Periods) -> None:
        self._periods = periods
        self.restart()

    def restart(self) -> None:
        """Begin with the log of a new process."""
        self._under_way = 0
        self._begun = self._latest = -math.inf

    def hear(self, line: str) -> None:
        """Read the next line."""
        if _BEGINS.search(line):
            self._under_way += 1
            self._begun = self._latest = time.monotonic()
        elif _ENDS.search(line):
            self._under_way = max(0, self._under_way - 1)
            self._latest = time.monotonic()

    @property
    def has_come(self) -> bool:
        """Whether it is at rest now."""
        now, full = time.monotonic(), self._periods.full
        is_due = self._begun + full - min(_AHEAD, full / 4) < now < self._latest + full + _LATE
        return self._under_way == 0 and now > self._latest + self._periods.least + _LATE and not is_due


class ProgressLog(Protocol):
    """Reads a log line by line."""

    def restart(self) -> None:
        """Begin with the log of a new process, which has done nothing yet."""

    def hear(self, line: str) -> None:
        """Read the next line."""

    def reached(self, family: Family) -> int:
        """The highest barrier number that it has shown."""


class BalancerLog:
    """The log of mode userspace, which balances one family.

    Attributes:
        discarded: how many datagrams the process has discarded for each service port of UDP, such as
            ``default/dns/UDP``. The log does not name the protocol, so refused connections count as well, under the
            name of a service port that has TCP.
    """

    def __init__(self) -> None:
        self.restart()

    def restart(self) -> None:
        """Begin with the log of a new process."""
        self._number = 0
        self.discarded: Counter[str] = Counter()

    def hear(self, line: str) -> None:
        """Read the next line."""
        if "Setting endpoints" in line:
            self._number = max(self._number, highest_number_in([line.encode()]))
        elif found := _DISCARDS.search(line):
            self.discarded[f"{found[1]}/{Transport.UDP}"] += 1

    def reached(self, _family: Family) -> int:
        """The highest barrier number that the balancer has had."""
        return self._number


class SyncLog:
    """The log of mode ipvs, in which the proxies of two families sync beside each other.

    Some versions do not say which family has synced. Then a number counts as reached once no sync is under way.

    Attributes:
        moves: how many syncs have ended that began after the labels of the Node had changed.
    """

    def __init__(self) -> None:
        self.restart()

    def restart(self) -> None:
        """Begin with the log of a new process."""
        self.moves = 0
        self._ports: dict[Family, int] = {}
        self._endpoints: dict[Family, int] = {}
        self._begun: dict[Family, int] = {}
        self._reached: dict[Family, int] = {}
        self._syncs: dict[Family | None, _Syncs] = {each: _Syncs(each) for each in (None, *Family)}

    def hear(self, line: str) -> None:
        """Read the next line."""
        if number := highest_number_in([line.encode()]):
            self._note(line, number)
            return
        said = _FAMILY.search(line)
        syncs = self._syncs[None if said is None else Family(said[1])]
        if _MOVES in line:
            syncs.waiting += 1
            zone = _ZONE.search(line)
            syncs.heard = "" if zone is None else zone[1]
        elif _BEGINS.search(line):
            self._begin(syncs)
        elif _FAILS in line:
            # It prints the rules in several lines, and may name the family in the last one.
            for each in (syncs,) if said else self._syncs.values():
                each.failed = each.running > 0
        elif _ENDS.search(line):
            self._end(syncs)

    def took_up(self, zone: str) -> bool:
        """Whether the last syncs that ended began with a Node in that zone; an empty one means none."""
        return all(each.zone == zone for each in self._syncs.values() if each.zone is not None)

    def reached(self, family: Family) -> int:
        """The highest barrier number whose sync has ended well."""
        return self._reached.get(family, 0)

    def _note(self, line: str, number: int) -> None:
        for found, noted in ((_PORT.search(line), self._ports), (_ENDPOINTS.search(line), self._endpoints)):
            family = None if found is None else family_of(found[1])
            if family is not None:
                noted[family] = max(noted.get(family, 0), number)

    def _begin(self, syncs: "_Syncs") -> None:
        syncs.running += 1
        syncs.moving, syncs.waiting = syncs.moving + syncs.waiting, 0
        syncs.begun = syncs.heard
        for family in syncs.families:
            self._begun[family] = min(self._ports.get(family, 0), self._endpoints.get(family, 0))

    def _end(self, syncs: "_Syncs") -> None:
        syncs.running = max(syncs.running - 1, 0)
        if syncs.running:
            return
        if not syncs.failed:
            self._reached |= {family: self._begun.get(family, 0) for family in syncs.families}
        self.moves, syncs.moving = self.moves + syncs.moving, 0
        syncs.zone = syncs.begun
        syncs.failed = False


class _Syncs:
    """The syncs under way of one family, or of any where the log does not say which.

    Attributes:
        families: whose rules they write.
        running: how many there are.
        waiting: how many changes of the Node's labels no sync has taken up yet.
        moving: how many of them those under way take up.
        failed: whether one of them could not load its rules.
        heard: the zone that kube-proxy took from its Node last; ``None`` before the first.
        begun: that when the last sync began; ``zone`` when the last one began that has ended.
    """

    def __init__(self, family: Family | None) -> None:
        self.families = tuple(Family) if family is None else (family,)
        self.running = self.waiting = self.moving = 0
        self.heard: str | None = None
        self.begun: str | None = None
        self.zone: str | None = None
        self.failed = False


def is_error(line: str) -> bool:
    """Whether an error begins in that line, or a fatal one."""
    return _ERROR.match(line) is not None


def last_error(log: str) -> str:
    """What the last error in a log says in its first line, such as the message of ``nft``; empty without any."""
    said = [
        each["lines"] or each["quoted"].replace('\\"', '"').replace("\\n", "\n")
        for each in _ERROR.finditer(log)
        if each.lastgroup
    ]
    return next((line.strip() for line in (said or [""])[-1].splitlines() if line.strip()), "")
