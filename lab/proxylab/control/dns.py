"""DNS messages: a question about the cluster's names becomes an answer.

Owns: ``answer``: bytes in, bytes out, by dnspython; which response code, flags and sections a question gets.
Must not: open sockets (``control.nameserver``), or know how names come from objects (``cluster.names``).

An existing name without a record of the type asked for gets an empty answer, a name that does not exist NXDOMAIN, both
with the SOA that says how long to believe it (RFC 2308); what is outside of the cluster's domain is refused, since the
lab has no upstream. An answer that does not fit is truncated, and the client comes back by TCP (RFC 7766).
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

from proxylab.cluster.names import TTL_SECONDS, Names, Record, Srv

__all__ = ["LARGEST", "SMALLEST", "answer"]

SMALLEST: Final = 512
"""Octets that every client takes by UDP (RFC 1035, section 4.2.1)."""

LARGEST: Final = 65535
"""Octets of a message by TCP."""

_LARGEST_BY_UDP: Final = 4096
_CHAIN: Final = 8
"""CNAMEs that are followed, should they lead in a circle."""


def answer(names: Names, query: bytes, *, serial: int = 1, by_udp: bool = True, server: str = "") -> bytes | None:
    """The answer to ``query``; ``None`` for what is no question at all, which a server leaves unanswered.

    ``serial`` goes into the SOA: the revision of the cluster that ``names`` is of. Who asks by an EDNS option which
    ``server`` it is (NSID, RFC 5001) is told so.
    """
    try:
        asked = dns.message.from_wire(query)
    except (dns.exception.DNSException, ValueError):
        return _malformed(query)
    if asked.flags & dns.flags.QR:
        return None
    said = dns.message.make_response(asked, recursion_available=False)
    said.set_rcode(_fill(said, asked, names, serial))
    if any(option.otype is dns.edns.OptionType.NSID for option in asked.options):
        own_name = dns.edns.GenericOption(dns.edns.OptionType.NSID, server.encode())
        said.use_edns(payload=_LARGEST_BY_UDP, options=[own_name])
    size = min(_LARGEST_BY_UDP, max(SMALLEST, asked.payload)) if by_udp else LARGEST
    return said.to_wire(max_size=size, prefer_truncation=True)


def _malformed(query: bytes) -> bytes | None:
    """FORMERR under the same id, if there is one and nobody answers an answer."""
    if len(query) < 12 or query[2] & 0x80:
        return None
    said = dns.message.Message(int.from_bytes(query[:2], "big"))
    said.flags = dns.flags.QR
    said.set_rcode(dns.rcode.FORMERR)
    return said.to_wire()


def _fill(said: dns.message.Message, asked: dns.message.Message, names: Names, serial: int) -> dns.rcode.Rcode:
    """Put the records into ``said``, and return the response code."""
    if asked.opcode() is not dns.opcode.QUERY:
        return dns.rcode.NOTIMP
    if len(asked.question) != 1:
        return dns.rcode.FORMERR
    question = asked.question[0]
    name = question.name.to_text(omit_final_dot=True).lower()
    if question.rdclass not in (dns.rdataclass.IN, dns.rdataclass.ANY) or not names.covers(name):
        return dns.rcode.REFUSED
    said.flags |= dns.flags.AA
    soa = _soa(names, serial)
    if names.at(name) is None:
        said.authority.append(soa)
        return dns.rcode.NXDOMAIN
    if name == names.domain and question.rdtype in (dns.rdatatype.SOA, dns.rdatatype.ANY):
        said.answer.append(soa)
    said.answer.extend(_answers(names, question.name, question.rdtype))
    if question.rdtype is dns.rdatatype.SRV:
        said.additional.extend(_additional(names, said.answer))
    if not said.answer:
        said.authority.append(soa)
    return dns.rcode.NOERROR


def _answers(names: Names, asked: dns.name.Name, wanted: dns.rdatatype.RdataType) -> Iterator[dns.rrset.RRset]:
    """The records asked for; a CNAME stands for whatever is asked, and leads on while the cluster knows the way."""
    name = asked
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


def _additional(names: Names, answers: list[dns.rrset.RRset]) -> Iterator[dns.rrset.RRset]:
    """The addresses of the targets of SRV records, so that nobody has to ask again (RFC 2782)."""
    targets = dict.fromkeys(record.target for each in answers for record in each)
    for target in targets:
        for kind in (dns.rdatatype.A, dns.rdatatype.AAAA):
            yield from _answers(names, target, kind)


def _soa(names: Names, serial: int) -> dns.rrset.RRset:
    zone = names.domain
    text = f"ns.dns.{zone}. hostmaster.{zone}. {serial} 7200 1800 86400 {TTL_SECONDS}"
    return dns.rrset.from_text(f"{zone}.", TTL_SECONDS, "IN", "SOA", text)


def _rdata(record: Record, kind: dns.rdatatype.RdataType) -> dns.rdata.Rdata:
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
