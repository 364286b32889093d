"""The path of a probe through a lab's network, for drawings; ``seen_path`` builds one from evidence."""

from collections.abc import Iterator
from itertools import pairwise

from msgspec import Struct

from proxylab.evidence.evidence import Packet
from proxylab.verdict.case import Case
from proxylab.verdict.flows import Ends, Stop


class PathHop(Struct, frozen=True):
    """One hop of a packet, from a device of one namespace to a device of another.

    Attributes:
        origin: the sending namespace of the plan, or pod.
        target: the receiving namespace, or pod.
        packet: its source and destination on this hop, and its kind unless it is a request.
        changes: the translations at ``origin`` before this hop, in clauses.
        is_request: whether the packet travels from the client to the server.
    """

    origin: str
    out: str
    target: str
    into: str
    packet: str
    changes: tuple[str, ...] = ()
    is_request: bool = True


class Branch(Struct, frozen=True):
    """One of several continuations of a path. ``name`` is the backend's name; empty if there is only one."""

    name: str
    legs: tuple[PathHop, ...]
    ends: tuple[str, ...] = ()


class Path(Struct, frozen=True):
    """A path with its branches. ``ends`` are clauses about how it ends, or why it branches."""

    title: str
    legs: tuple[PathHop, ...]
    branches: tuple[Branch, ...] = ()
    ends: tuple[str, ...] = ()

    @property
    def all_legs(self) -> tuple[PathHop, ...]:
        """The common legs, then those of each branch."""
        return (*self.legs, *(leg for branch in self.branches for leg in branch.legs))


def seen_path(case: Case, number: int = 0) -> Path:
    """The path of one flow in both directions, as the taps saw it."""
    found = case.flows[number].stops
    legs = tuple(_legs(found))
    title = f"{case.probe.name}, as captured"
    if len(case.flows) > 1:
        title += f": flow {number:,} of {len(case.flows):,}"
    return Path(title, legs, ends=() if found else ("no tap saw it",))


def _legs(found: tuple[Stop, ...]) -> Iterator[PathHop]:
    relayed: tuple[str, ...] = ()
    for before, stop in pairwise(found):
        if stop.relayed:
            there = stop.packet is Packet.REQUEST
            words = "the proxy ends the connection and opens its own" if there else "the proxy passes the answer on"
            relayed = (*_changes(before.came, before.went), words)
        elif stop.follows:
            kind = "" if stop.packet is Packet.REQUEST else f"{stop.packet} "
            changes = (*relayed, *_changes(before.came, before.went), *_changes(before.went, stop.came))
            relayed = ()
            packet = f"{kind}{stop.came.source} > {stop.came.destination}"
            yield PathHop(before.netns_name, before.out, stop.netns_name, stop.by, packet, changes, not kind)


def _changes(old: Ends, new: Ends) -> Iterator[str]:
    if old.destination != new.destination:
        yield f"destination {old.destination} becomes {new.destination}"
    if old.source != new.source:
        yield f"source {old.source} becomes {new.source}"
