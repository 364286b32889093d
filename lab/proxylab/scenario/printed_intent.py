"""``spec.probes`` and ``spec.streams`` as plain data, for ``printing``. Reading the data gives the same."""

from collections.abc import Mapping
from typing import Any

from proxylab.scenario.model import (
    AddressTarget,
    ConntrackExpect,
    Entries,
    Expect,
    HostTarget,
    NodeDevice,
    PodTarget,
    Preserved,
    Probe,
    Send,
    ServiceTarget,
    Shares,
    Source,
    SourceAddress,
    SourceExpectation,
    Stream,
    Target,
    VersionRange,
)
from proxylab.scenario.printed_objects import Data, given

__all__ = [
    "axis_value",
    "printed_conntrack",
    "printed_flow",
    "printed_probe",
    "printed_source",
    "printed_when",
]


def axis_value(axis: str, value: str) -> Any:
    """The value of an axis, as an author writes it."""
    return value.split("+") if axis == "families" else value


def printed_when(when: Mapping[str, str], version: VersionRange | None) -> Data:
    """The cases of an exception."""
    axes = {axis: axis_value(axis, value) for axis, value in when.items()}
    return axes if version is None else {**axes, "version": str(version)}


def printed_flow(flow: Probe | Stream) -> Data:
    """The sender, the target and the packets."""
    return {"from": _source(flow.source), "to": _target(flow.target), "send": _send(flow.send)}


def printed_probe(probe: Probe) -> Data:
    """A probe."""
    return {
        "name": probe.name,
        **printed_flow(probe),
        "expect": _expect(probe.expect),
        "except": [
            {"when": printed_when(each.when, each.version), "expect": _expect(each.expect), "because": each.because}
            for each in probe.exceptions
        ],
    }


def _source(source: Source) -> Data:
    address = "all" if source.all_addresses else source.address and str(source.address)
    return given(name=source.name, address=address, port=source.port, loopback=source.loopback)


def _target(target: Target) -> Data:
    match target:
        case ServiceTarget():
            return given(
                service=target.service,
                namespace=target.namespace,
                port=target.port,
                via=str(target.via),
                node=target.node,
                address=str(target.address) if target.address else None,
                family=target.family and str(target.family),
            )
        case PodTarget():
            return given(pod=target.pod, port=target.port, family=target.family and str(target.family))
        case HostTarget():
            return given(host=target.host, port=target.port, family=target.family and str(target.family))
        case AddressTarget():
            return given(address=str(target.address), port=target.port)


def _send(send: Send) -> Data:
    protocol = send.protocol and str(send.protocol)
    every = f"{send.every}ms" if send.every else None
    printed = given(protocol=protocol, as_=str(send.manner), flows=send.flows, every=every, frameTo=send.frame_to)
    return {**printed, "payload": send.payload}


def _expect(expect: Expect) -> Data:
    http = expect.http
    return given(
        outcome=str(expect.outcome) if http is None or "outcome" in expect.positions else None,
        backends=list(expect.backends or ()),
        source=printed_source(expect.source),
        spread=dict(expect.spread.of) if isinstance(expect.spread, Shares) else expect.spread and str(expect.spread),
        at=expect.at,
        reply=expect.reply and str(expect.reply),
        http=http
        and {
            "status": http.status,
            **({} if http.local_endpoints is None else {"localEndpoints": http.local_endpoints}),
        },
        conntrack=printed_conntrack(expect.conntrack) if expect.conntrack else None,
    )


def printed_source(source: SourceExpectation | None) -> Any:
    """The source that a backend must see."""
    match source:
        case NodeDevice(node=node, device=device):
            return {"node": node, "device": device}
        case Preserved():
            return "preserved"
        case SourceAddress(address):
            return str(address)
        case None:
            return None


def printed_conntrack(expect: ConntrackExpect) -> Data:
    """The expectation of connection tracking."""
    sides = {"some": expect.some, "none": expect.none}
    return given(node=expect.node) | {key: _entries(each) for key, each in sides.items() if each is not None}


def _entries(entries: Entries) -> Data:
    named = given(
        protocol=entries.protocol and str(entries.protocol),
        replyFrom=entries.reply_from,
        originalFrom=entries.original_from,
        port=entries.port,
    )
    return named if entries.masqueraded is None else {**named, "masqueraded": entries.masqueraded}
