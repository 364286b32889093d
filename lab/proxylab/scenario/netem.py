"""What the kernel's netem does to the packets of a link: a key of nodes, uplinks, pods and hosts, and of steps."""

import re
from collections.abc import Iterator
from typing import Annotated, Final

from proxylab.scenario.document import describe, shown
from proxylab.scenario.keys import Check, Declared, Key, Read, refused
from proxylab.scenario.syntax import Duration

__all__ = ["AnyNetem", "Netem"]

_PERCENT: Final = re.compile(r"([0-9]{1,3}(?:\.[0-9]{1,4})?)%")


def _percent(value: object) -> float:
    found = _PERCENT.fullmatch(value) if isinstance(value, str) else None
    if found is None:
        raise refused(f"must be a share such as 10%, is {describe(value)}", allowed="a number with a percent sign")
    if not 0 < float(found[1]) <= 100:
        raise refused(f"{shown(value)} is out of range", allowed="allowed: more than 0%, 100% at most")
    return float(found[1])


_Percent = Annotated[float, Read(_percent, str)]


class Netem(Declared, frozen=True, kw_only=True):
    """What a link does to packets by the kernel's netem (tc-netem(8)), in each direction on its own.

    It works on frames on their way between the two ends, so taps at the ends see each frame that enters the link and
    each that leaves it. The judge attributes what disappears there to the link, and not to the proxy.
    """

    loss: Annotated[_Percent, Key("The share of packets that the link loses, by chance.", ["10%"])] = 0.0
    delay: Annotated[Duration, Key("How long each packet takes.", ["20ms"])] = 0
    jitter: Annotated[
        Duration,
        Key("By how much the delay of a packet may differ, either way. Packets overtake each other then.", ["5ms"]),
    ] = 0
    reorder: Annotated[
        _Percent, Key("The share of packets that pass without the delay, and so overtake others.", ["25%"])
    ] = 0.0
    duplicate: Annotated[_Percent, Key("The share of packets that come out twice.", ["1%"])] = 0.0

    def __str__(self) -> str:
        return ", ".join(self._words())

    def _words(self) -> Iterator[str]:
        yield from (f"{key} {value:g}%" for key, value in (("loss", self.loss),) if value)
        if self.delay:
            yield f"delay {self.delay} ms" + (f" ± {self.jitter} ms" if self.jitter else "")
        yield from (
            f"{key} {value:g}%" for key, value in (("reorder", self.reorder), ("duplicate", self.duplicate)) if value
        )

    @property
    def longest(self) -> float:
        """The longest that a packet takes, in seconds."""
        return (self.delay + self.jitter) / 1000


def _possible(netem: Netem) -> Netem:
    if netem == Netem():
        raise refused("does nothing", allowed="give a loss, a delay or a share of duplicates")
    if netem.jitter > netem.delay:
        raise refused(f"jitter {netem.jitter} ms is longer than the delay", allowed="give a longer delay")
    if netem.reorder and not netem.delay:
        raise refused("reorder needs a delay, without which no packet is late", allowed="give a delay")
    return netem


AnyNetem = Annotated[Netem, Check(_possible)]
