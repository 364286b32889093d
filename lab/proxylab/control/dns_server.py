"""The name server of a lab: answers DNS queries for the cluster's names, bytes in, bytes out, by dnspython.

An existing name without a record of the queried type gets an empty answer, a missing name NXDOMAIN; both carry the SOA
for negative caching (RFC 2308). The server refuses names outside the cluster's domain, since the lab has no upstream.
It truncates an answer that does not fit, and the client retries by TCP (RFC 7766).
"""

from collections.abc import Iterator
from typing import Final

import dns.edns
import dns.exception
import dns.flags
import dns.message
import dns.name
import dns.opcode
import dns.rcode
import dns.rdata
import dns.rdataclass
import dns.rdatatype
import dns.rrset

from proxylab.cluster.kube_dns import TTL_SECONDS, ClusterNames, DnsRecord, Srv
from proxylab.cluster.objects import EndpointSlice, Service
from proxylab.cluster.store import Store

SMALLEST: Final = 512
"""Octets that every client accepts by UDP (RFC 1035, section 4.2.1)."""

LARGEST: Final = 65535
"""Octets of a message by TCP."""

_LARGEST_BY_UDP: Final = 4096
_CHAIN: Final = 8
"""The most CNAMEs to follow, which ends a loop."""


class NameService:
    """Answers for every name server of one lab.

    Args:
        hidden: the namespace of the lab's own objects, which get no names.
    """

    def __init__(self, store: Store, hidden: str = "") -> None:
        self._store = store
        self._hidden = hidden
        self._names = ClusterNames((), ())
        self._revision = -1

    def respond(self, server: str, message: bytes, by_udp: bool) -> bytes | None:
        """The response of the server of that name to a message; ``None`` for no response."""
        return answer(self._current(), message, serial=self._store.revision, by_udp=by_udp, server=server)

    def _current(self) -> ClusterNames:
        """The names of the cluster as it is now, rebuilt when it has changed since the last query."""
        if self._revision != self._store.revision:
            services = [each for each in self._store.list(Service) if each.namespace != self._hidden]
            self._names = ClusterNames(services, self._store.list(EndpointSlice))
            self._revision = self._store.revision
        return self._names


def answer(
    names: ClusterNames, query: bytes, *, serial: int = 1, by_udp: bool = True, server: str = ""
) -> bytes | None:
    """The response to ``query``; ``None`` for a message that is not a query.

    ``serial`` goes into the SOA: the revision of the cluster that ``names`` is of. ``server`` answers the EDNS option
    NSID (RFC 5001).
    """
    try:
        request = dns.message.from_wire(query)
    except (dns.exception.DNSException, ValueError):
        return _malformed(query)
    if request.flags & dns.flags.QR:
        return None
    response = dns.message.make_response(request, recursion_available=False)
    response.set_rcode(_fill(response, request, names, serial))
    if any(option.otype is dns.edns.OptionType.NSID for option in request.options):
        own_name = dns.edns.GenericOption(dns.edns.OptionType.NSID, server.encode())
        response.use_edns(payload=_LARGEST_BY_UDP, options=[own_name])
    size = min(_LARGEST_BY_UDP, max(SMALLEST, request.payload)) if by_udp else LARGEST
    return response.to_wire(max_size=size, prefer_truncation=True)


def _malformed(query: bytes) -> bytes | None:
    """FORMERR under the same id; nothing for a message without an id, or one that is itself a response."""
    if len(query) < 12 or query[2] & 0x80:
        return None
    response = dns.message.Message(int.from_bytes(query[:2], "big"))
    response.flags = dns.flags.QR
    response.set_rcode(dns.rcode.FORMERR)
    return response.to_wire()


def _fill(
    response: dns.message.Message, request: dns.message.Message, names: ClusterNames, serial: int
) -> dns.rcode.Rcode:
    """Put the records into ``response``, and return the response code."""
    if request.opcode() is not dns.opcode.QUERY:
        return dns.rcode.NOTIMP
    if len(request.question) != 1:
        return dns.rcode.FORMERR
    question = request.question[0]
    name = question.name.to_text(omit_final_dot=True).lower()
    if question.rdclass not in (dns.rdataclass.IN, dns.rdataclass.ANY) or not names.covers(name):
        return dns.rcode.REFUSED
    response.flags |= dns.flags.AA
    soa = _soa(names, serial)
    if names.at(name) is None:
        response.authority.append(soa)
        return dns.rcode.NXDOMAIN
    if name == names.domain and question.rdtype in (dns.rdatatype.SOA, dns.rdatatype.ANY):
        response.answer.append(soa)
    response.answer.extend(_answers(names, question.name, question.rdtype))
    if question.rdtype is dns.rdatatype.SRV:
        response.additional.extend(_additional(names, response.answer))
    if not response.answer:
        response.authority.append(soa)
    return dns.rcode.NOERROR


def _answers(names: ClusterNames, name: dns.name.Name, wanted: dns.rdatatype.RdataType) -> Iterator[dns.rrset.RRset]:
    """The records of the wanted type; a CNAME answers every type, and is followed inside the cluster's domain."""
    for _ in range(_CHAIN):
        records = names.at(name.to_text(omit_final_dot=True).lower()) or ()
        sets: dict[dns.rdatatype.RdataType, dns.rrset.RRset] = {}
        for record in records:
            kind = dns.rdatatype.from_text(record.kind)
            if wanted in (kind, dns.rdatatype.ANY) or kind is dns.rdatatype.CNAME:
                found = sets.setdefault(kind, dns.rrset.RRset(name, dns.rdataclass.IN, kind))
                found.add(_rdata(record, kind), ttl=TTL_SECONDS)
        yield from sets.values()
        leads_on = sets.get(dns.rdatatype.CNAME)
        if leads_on is None or wanted in (dns.rdatatype.CNAME, dns.rdatatype.ANY):
            return
        name = leads_on[0].target


def _additional(names: ClusterNames, answers: list[dns.rrset.RRset]) -> Iterator[dns.rrset.RRset]:
    """The addresses of the targets of SRV records, which spare the client a query (RFC 2782)."""
    targets = dict.fromkeys(record.target for each in answers for record in each)
    for target in targets:
        for kind in (dns.rdatatype.A, dns.rdatatype.AAAA):
            yield from _answers(names, target, kind)


def _soa(names: ClusterNames, serial: int) -> dns.rrset.RRset:
    zone = names.domain
    text = f"ns.dns.{zone}. hostmaster.{zone}. {serial} 7200 1800 86400 {TTL_SECONDS}"
    return dns.rrset.from_text(f"{zone}.", TTL_SECONDS, "IN", "SOA", text)


def _rdata(record: DnsRecord, kind: dns.rdatatype.RdataType) -> dns.rdata.Rdata:
    match record.value:
        case Srv(target=target, port=port, priority=priority, weight=weight):
            text = f"{priority} {weight} {port} {target}."
        case str(name) if kind is not dns.rdatatype.TXT:
            text = f"{name}."
        case str(words):
            text = f'"{words}"'
        case address:
            text = str(address)
    return dns.rdata.from_text(dns.rdataclass.IN, kind, text)
