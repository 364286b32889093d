"""The reference pages of engines and of capabilities, made from their catalogues."""

from proxylab.engines.names import ABOUT, EMBEDDED, ENGINES, mode_of, version_of
from proxylab.kernel.capabilities import TRIALS

__all__ = ["capabilities_page", "engines_page"]

_ENGINES = """\
# Engines

What can stand under test, by the name that `--engine` takes, and `--lab-engine` under pytest. `{first}` runs where
nobody asks for one. The version is the one by which a scenario's `except` holds or does not (`when: {{version: …}}`);
the rules of some can be printed by `proxylab rules` without running anything.

{table}

A kube-proxy of another version is asked for by name: `kube-proxy@v1.34/nftables` for the newest patch of it,
`kube-proxy@v1.34.2/iptables` for just that one. Where its binary comes from is told in
[Test your own kube-proxy](../how-to/test-your-kube-proxy.md).

`proxylab engines` lists what is here, and what each source has:

```console
$ proxylab engines
{head}
...
```
"""

_CAPABILITIES = """\
# Capabilities

What a lab may use of a machine. `proxylab doctor` tries each of these in a namespace of its own, and tells what was
found; nothing is concluded from versions or from the kernel's configuration. A scenario that needs what is missing is
skipped, with the reason and the cure, and the exit code is 4 where an engine that was asked for by name ran nothing.

```console
$ proxylab doctor
...
```

## Without these no lab can be built

{needed}

## Without these something cannot be done, or takes longer

{wanted}
"""


def engines_page() -> str:
    """A row for each engine."""
    rows = [
        (f"`{name}`", mode_of(name), _version(name), "yes" if name in EMBEDDED else "no", ABOUT[name])
        for name in ENGINES
    ]
    width = max(map(len, ENGINES))
    head = "\n".join(f"{name:<{width}}  here, a part of proxylab" for name in EMBEDDED)
    table = _table(("engine", "mode", "version", "`rules`", "what it is"), rows)
    return _ENGINES.format(first=ENGINES[0], table=table, head=head)


def _version(engine: str) -> str:
    if engine not in EMBEDDED:
        return "that of the binary"
    major, minor = version_of(engine)
    return f"{major}.{minor}"


def capabilities_page() -> str:
    """A row for each capability, in the order in which they are tried."""
    needed = [(each.name, each.cure) for each in TRIALS if each.required]
    wanted = [(each.name, each.cost, each.cure) for each in TRIALS if not each.required]
    return _CAPABILITIES.format(
        needed=_table(("capability", "cure"), [("a sandbox", "`proxylab doctor` tells, by what refused it"), *needed]),
        wanted=_table(("capability", "without it", "cure"), wanted),
    )


def _table(head: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    lines = [head, tuple("---" for _ in head), *rows]
    return "\n".join(f"| {' | '.join(cell.replace('|', '&#124;') for cell in line)} |" for line in lines)
