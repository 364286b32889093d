"""nft in memory: a loader that keeps which chains, rules, sets and elements the tables of kube-proxy have.

It refuses what the kernel would refuse: a command about what does not exist, an element whose key has another verdict,
and the deletion of what is still in use.
"""

import asyncio
import re
from copy import deepcopy
from dataclasses import dataclass, field

from proxylab.addresses import Family
from proxylab.engines.embedded.nftables.loader import Present
from proxylab.engines.embedded.proxier import RulesRefusedError

COMMAND = re.compile(
    r"(?P<verb>add|delete|flush) (?P<kind>table|chain|set|map|element|rule) (?P<family>ip6?) kube-proxy"
    r"(?: (?P<name>\S+))?(?: (?P<rest>.*))?"
)
ELEMENT = re.compile(
    r'\{ (?P<key>[^":]*?(?::[^":]*?)*?)(?: comment "(?P<comment>[^"]*)")?(?: : (?P<verdict>[a-z].*))? \}'
)
LEADS = re.compile(r"(?:goto|jump) (\S+?)(?=[ ,}]|$)")
TIMEOUT = re.compile(r"timeout (\d+)s")
LOOKS_UP = re.compile(r"@(\S+)")
FAMILIES = {"ip": Family.IPV4, "ip6": Family.IPV6}


@dataclass
class Table:
    """One table. A chain's text of ``add chain`` says whether it is a base chain."""

    chains: dict[str, list[str]] = field(default_factory=dict)
    containers: dict[str, dict[str, str]] = field(default_factory=dict)
    heads: dict[str, str] = field(default_factory=dict)

    @property
    def meaning(self) -> object:
        """Everything but emptied chains of service ports, which are deleted later."""
        chains = {name: rules for name, rules in self.chains.items() if rules or "/" not in name}
        heads = {name: head for name, head in self.heads.items() if name in chains or name in self.containers}
        return chains, self.containers, heads

    def dangling(self) -> set[str]:
        rules = [rule for rules in self.chains.values() for rule in rules]
        verdicts = [verdict for each in self.containers.values() for verdict in each.values()]
        wanted = {name for text in (*rules, *verdicts) for name in LEADS.findall(text)}
        looked_up = {name for rule in rules for name in LOOKS_UP.findall(rule)}
        return (wanted - set(self.chains)) | (looked_up - set(self.containers))


class RefusedError(Exception):
    """The words of nft."""


class MemoryNft:
    """``texts`` holds every text that was offered. ``never`` refuses every line with one of these in it."""

    def __init__(self) -> None:
        self.tables: dict[Family, Table] = {}
        self.texts: list[str] = []
        self.never: tuple[str, ...] = ()
        self.gate = asyncio.Event()
        self.gate.set()

    async def load(self, text: str) -> None:
        self.texts.append(text)
        await self.gate.wait()
        tables = deepcopy(self.tables)
        for number, line in enumerate(text.splitlines(), 1):
            try:
                obey(tables, line, self.never)
            except RefusedError as refused:
                raise RulesRefusedError(f"/dev/stdin:{number}:1-{len(line)}: Error: {refused}\n{line}\n^^^^") from None
        for table in tables.values():
            assert not table.dangling(), table.dangling()
        self.tables = tables

    def present(self, family: Family) -> Present:
        table = self.tables.get(family, Table())
        timeouts = {name: TIMEOUT.search(table.heads[name]) for name in table.containers}
        return Present(frozenset(table.chains), {name: int(each[1]) if each else 0 for name, each in timeouts.items()})

    async def dump(self, family: Family) -> str:
        table = self.tables.get(family, Table())
        lines = [f"{name}: {rule}" for name, rules in table.chains.items() for rule in rules]
        lines += [f"{name}: {key} {rest}" for name, each in table.containers.items() for key, rest in each.items()]
        return "\n".join(lines)


def obey(tables: dict[Family, Table], line: str, never: tuple[str, ...] = ()) -> None:
    if any(wrong in line for wrong in never):
        raise RefusedError("Could not process rule: Invalid argument")
    found = COMMAND.fullmatch(line)
    assert found is not None, line
    verb, kind, name, rest = found["verb"], found["kind"], found["name"] or "", found["rest"] or ""
    family = FAMILIES[found["family"]]
    if kind == "table":
        assert verb == "add", line
        tables.setdefault(family, Table())
        return
    if family not in tables:
        raise RefusedError("No such file or directory")
    table = tables[family]
    if kind == "chain":
        of_chain(table, verb, name, rest)
    elif kind in ("set", "map"):
        of_container(table, verb, name, rest)
    elif kind == "element":
        of_element(table, verb, name, rest)
    elif name not in table.chains:
        raise RefusedError("No such file or directory")
    else:
        table.chains[name].append(rest)


def of_chain(table: Table, verb: str, name: str, rest: str) -> None:
    if verb == "add":
        table.chains.setdefault(name, [])
        table.heads.setdefault(name, rest)
        return
    if name not in table.chains:
        raise RefusedError("No such file or directory")
    if verb == "flush":
        table.chains[name] = []
        return
    del table.chains[name], table.heads[name]
    if name in table.dangling():
        raise RefusedError("Device or resource busy")


def of_container(table: Table, verb: str, name: str, rest: str) -> None:
    if verb == "add":
        if table.heads.setdefault(name, rest) != rest:
            raise RefusedError("File exists")
        table.containers.setdefault(name, {})
        return
    if name not in table.containers:
        raise RefusedError("No such file or directory")
    if verb == "flush":
        table.containers[name] = {}
        return
    del table.containers[name], table.heads[name]
    if name in table.dangling():
        raise RefusedError("Device or resource busy")


def of_element(table: Table, verb: str, name: str, rest: str) -> None:
    found = ELEMENT.fullmatch(rest)
    assert found is not None, rest
    if name not in table.containers:
        raise RefusedError("No such file or directory")
    elements, key, verdict = table.containers[name], found["key"], found["verdict"] or ""
    if verb == "delete":
        if key not in elements:
            raise RefusedError("No such file or directory")
        del elements[key]
    elif elements.setdefault(key, verdict) != verdict:
        raise RefusedError("File exists")
