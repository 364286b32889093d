"""Rules that counted, read from the text of iptables-save, and which of them name what a probe dials.

The module does not guess: a rule with unreadable text names nothing. A counter is a witness of a flow's end only if its
rule names the dialled protocol, address (or, for node ports, "an address of this node") and port. A policy or a rule
for invalid packets may have dropped the flow, but its counter does not prove it.
"""

import re
import shlex
from collections.abc import Container, Iterable, Sequence
from functools import lru_cache
from ipaddress import ip_address, ip_network

from msgspec import Struct
from msgspec.structs import replace

from proxylab.addresses import IPAddress, IPNetwork, Transport
from proxylab.encoding import encode
from proxylab.evidence.evidence import RuleCount
from proxylab.evidence.ipvs import VIRTUAL_SERVERS
from proxylab.evidence.words import endpoint
from proxylab.plan.resolved import ResolvedProbe
from proxylab.verdict.nft_rules import read_nft

_MAP = re.compile(r" vmap @(\S+)")
_PORT = frozenset({"-p", "--dport"})

NFT_TABLE = "kube-proxy"
"""The table of mode nftables, in each family."""

SHARED_TABLES = frozenset({"filter", "mangle", "nat"})
"""The tables of iptables, in which other programs have rules, too. All else that meters count is the engine's alone."""
_OF_SERVICE_PORT = re.compile(r"KUBE-(?:SVC|SVL|SEP|EXT|FW|XLB)-(\w+)")
_OWN_CHAIN = re.compile(
    r"KUBE-(SERVICES|EXTERNAL-SERVICES|NODEPORTS|POSTROUTING|FORWARD|(PROXY-)?FIREWALL"
    r"|MARK-(MASQ|DROP)|(PROXY|KUBELET)-CANARY|(IPVS|IPVS-OUT)-FILTER|NODE-PORT|LOAD-BALANCER|SOURCE-RANGES-FIREWALL"
    r"|PORTALS-(HOST|CONTAINER)|NODEPORT-(HOST|CONTAINER|NON-LOCAL))"
)
"""The fixed chains of kube-proxy in all modes and releases, and those that the kubelet shares with it."""


def may_be_engines(count: RuleCount, resolved: ResolvedProbe) -> bool:
    """Whether a counted rule may do the work that the probe is about.

    A Service is the engine's work, and the engine wrote the rules that stand in its chains or lead to one. A policy is
    the node's, since no engine sets one. A probe of no Service asks nothing of the engine, so any rule may do it.
    """
    hashes = resolved.chain_hashes
    if not resolved.service_port or count.table not in SHARED_TABLES or is_engines_chain(count.chain, hashes):
        return True
    parsed = _parsed(count.text)
    return parsed is not None and is_engines_chain(parsed[0], hashes)


def is_engines_chain(chain: str, hashes: Container[str] | None = None) -> bool:
    """Whether a chain of iptables has a name that kube-proxy gives: a fixed one, or that of a Service port.

    ``hashes`` are those of the names of Service ports and endpoints (``cluster.chain_names``), if they are known.
    """
    if _OWN_CHAIN.fullmatch(chain) is not None:
        return True
    of_port = _OF_SERVICE_PORT.fullmatch(chain)
    return of_port is not None and (hashes is None or of_port[1] in hashes)


def as_recorded(resolved: ResolvedProbe, evidence: object) -> ResolvedProbe:
    """The resolved probe with the hashes alone that the evidence names: whose other chains are, no judge asks."""
    if resolved.chain_hashes is None:
        return resolved
    named = {each.decode() for each in re.findall(_OF_SERVICE_PORT.pattern.encode(), encode(evidence))}
    return replace(resolved, chain_hashes=resolved.chain_hashes & named)


class Rule(Struct, frozen=True):
    """One rule and its count.

    Attributes:
        count: its record in the evidence.
        target: of ``-j``, such as ``DROP``; empty if the rule has none.
        options: every option with its values and whether ``!`` stood before it, in order.
    """

    count: RuleCount
    target: str
    options: tuple[tuple[str, tuple[str, ...], bool], ...]

    @property
    def comment(self) -> str:
        return self.value("--comment")

    @property
    def looked_up(self) -> str:
        """The name of the nftables verdict map that decides; empty for a rule without one."""
        found = _MAP.search(self.count.text)
        return found[1] if found else ""

    @property
    def changes_source(self) -> bool:
        """Whether it changes the source address."""
        return self.target in ("MASQUERADE", "SNAT")

    @property
    def marks_for_masquerading(self) -> bool:
        """Whether it marks packets for masquerading: itself, or by a chain of its own for that (KUBE-MARK-MASQ)."""
        return self.target.endswith("MARK-MASQ") or (self.target == "MARK" and self.count.table == NFT_TABLE)

    @property
    def translates_to(self) -> tuple[IPAddress, int] | None:
        """Where a DNAT rule sends its packets, if it names one address and port."""
        if self.count.destination is not None:
            return self.count.destination, self.count.destination_port
        host, _, port = (self.value("--to-destination") or self.value("-r")).rpartition(":")
        try:
            return ip_address(host.strip("[]")), int(port)
        except ValueError:
            return None

    @property
    def leads_to_port(self) -> str:
        """The port to which a rule with the target DNAT or REDIRECT sends its packets, as written."""
        return self.value("--to-ports") or self.value("--to-destination").rpartition(":")[2]

    def speaks_of(self, resolved: ResolvedProbe) -> bool:
        """Whether its text names the protocol, address and port that the probe dials, and does not exclude it.

        An echo request has no port, so a rule that names its address is enough, unless it names another protocol. The
        same holds for a loopback address, to which a lab sends nothing else. A rule whose packets the kernel reported
        one by one always qualifies: they were the probe's. So does one that matches a set with a member for the packet.
        """
        if self.count.target or self.count.member:
            return True
        named = self.names(resolved)
        portless = resolved.protocol is Transport.ICMP or resolved.destination.is_loopback
        if not portless and not named >= _PORT:
            return False
        return not named.isdisjoint({"-d", "--dst-type"})

    def names(self, resolved: ResolvedProbe) -> frozenset[str]:
        """The options that match what the probe dials; none if one of them excludes it."""
        named = set()
        for name, values, negated in self.options:
            holds = _holds(name, values[0] if values else "", resolved)
            if holds is negated:
                return frozenset()
            if holds:
                named.add(name)
        return frozenset(named)

    def value(self, wanted: str) -> str:
        """The first value of an option; empty if the rule has no such option."""
        return next((values[0] for name, values, _ in self.options if name == wanted and values), "")


def read(count: RuleCount) -> Rule | None:
    """The rule of a counter; ``None`` for a chain's policy and for unreadable text.

    A destination of IPVS (``-a``) is a rule that translates, and a virtual server without one (``-A``) rejects. Of the
    rules of mode nftables, those count as read whose work the kernel reported, and those that only mark packets.
    """
    if count.table == VIRTUAL_SERVERS:
        verb, *words = count.text.split()
        return Rule(count, "DNAT" if verb == "-a" else "REJECT", _options(words))
    if count.table == NFT_TABLE:
        target, options = read_nft(count.text)
        target = count.target or ("MARK" if target == "MARK" else "")
        return Rule(count, target, options) if target else None
    if count.target:
        return Rule(count, count.target, ())
    parsed = _parsed(count.text)
    return None if parsed is None else Rule(count, *parsed)


@lru_cache(maxsize=4096)  # a lab has the same rules for all of its probes, and shlex takes a tenth of a millisecond
def _parsed(text: str) -> tuple[str, tuple[tuple[str, tuple[str, ...], bool], ...]] | None:
    """Target and options of a rule's text."""
    try:
        words = shlex.split(text)
    except ValueError:
        return None
    if words[:1] != ["-A"]:
        return None
    options = _options(words[2:])
    return next((values[0] for name, values, _ in options if name in ("-j", "-g") and values), ""), options


def ending(resolved: ResolvedProbe, counted: Sequence[Rule], target: str) -> tuple[Rule, ...]:
    """Of the rules that counted, the engine's with ``target`` (``DROP``, ``REJECT``) that name what the probe dials.

    A rule that matches a mark alone stands for the rule that set the mark (KUBE-MARK-DROP, up to Kubernetes 1.24). One
    that matches everything stands for the rules that lead to its chain (KUBE-SOURCE-RANGES-FIREWALL of mode ipvs).
    """
    marks = _marks(resolved, counted)
    ends = [rule for rule in counted if rule.target == target and may_be_engines(rule.count, resolved)]
    return tuple(
        rule
        for rule in ends
        if rule.speaks_of(resolved) or _goes_by(rule, marks) or _stands_for(rule, resolved, counted)
    )


def of_service(resolved: ResolvedProbe, counted: Sequence[Rule]) -> tuple[Rule, ...]:
    """Of the rules that counted, the engine's DNAT rules that what the probe dials leads to.

    Two Services may have the same endpoints. A rule that the kernel reported of the probe's own packets stands in a
    chain that has the Service's name.
    """
    named = [(rule, rule.names(resolved)) for rule in counted]
    reached = _behind([rule for rule, options in named if options >= _PORT or "-d" in options], counted)
    return tuple(
        rule
        for rule in counted
        if rule.target == "DNAT"
        and may_be_engines(rule.count, resolved)
        and (not resolved.service_port or _stands_in(rule) in reached or _is_for(rule, resolved))
    )


def _is_for(rule: Rule, resolved: ResolvedProbe) -> bool:
    """Whether a DNAT rule itself names what the probe dials: a virtual server, or by its chain of mode nftables."""
    if rule.count.table == VIRTUAL_SERVERS:
        return rule.count.chain.endswith(f" {endpoint(resolved.destination, resolved.port)}")
    if rule.count.target:
        service, _, port = resolved.service_port.partition(":")
        chain, _, _ = rule.count.chain.partition("__")
        return chain.endswith(f"-{service}/{resolved.protocol.lower()}/{port}")
    return rule.names(resolved) >= _PORT


def read_all(counts: Iterable[RuleCount]) -> list[Rule]:
    """Every rule that counted and can be read."""
    return [rule for count in counts if count.packets > 0 and (rule := read(count)) is not None]


def _marks(resolved: ResolvedProbe, counted: Sequence[Rule]) -> frozenset[tuple[str, int]]:
    """The marks that counted rules set, by node, in chains behind a rule for the probe's protocol and port.

    Every rule on that path must have counted. The dialled address is no condition: the chain for node ports leaves it
    to the rule that jumps there.
    """
    reached = _behind([rule for rule in counted if rule.names(resolved) >= _PORT], counted)
    return frozenset(
        (rule.count.node, mark)
        for rule in counted
        if rule.target == "MARK" and _stands_in(rule) in reached
        for mark in _whole_marks(rule, ("--set-xmark", "--or-mark"))
    )


def _behind(leading: Iterable[Rule], counted: Sequence[Rule]) -> set[tuple[str, str, str]]:
    """The chains that these rules lead to, at once or through other rules that counted."""
    reached = {_leads_to(rule) for rule in leading}
    while not (further := {_leads_to(rule) for rule in counted if _stands_in(rule) in reached}) <= reached:
        reached |= further
    return reached


def _goes_by(rule: Rule, marks: Container[tuple[str, int]]) -> bool:
    """Whether one of those marks is the only condition of the rule."""
    return _conditions(rule) == [("--mark", False)] and any(
        (rule.count.node, mark) in marks for mark in _whole_marks(rule, ("--mark",))
    )


def _stands_for(rule: Rule, resolved: ResolvedProbe, counted: Sequence[Rule]) -> bool:
    """Whether a rule has no condition, and all counted rules that lead to its chain name what the probe dials."""
    leading = [each for each in counted if _leads_to(each) == _stands_in(rule)]
    return bool(leading) and not _conditions(rule) and all(each.speaks_of(resolved) for each in leading)


def _conditions(rule: Rule) -> list[tuple[str, bool]]:
    """The options by which a rule matches, and whether each is negated."""
    return [(name, negated) for name, _, negated in rule.options if name not in ("-m", "--comment", "-j")]


def _stands_in(rule: Rule) -> tuple[str, str, str]:
    return rule.count.node, rule.count.table, rule.count.chain


def _leads_to(rule: Rule) -> tuple[str, str, str]:
    return rule.count.node, rule.count.table, rule.target


def _whole_marks(rule: Rule, options: Sequence[str]) -> list[int]:
    """Marks that the rule sets or matches with a mask of the same bits: ``0x8000/0x8000``."""
    found = []
    for option in options:
        value, _, mask = rule.value(option).partition("/")
        if value and value == (mask or value):
            found.append(int(value, 0))
    return found


def _options(words: Sequence[str]) -> tuple[tuple[str, tuple[str, ...], bool], ...]:
    """Options with their values. Only a value of ``--comment`` may begin with a dash."""
    options: list[tuple[str, tuple[str, ...], bool]] = []
    negated = False
    at = 0
    while at < len(words):
        word = words[at]
        at += 1
        if word == "!":
            negated = True
            continue
        end = at
        if word == "--comment":
            end = at + 1
        else:
            while end < len(words) and words[end] != "!" and not words[end].startswith("-"):
                end += 1
        options.append((word, tuple(words[at:end]), negated))
        negated, at = False, end
    return tuple(options)


def _holds(option: str, value: str, resolved: ResolvedProbe) -> bool | None:
    """Whether a match holds for what the probe sends; ``None`` where the text alone does not show it."""
    match option:
        case "-p":
            return value.lower() in _protocols(resolved)
        case "-s":
            return within(resolved.sender.address, value)
        case "-d":
            return within(resolved.destination, value)
        case "--dport":
            return resolved.protocol is not Transport.ICMP and _in_range(resolved.port, value)
        case "--dst-type" if value == "LOCAL":
            return True  # the rule counted, so the address was one of the node's
        case _:
            return None


def _protocols(resolved: ResolvedProbe) -> tuple[str, ...]:
    """How a rule may name the protocol: ICMP of IPv6 has a name of its own (protocols(5))."""
    if resolved.protocol is Transport.ICMP and resolved.destination.version == 6:
        return "ipv6-icmp", "icmpv6"
    return (resolved.protocol.lower(),)


def within(address: IPAddress, text: str) -> bool:
    """Whether an address is in the network that a rule's text names; false for unreadable text."""
    try:
        network: IPNetwork = ip_network(text, strict=False)
    except ValueError:
        return False
    return address.version == network.version and address in network


def _in_range(port: int, text: str) -> bool:
    first, _, last = text.partition(":")
    try:
        return int(first) <= port <= int(last or first)
    except ValueError:
        return False
