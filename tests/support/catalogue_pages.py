"""The reference pages of engines and of capabilities, made from their catalogues."""

from proxylab.engines.names import ABOUT, EMBEDDED, ENGINES, mode_of, version_of
from proxylab.kernel.capabilities import TRIALS

__all__ = ["capabilities_page", "engines_page"]

_ENGINES = """\
# Engines

An engine is a proxy under test, by the name that `--engine` takes, and `--lab-engine` under pytest. `{first}` is the
default. The version decides whether an `except` of a scenario applies (`when: {{version: …}}`). `proxylab rules`
prints the rules of some engines without running anything.

{table}

A name may include a version of kube-proxy: `kube-proxy@v1.34/nftables` for the newest patch of 1.34,
`kube-proxy@v1.34.2/iptables` for exactly that one. [Test your own kube-proxy](../how-to/test-your-kube-proxy.md)
describes the sources of binaries.

`proxylab engines` lists the engines on this machine, and the versions of each source:

```console
$ proxylab engines
{head}
...
```
"""

_CAPABILITIES = """\
# Capabilities

A capability is something that a lab may use of a machine. `proxylab doctor` tries each one in a namespace of its own;
it concludes nothing from versions or from the kernel's configuration. A scenario that needs a missing capability is
skipped, with the reason and the cure. The exit code is 4 if an engine that the command line names could run nothing.

```console
$ proxylab doctor
...
```

## Required for every lab

{needed}

## Optional, with the cost of each lack

{wanted}
"""


def engines_page() -> str:
    """A row for each engine."""
    rows = [
        (f"`{name}`", mode_of(name), _version(name), "yes" if name in EMBEDDED else "no", ABOUT[name])
        for name in ENGINES
    ]
    width = max(map(len, ENGINES))
    head = "\n".join(f"{name:<{width}}  built into proxylab" for name in EMBEDDED)
    table = _table(("engine", "mode", "version", "`rules`", "what it is"), rows)
    return _ENGINES.format(first=ENGINES[0], table=table, head=head)


def _version(engine: str) -> str:
    if engine not in EMBEDDED:
        return "that of the binary"
    major, minor = version_of(engine)
    return f"{major}.{minor}"


def capabilities_page() -> str:
    """A row for each capability, in the order in which they are tried."""
    sandbox = ("a sandbox", "`proxylab doctor` names it, by what refused the sandbox")
    needed = [sandbox, *((each.name, each.cure) for each in TRIALS if each.required)]
    wanted = [(each.name, each.cost, each.cure) for each in TRIALS if not each.required]
    return _CAPABILITIES.format(
        needed=_table(("capability", "cure"), needed),
        wanted=_table(("capability", "without it", "cure"), wanted),
    )


def _table(head: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    lines = [head, tuple("---" for _ in head), *rows]
    return "\n".join(f"| {' | '.join(cell.replace('|', '&#124;') for cell in line)} |" for line in lines)
