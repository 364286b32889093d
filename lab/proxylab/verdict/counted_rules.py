"""Rules that counted, which of them name what a probe dials, and what each is and does in words.

The module does not guess: a rule with unreadable text names nothing. A counter is a witness of a flow's end only if its
rule names the dialled protocol, address (or, for node ports, "an address of this node") and port. A policy or a rule
for invalid packets may have dropped the flow, but its counter does not prove it.
"""

import re
from collections.abc import Callable, Container, Iterable, Sequence
from ipaddress import ip_address, ip_network
from typing import Final, NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from proxylab.addresses import IPAddress, IPNetwork, Transport
from proxylab.encoding import encode
from proxylab.evidence.evidence import RuleCount
from proxylab.evidence.ipvs import VIRTUAL_SERVERS
from proxylab.evidence.words import endpoint, listed
from proxylab.plan.resolved import ResolvedProbe
from proxylab.rules.effects import new_end
from proxylab.rules.ipvs import DESTINATION
from proxylab.rules.packets import Answer, Field, Packets, answer, comparisons
from proxylab.rules.rule import Match, Rule, Tool
from proxylab.rules.texts import read_rule

DIALLED_PORT: Final = frozenset({Field.PROTOCOL, Field.DESTINATION_PORT})
"""What a rule for a port names; an address beside it may be any of the node's."""
_SOURCES: Final = frozenset({"-s", "ip saddr", "ip6 saddr"})
_IN_DEVICES: Final = frozenset({"-i", "iifname"})

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
    rule = read_rule(count.text)
    return rule is not None and is_engines_chain(rule.target, hashes)


def is_engines_chain(chain: str, hashes: Container[str] | None = None) -> bool:
    """Whether a chain of iptables has a name that kube-proxy gives: a fixed one, or that of a Service port.

    ``hashes`` are those of the names of Service ports and endpoints (``cluster.chain_names``), if they are known.
    """
    if _OWN_CHAIN.fullmatch(chain) is not None:
        return True
    of_port = _OF_SERVICE_PORT.fullmatch(chain)
    return of_port is not None and (hashes is None or of_port[1] in hashes)


def as_recorded(resolved: ResolvedProbe, evidence: object) -> ResolvedProbe:
    """The resolved probe, with no other hashes than those of chains in the evidence: the judge asks for these alone."""
    if resolved.chain_hashes is None:
        return resolved
    named = {each.decode() for each in re.findall(_OF_SERVICE_PORT.pattern.encode(), encode(evidence))}
    return replace(resolved, chain_hashes=resolved.chain_hashes & named)


class CountedRule(Struct, frozen=True):
    """One rule and its count.

    Attributes:
        count: its record in the evidence.
        target: what it does, in iptables' words, such as ``DROP``; empty if the rule has no target.
        read: its conditions and actions.
    """

    count: RuleCount
    target: str
    read: Rule

    @property
    def comment(self) -> str:
        return self.read.comment

    @property
    def looked_up(self) -> str:
        """The name of the nftables verdict map that decides; empty for a rule without one."""
        return self.read.looked_up

    @property
    def excepted_sources(self) -> tuple[str, ...]:
        """The networks of sources that it leaves out."""
        return _values(each for each in self.read.matches if each.negated and each.name in _SOURCES)

    @property
    def excepted_devices(self) -> tuple[str, ...]:
        """The devices that packets came in by and that it leaves out."""
        return _values(each for each in self.read.matches if each.negated and each.name in _IN_DEVICES)

    @property
    def sources(self) -> tuple[str, ...]:
        """The networks of sources that it is for; empty where it is for any."""
        return _values(each for each in self.read.matches if not each.operator and each.name in _SOURCES)

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
        host, port = new_end(self.read)
        try:
            return ip_address(host), int(port)
        except ValueError:
            return None

    @property
    def leads_to_port(self) -> str:
        """The port to which a rule with the target DNAT or REDIRECT sends its packets, as written."""
        return new_end(self.read)[1]

    def matches(self, resolved: ResolvedProbe) -> bool:
        """Whether its text names the protocol, address and port that the probe dials, and does not exclude it.

        An echo request has no port, so a rule that names its address is enough, unless it names another protocol. The
        same holds for a loopback address, to which a lab sends nothing else. A rule whose packets the kernel reported
        one by one always qualifies: they were the probe's. So does one that matches a set with a member for the packet.
        """
        if self.count.target or self.count.member:
            return True
        named = self.matched_fields(resolved)
        portless = resolved.protocol is Transport.ICMP or resolved.destination.is_loopback
        if not portless and not named >= DIALLED_PORT:
            return False
        return Field.DESTINATION in named

    def matched_fields(self, resolved: ResolvedProbe) -> frozenset[Field]:
        """What of the dialled protocol, address and port its conditions name; nothing if one of them excludes it."""
        ports = () if resolved.protocol is Transport.ICMP else (resolved.port,)
        sent = Packets((resolved.protocol,), (resolved.sender.address,), (resolved.destination,), (), ports)
        named: set[Field] = set()
        for match in self.read.matches:
            if match.name == "--dst-type" and match.value == "LOCAL":
                holds, fields = not match.negated, {Field.DESTINATION}  # it counted, so the node has the address
            else:
                holds = answer(match, sent) is not Answer.NO
                fields = {each.field for each in comparisons(match)[0] if each.answer(sent) is Answer.YES}
            if not holds:
                return frozenset()
            named |= set() if match.negated else fields
        return frozenset(named)

    def value(self, option: str) -> str:
        """The first value of an option; empty if the rule has no such option."""
        return self.read.value(option)


def _values(matches: Iterable[Match]) -> tuple[str, ...]:
    return next((each.alternatives for each in matches), ())


_BY_STATEMENT: Final = {
    "dnat": "DNAT",
    "redirect": "REDIRECT",
    "masquerade": "MASQUERADE",
    "snat": "SNAT",
    "reject": "REJECT",
    "drop": "DROP",
}
"""Targets of iptables by the statements of nft that do the same."""


def target_of(rule: Rule) -> str:
    """The target of a rule in iptables' words; empty for a rule of nft that only leads on, or lets packets pass."""
    if not rule.is_nft:
        return rule.target
    done = {each.name: each.words for each in rule.actions}
    target = next((target for name, target in _BY_STATEMENT.items() if name in done), "")
    return target or ("MARK" if done.get("meta mark set", ())[:3] == ("meta", "mark", "|") else "")


def read(count: RuleCount) -> CountedRule | None:
    """The rule of a counter; ``None`` for a chain's policy and for unreadable text.

    A destination of IPVS is a rule that translates, and a virtual server without one rejects. Of the rules of mode
    nftables, those count as read whose work the kernel reported, and those that only mark packets.
    """
    rule = read_rule(count.text)
    if rule is not None and rule.tool is Tool.IPVSADM:
        return CountedRule(count, "DNAT" if rule.target == DESTINATION else "REJECT", rule)
    if count.table == NFT_TABLE:
        target = count.target or ("MARK" if rule is not None and target_of(rule) == "MARK" else "")
        return CountedRule(count, target, rule) if target and rule is not None else None
    if count.target:
        return CountedRule(count, count.target, Rule("", ()))
    return None if rule is None or rule.is_policy or rule.is_nft else CountedRule(count, rule.target, rule)


def ending(resolved: ResolvedProbe, counted: Sequence[CountedRule], target: str) -> tuple[CountedRule, ...]:
    """Of the rules that counted, the engine's with ``target`` (``DROP``, ``REJECT``) that name what the probe dials.

    A rule that matches a mark alone stands for the rule that set the mark (KUBE-MARK-DROP, up to Kubernetes 1.24). One
    that matches everything stands for the rules that lead to its chain (KUBE-SOURCE-RANGES-FIREWALL of mode ipvs).
    """
    marks = _marks(resolved, counted)
    ends = [rule for rule in counted if rule.target == target and may_be_engines(rule.count, resolved)]
    return tuple(
        rule
        for rule in ends
        if rule.matches(resolved) or _matches_by_mark(rule, marks) or _matches_by_callers(rule, resolved, counted)
    )


def of_service(resolved: ResolvedProbe, counted: Sequence[CountedRule]) -> tuple[CountedRule, ...]:
    """Of the rules that counted, the engine's DNAT rules that what the probe dials leads to.

    Two Services may have the same endpoints. A rule that the kernel reported of the probe's own packets stands in a
    chain that has the Service's name.
    """
    named = [(rule, rule.matched_fields(resolved)) for rule in counted]
    leading = [rule for rule, fields in named if fields >= DIALLED_PORT or Field.DESTINATION in fields]
    reached = _behind(leading, counted)
    return tuple(
        rule
        for rule in counted
        if rule.target == "DNAT"
        and may_be_engines(rule.count, resolved)
        and (not resolved.service_port or _stands_in(rule) in reached or _is_for(rule, resolved))
    )


def _is_for(rule: CountedRule, resolved: ResolvedProbe) -> bool:
    """Whether a DNAT rule itself names what the probe dials: a virtual server, or by its chain of mode nftables."""
    if rule.count.target and rule.read.tool is not Tool.IPVSADM:
        service, _, port = resolved.service_port.partition(":")
        chain, _, _ = rule.count.chain.partition("__")
        return chain.endswith(f"-{service}/{resolved.protocol.lower()}/{port}")
    return rule.matched_fields(resolved) >= DIALLED_PORT


def read_all(counts: Iterable[RuleCount]) -> list[CountedRule]:
    """Every rule that counted and can be read."""
    return [rule for count in counts if count.packets > 0 and (rule := read(count)) is not None]


class _Chain(NamedTuple):
    """A chain, by its place."""

    node: str
    table: str
    chain: str


def _marks(resolved: ResolvedProbe, counted: Sequence[CountedRule]) -> frozenset[tuple[str, int]]:
    """The marks that counted rules set, by node, in chains behind a rule for the probe's protocol and port.

    Every rule on that path must have counted. The dialled address is no condition: the chain for node ports leaves it
    to the rule that jumps there.
    """
    reached = _behind([rule for rule in counted if rule.matched_fields(resolved) >= DIALLED_PORT], counted)
    return frozenset(
        (rule.count.node, mark)
        for rule in counted
        if rule.target == "MARK" and _stands_in(rule) in reached
        for mark in _whole_marks(rule, ("--set-xmark", "--or-mark"))
    )


def _behind(leading: Iterable[CountedRule], counted: Sequence[CountedRule]) -> set[_Chain]:
    """The chains that these rules lead to, at once or through other rules that counted."""
    reached = {_leads_to(rule) for rule in leading}
    while not (further := {_leads_to(rule) for rule in counted if _stands_in(rule) in reached}) <= reached:
        reached |= further
    return reached


def _matches_by_mark(rule: CountedRule, marks: Container[tuple[str, int]]) -> bool:
    """Whether one of those marks is the only condition of the rule."""
    return _conditions(rule) == [("--mark", False)] and any(
        (rule.count.node, mark) in marks for mark in _whole_marks(rule, ("--mark",))
    )


def _matches_by_callers(rule: CountedRule, resolved: ResolvedProbe, counted: Sequence[CountedRule]) -> bool:
    """Whether a rule has no condition, and all counted rules that lead to its chain name what the probe dials."""
    leading = [each for each in counted if _leads_to(each) == _stands_in(rule)]
    return bool(leading) and not _conditions(rule) and all(each.matches(resolved) for each in leading)


def _conditions(rule: CountedRule) -> list[tuple[str, bool]]:
    """The conditions of a rule, and whether each is negated."""
    return [(each.name, each.negated) for each in rule.read.matches if each.name not in ("-m", "--comment")]


def _stands_in(rule: CountedRule) -> _Chain:
    return _Chain(rule.count.node, rule.count.table, rule.count.chain)


def _leads_to(rule: CountedRule) -> _Chain:
    """The chain that its target names; no chain has the name of another target."""
    return _Chain(rule.count.node, rule.count.table, rule.target)


def _whole_marks(rule: CountedRule, options: Sequence[str]) -> list[int]:
    """Marks that the rule sets or matches with a mask of the same bits: ``0x8000/0x8000``."""
    found = []
    for option in options:
        value, _, mask = rule.value(option).partition("/")
        if value and value == (mask or value):
            found.append(int(value, 0))
    return found


def within(address: IPAddress, text: str) -> bool:
    """Whether an address is in the network that a rule's text names; false for unreadable text."""
    try:
        network: IPNetwork = ip_network(text, strict=False)
    except ValueError:
        return False
    return address.version == network.version and address in network


HAIRPINS = "@hairpin-connections"
"""The set of connections from an endpoint to itself, which kube-proxy masquerades in mode nftables."""

_OF_HAIRPINS = (HAIRPINS, "for solving hairpin purpose")
"""How kube-proxy's texts of modes nftables and ipvs name connections from an endpoint to itself."""


def the_rule(rule: CountedRule) -> str:
    """A rule, named so that a reader can find it: its comment and its chain, or the map that it looks up.

    A virtual server of IPVS stands for its destinations, in ipvsadm's options.
    """
    if rule.count.table == VIRTUAL_SERVERS:
        return f"its virtual server {rule.count.chain}{', which' if rule.target == 'REJECT' else ''}{_has_none(rule)}"
    if rule.comment:
        return f'its rule "{rule.comment}" in {rule.count.chain}'
    asking = f", which looks up the map {rule.looked_up}" if rule.looked_up else ""
    return f"its rule in {rule.count.chain}{asking}"


def rule_action(rule: CountedRule, resolved: ResolvedProbe, *, mark: int | None = None, out_device: str = "") -> str:
    """What a rule did to a packet of a probe.

    Args:
        rule: that matched.
        resolved: the probe of the packet.
        mark: of the packet before the rule, if known.
        out_device: by which the packet leaves, if known.

    Returns:
        A clause about "it", the packet; empty for a rule without a target.
    """
    if not rule.target:
        return ""
    if rule.count.table == VIRTUAL_SERVERS and rule.target == "REJECT":
        return f"rejects it with ICMP port unreachable: the virtual server{_has_none(rule)}"
    if rule.marks_for_masquerading:
        why = why_masqueraded(rule, resolved).rstrip(":")
        if rule.count.table == NFT_TABLE:
            return f"marks it for masquerading{why}"
        return f"masquerades{why or _because(rule)}"
    if rule.target in _ACTIONS:
        return _ACTIONS[rule.target](rule, mark, out_device)
    return f"goes to {short(rule.target)}{_because(rule)}"


def why_masqueraded(rule: CountedRule, resolved: ResolvedProbe) -> str:
    """Why a rule marks the probe's packet for masquerading, if its matches show it.

    Returns:
        A clause that begins with a blank and ends with a colon; empty if the matches do not show why.
    """
    client = resolved.sender.address
    if is_from_itself(rule, client) or any(each in rule.count.text for each in _OF_HAIRPINS):
        return " because the client is the endpoint:"
    networks, devices = rule.excepted_sources, rule.excepted_devices
    if networks and not any(within(client, each) for each in networks):
        return f" because the client is not in {listed(networks, 'or')}{_though_a_pod(resolved)}:"
    if devices:
        return f" because it did not come in by {listed(devices, 'or')}{_though_a_pod(resolved)}:"
    return ""


def _though_a_pod(resolved: ResolvedProbe) -> str:
    """The clause that the client is a pod of this cluster, which makes the masquerading a mistake."""
    pods = {pod.address for pod in resolved.receivers if not pod.ports}  # a receiver on a node has the node's address
    return ", though it is a pod" if resolved.sender.address in pods else ""


def is_from_itself(rule: CountedRule, client: IPAddress) -> bool:
    """Whether a rule matches packets from this one address: those that an endpoint sends to itself."""
    return [each.removesuffix("/32").removesuffix("/128") for each in rule.sources] == [str(client)]


def _has_none(rule: CountedRule) -> str:
    """Why a virtual server rejects a packet: it has no destination, or none that takes a new connection."""
    if rule.target != "REJECT":
        return ""
    return " has destinations of weight 0 only" if rule.value("-w").startswith("0") else " has no destination"


def short(chain: str) -> str:
    """A chain's name with its hash cut short, and without what follows the hash: a few characters tell chains apart.

    Mode nftables writes the port or endpoint behind the hash (``endpoint-5OJB2KTY-default/echo/tcp/http__…``).
    """
    parts = chain.split("-")
    if "/" in chain and len(parts) > 2 and len(parts[1]) == 8 and parts[1].isalnum() and parts[1].isupper():
        return f"{parts[0]}-{parts[1]}-…"
    hashed = len(parts) > 2 and len(parts[-1]) == 16 and parts[-1].isalnum() and parts[-1].isupper()
    return f"{'-'.join(parts[:-1])}-{parts[-1][:6]}…" if hashed else chain


def _because(rule: CountedRule) -> str:
    if rule.comment:
        return f': "{rule.comment}"'
    return f" by the map {rule.looked_up}" if rule.looked_up else ""


def _translated(rule: CountedRule) -> str:
    to = rule.translates_to
    where = endpoint(*to) if to else rule.value("--to-destination")
    return f"translates the destination{where and f' to {where}'}"


def _marked(rule: CountedRule, mark: int | None) -> str:
    """What MARK makes of the mark (xt_mark, ``--set-xmark value/mask``: clear the mask's bits, then xor the value)."""
    value, _, mask = rule.value("--set-xmark").partition("/")
    try:
        new = ((mark or 0) & ~int(mask or "0xffffffff", 16)) ^ int(value, 16)
    except ValueError:
        return "changes its mark"
    return "changes its mark" if mark is None else f"changes its mark from {mark:#x} to {new:#x}"


_ACTIONS: dict[str, Callable[[CountedRule, int | None, str], str]] = {
    "ACCEPT": lambda rule, mark, out: f"lets it pass{_because(rule)}",
    "DNAT": lambda rule, mark, out: _translated(rule),
    "DROP": lambda rule, mark, out: f"drops it{_because(rule)}",
    "MARK": lambda rule, mark, out: _marked(rule, mark),
    "MASQUERADE": lambda rule, mark, out: f"sets its source to the address of {out or 'the outgoing device'}",
    "REJECT": lambda rule, mark, out: f"rejects it with {rule.value('--reject-with') or 'ICMP'}{_because(rule)}",
    "REDIRECT": lambda rule, mark, out: f"leads it to port {rule.value('--to-ports')} of this node{_because(rule)}",
    "RETURN": lambda rule, mark, out: f"returns it to the calling chain{_because(rule)}",
    "SNAT": lambda rule, mark, out: f"sets its source to {rule.value('--to-source')}",
}
"""Targets of iptables-extensions(8) in words."""
