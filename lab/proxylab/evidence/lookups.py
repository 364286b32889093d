"""DNS queries and their answers, as the lab's client saw them."""

from ipaddress import ip_address

from proxylab.addresses import IPAddress
from proxylab.encoding import Record


class NamedRecord(Record, frozen=True):
    """One record of an answer: ``value`` as zone files spell it (RFC 1035, section 5.1), names without the last dot."""

    name: str
    kind: str
    value: str
    ttl: int


class Lookup(Record, frozen=True, kw_only=True):
    """One DNS query, and its answer.

    Attributes:
        name: absolute, without the dot at the end.
        kind: of the records asked for, such as ``AAAA``.
        server: the address that got the query.
        error: why no answer came: ``timeout``, the name of an errno, or ``malformed``; empty with an answer.
        code: of the answer, such as ``NXDOMAIN``.
        answers: the records of the answer's first section.
        authority: those of the second; without answers, the SOA with the time to cache it.
        additional: those of the third.
        truncated: whether the answer did not fit UDP, so that the client asked again by TCP.
        by_tcp: whether the answer came by TCP.
        served_by: the pod that answered, as it names itself (NSID, RFC 5001).
    """

    name: str
    kind: str
    server: IPAddress
    error: str = ""
    code: str = ""
    answers: tuple[NamedRecord, ...] = ()
    authority: tuple[NamedRecord, ...] = ()
    additional: tuple[NamedRecord, ...] = ()
    truncated: bool = False
    by_tcp: bool = False
    served_by: str = ""

    @property
    def owners(self) -> frozenset[str]:
        """The name asked for and its aliases, in lower case: the owners of records that answer the question."""
        aliases = {each.name.lower(): each.value.lower() for each in self.answers if each.kind == "CNAME"}
        found, name = set[str](), self.name.lower()
        while name and name not in found:
            found.add(name)
            name = aliases.get(name, "")
        return frozenset(found)

    @property
    def addresses(self) -> tuple[IPAddress, ...]:
        """The addresses that a client accepts: of the name asked for or its aliases, in an answer without an error."""
        if self.code != "NOERROR":
            return ()
        records = (each for each in self.answers if each.kind in ("A", "AAAA") and each.name.lower() in self.owners)
        return tuple(ip_address(each.value) for each in records)
