"""The state of the machine outside every sandbox, to be compared before and after."""

import json
import os
import subprocess
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

# Counters and clocks: they move on an idle machine.
_VOLATILE = (
    "fs/dentry-state",
    "fs/file-nr",
    "fs/inode-nr",
    "fs/inode-state",
    "fs/quota/",
    "fs/aio-nr",
    "kernel/ns_last_pid",
    "kernel/pty/nr",
    "kernel/random/",
    "kernel/perf_event_max_sample_rate",
    "net/netfilter/nf_conntrack_count",
)


@dataclass(frozen=True)
class Machine:
    """Links, addresses, routes, rules, sysctls and namespaces, as root sees them."""

    links: Any
    addresses: Any
    routes: Any
    rules: str
    mounts: str
    run: tuple[str, ...]
    sysctls: dict[str, str] = field(repr=False)

    @classmethod
    def now(cls) -> "Machine":
        return cls(
            links=_ip("link"),
            addresses=_ip("address"),
            routes=_ip("route", "show", "table", "all"),
            rules=_rules(),
            mounts=Path("/proc/self/mountinfo").read_text(encoding="utf-8"),
            run=tuple(sorted(os.listdir("/run"))) + _netns_names(),
            sysctls=_sysctls(),
        )

    def differences(self, later: "Machine") -> list[str]:
        """What differs, in words; sysctls that did not exist before do not count."""
        found = [
            f"{name}: {getattr(self, name)!r} became {getattr(later, name)!r}"
            for name in ("links", "addresses", "routes", "rules", "mounts", "run")
            if getattr(self, name) != getattr(later, name)
        ]
        found += [
            f"{name}: {value!r} became {later.sysctls.get(name)!r}"
            for name, value in self.sysctls.items()
            if later.sysctls.get(name) != value
        ]
        return found


def descendants(pid: int) -> dict[int, list[int]]:
    """The processes below ``pid``, as parent to children, read from outside of any pid namespace."""
    children: dict[int, list[int]] = {}
    for process in Path("/proc").iterdir():
        if process.name.isdigit():
            try:
                fields = (process / "stat").read_text(encoding="utf-8", errors="replace").rsplit(")", 1)[1].split()
            except OSError:
                continue
            children.setdefault(int(fields[1]), []).append(int(process.name))
    below: dict[int, list[int]] = {}
    ways = [pid]
    while ways:
        parent = ways.pop()
        below[parent] = sorted(children.get(parent, []))
        ways += below[parent]
    return below


def _ip(*argv: str) -> Any:
    done = subprocess.run(["ip", "-j", "-d", *argv], capture_output=True, check=True)
    return json.loads(done.stdout or b"[]")


def _rules() -> str:
    """What x_tables and nf_tables hold, read without making either load a table."""
    try:
        legacy = Path("/proc/net/ip_tables_names").read_text(encoding="ascii")
    except (FileNotFoundError, PermissionError):
        legacy = ""  # not in this kernel, or an ordinary user's test: who may not look may not have changed it either
    try:
        nft = subprocess.run(["nft", "list", "ruleset"], capture_output=True, check=False).stdout.decode()
    except FileNotFoundError:
        nft = ""
    return legacy + nft


def _netns_names() -> tuple[str, ...]:
    folder = Path("/run/netns")
    return tuple(sorted(f"netns/{name}" for name in os.listdir(folder))) if folder.is_dir() else ()


def _sysctls() -> dict[str, str]:
    values: dict[str, str] = {}
    for folder, _, files in os.walk("/proc/sys"):
        for file in files:
            path = os.path.join(folder, file)
            name = path.removeprefix("/proc/sys/")
            if name.startswith(_VOLATILE) or "sched_domain" in name:
                continue
            try:
                values[name] = Path(path).read_text(encoding="utf-8", errors="replace")
            except OSError:
                continue
    return values
