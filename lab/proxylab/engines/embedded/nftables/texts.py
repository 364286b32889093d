"""The texts of mode nftables: what is loaded, and what ``nft list table`` prints."""

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from ipaddress import ip_address
from typing import Final

from msgspec.structs import replace

from proxylab.addresses import Family, IPAddress, IPNetwork, Protocol
from proxylab.cluster.configuration import ProxyConfiguration
from proxylab.engines.embedded.nftables.loader import Present
from proxylab.engines.embedded.nftables.names import AFFINITY, is_of_service
from proxylab.engines.embedded.nftables.render import render
from proxylab.engines.embedded.nftables.transaction import write_table
from proxylab.engines.embedded.node import NodeFacts
from proxylab.engines.embedded.ports import ClusterView
from proxylab.engines.embedded.settings import ProxySettings
from proxylab.engines.programmed import Entry, Hook, Programmed, Way

# nft(8) indents the objects of a table by one tab, and their contents by two.
_OBJECT: Final = re.compile(r"^\t(chain|map|set) (\S+) \{\n(.*?)^\t\}$", re.MULTILINE | re.DOTALL)
_ELEMENTS: Final = re.compile(r"elements = \{(.*?)\}\n", re.DOTALL)
_ELEMENT: Final = re.compile(
    r"(?:(?P<address>[0-9a-f.:]+) \. )?(?P<protocol>tcp|udp|sctp) \. (?P<port>\d+)"
    r'(?: comment "[^"]*")? : (?P<verdict>\S.*)'
)
_MAPS: Final = ("service-ips", "service-nodeports", "no-endpoint-services", "no-endpoint-nodeports")
_LEADS: Final = re.compile(r"\b(?:goto|jump) (\S+?)(?=[ ,}]|$)")
_CHOICES: Final = re.compile(r"numgen random mod (\d+) (vmap|map) \{(.*?)\}")
_REMEMBERED: Final = "@affinity-"
_ENDPOINT: Final = "endpoint-"
"""Begins the names of endpoint chains, to which others jump by choice or by session affinity."""
_LOCAL: Final = "local-"
"""Begins the names of chains that choose among the endpoints of policy Local."""
_TRANSLATION: Final = re.compile(r"\bdnat to (\S+):(\d+)")
_HOOKS: Final = {
    Hook.IN: ("nat-prerouting", "services"),
    Hook.OUT: ("nat-output", "services"),
    Hook.LEAVING: ("nat-postrouting", "masquerading"),
}


_LISTED: Final = re.compile(r"^\t\telements = \{([^}]*)\}\n", re.MULTILINE)
_BETWEEN: Final = ",\n\t\t\t     "
_COMMENT: Final = re.compile(r' comment "[^"]*"')
_TABLES: Final = re.compile(r"^(?=table )", re.MULTILINE)
_FAMILIES: Final = {Family.IPV4: "table ip ", Family.IPV6: "table ip6 "}


def settings(configuration: ProxyConfiguration, pod_networks: tuple[IPNetwork, ...]) -> ProxySettings:
    """The settings of a proxy in this mode, which by default serves node ports on the node's primary address only."""
    return replace(
        ProxySettings.of(configuration, pod_networks),
        masquerade_all=configuration.nftables.masquerade_all,
        masquerade_bit=configuration.nftables.masquerade_bit,
        node_port_primary=configuration.node_port_primary or not configuration.node_port_addresses,
        localhost_node_ports=False,
    )


def load(
    cluster: ClusterView, node: NodeFacts, settings: ProxySettings, family: Family, version: tuple[int, ...]
) -> str:
    """What the embedded engine would load into an empty node, for ``nft -f``. It writes the table of one version."""
    del version
    return write_table(render(cluster, node, settings, family), Present(), rehook=False).text


def by_family(dump: str, families: Sequence[Family]) -> dict[Family, str]:
    """The part of each family in a dump; empty for a family without rules."""
    parts = _TABLES.split(dump)
    return {family: next((part for part in parts if part.startswith(_FAMILIES[family])), "") for family in families}


def differences(ours: str, theirs: str) -> list[str]:
    """A line for each rule, element or head of an object that only one of two dumps has; none if they mean the same.

    Objects and elements have no order. Emptied chains of service ports mean nothing: proxies delete them later.
    """
    found: list[str] = []
    for family in Family:
        mine, other = (_meaning(by_family(dump, [family])[family]) for dump in (ours, theirs))
        for name in sorted({*mine, *other}):
            left, right = mine.get(name, []), other.get(name, [])
            if left != right:
                found += [f"- {family} {name}: {line}" for line in left if line not in right]
                found += [f"+ {family} {name}: {line}" for line in right if line not in left]
                if sorted(left) == sorted(right):
                    found.append(f"+ {family} {name}: the same rules in another order")
    return found


def holds(dump: str, present: bool) -> bool:
    """Whether there is a table, which is written as a whole; or none."""
    return ("chain " in dump) is present


def without(dump: str, service: str, addresses: Collection[str]) -> str:
    """A dump without the chains of the Service of that name, and without elements of its name or addresses."""

    def kept(elements: re.Match[str]) -> str:
        all_of_them = (each.strip() for each in elements[1].split(","))
        left = [each for each in all_of_them if service not in each and not set(addresses).intersection(each.split())]
        return f"\t\telements = {{ {_BETWEEN.join(left)} }}\n" if left else ""

    own = re.compile(rf"\n?^\tchain [^\n]*{re.escape(service)}[^\n]*\{{\n.*?^\t\}}\n", re.MULTILINE | re.DOTALL)
    return _LISTED.sub(kept, own.sub("", dump))


def read(text: str) -> Programmed:
    """The rules of one family."""
    found: dict[str, dict[str, str]] = {"chain": {}, "map": {}, "set": {}}
    for kind, name, body in _OBJECT.findall(text):
        found[kind][name] = body
    chains, maps = found["chain"], found["map"]
    services = chains.get("services", "")
    return Programmed(
        hooked=frozenset(
            hook for hook, (chain, wanted) in _HOOKS.items() if wanted in _LEADS.findall(chains.get(chain, ""))
        ),
        reaches={True: "@service-ips" in services, False: "@service-nodeports" in services},
        entries=tuple(entry for name in _MAPS for entry in _entries(maps.get(name, ""))),
        leads={name: tuple(_leads(body)) for name, body in chains.items()},
        ways={name: tuple(_ways(chains, name, body)) for name, body in chains.items()},
        local=frozenset(name for name in chains if name.startswith(_LOCAL)),
        in_turn=False,
        masquerades=bool(
            re.search(r"mark .*masquerade|mark .* return\n(?:.*\n)*.*masquerade", chains.get("masquerading", ""))
        ),
    )


def _entries(body: str) -> Iterator[Entry]:
    elements = _ELEMENTS.search(body + "\n")
    for text in elements[1].split(",") if elements else ():
        element = _ELEMENT.fullmatch(text.strip())
        if element is None:
            continue
        verdict = element["verdict"]
        refused = {"drop": "DROP", "goto reject-chain": "REJECT"}.get(verdict, "")
        yield Entry(
            address=ip_address(element["address"]) if element["address"] else None,
            protocol=Protocol(element["protocol"].upper()),
            port=int(element["port"]),
            leads_to="" if refused else verdict.removeprefix("goto ").removeprefix("jump "),
            refused=refused,
        )


def _leads(body: str) -> Iterator[str]:
    """The chains to which a chain jumps, except by load balancing or session affinity."""
    for line in body.splitlines():
        if "numgen" not in line and _REMEMBERED not in line:
            yield from _LEADS.findall(line)


def _ways(chains: Mapping[str, str], name: str, body: str) -> Iterator[Way]:
    """The choices of a chain: each jumps to an endpoint's chain or, since 1.35, is the new destination.

    Since 1.37 a Service with one endpoint has no choice: its own chain translates.
    """
    choices = _CHOICES.search(body)
    if choices is None:
        if not name.startswith(_ENDPOINT) and (only := _translation(body)) is not None:
            yield Way(by=name, chance=1, to=only)
        return
    share = 1 / int(choices[1])
    for each in choices[3].split(","):
        choice = each.partition(" : ")[2].strip()
        if choices[2] == "vmap":
            chain = choice.removeprefix("goto ")
            yield Way(by=chain, chance=share, to=_translation(chains.get(chain, "")))
        else:
            address, _, port = choice.partition(" . ")
            yield Way(by=name, chance=share, to=(ip_address(address), int(port)))


def _translation(body: str) -> tuple[IPAddress, int] | None:
    found = _TRANSLATION.search(body)
    return (ip_address(found[1].strip("[]")), int(found[2])) if found else None


def _meaning(table: str) -> dict[str, list[str]]:
    """The lines of each object: of a chain its rules in their order, of a set or map its head and its sorted elements.

    A set that remembers clients means the same whatever clients it has. Comments of elements mean nothing: kube-proxy
    keeps that of an earlier Service while the key and the verdict stay.
    """
    meaning: dict[str, list[str]] = {}
    for kind, name, body in _OBJECT.findall(table):
        elements = _ELEMENTS.search(body)
        lines = [line.strip() for line in _ELEMENTS.sub("", body).splitlines() if line.strip()]
        if elements is not None and not name.startswith(AFFINITY):
            lines += sorted(_COMMENT.sub("", each.strip()) for each in elements[1].split(","))
        if lines or not is_of_service(name):
            meaning[f"{kind} {name}"] = lines
    return meaning
