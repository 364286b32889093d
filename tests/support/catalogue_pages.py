"""The reference pages of engines and of capabilities, made from their catalogues."""

from proxylab.engines.engine_names import EMBEDDED, ENGINES, mode_of, version_of
from proxylab.engines.modes import MODES
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

## What embedded engines do otherwise than kube-proxy

[How a packet passes](../explanation/packet-flow.md) says how the modes differ. Within a mode, `tests/engines` compares
the rules of the embedded engine with those of the newest kube-proxy by meaning, for every scenario and for generated
clusters, and those of `embedded@v1.23` with those of kube-proxy 1.23.17. They are the same. These differences are
known:

| engines | the embedded engine | kube-proxy |
| --- | --- | --- |
| all | Refuses feature gates that it does not behave like, by name. | Has the gates of its version. |
| all | Has the metrics that it can fill truthfully. | Has more metrics. |
| `embedded/nftables` | Writes a deleted table again with the next change. | A sync period after that change. |
| `embedded/nftables` | A changed ServiceCIDR takes effect with the next sync. | With the next full sync. |
| `embedded/nftables` | Writes the table of 1.37 only. | Earlier versions write other tables. |
| `embedded/ipvs` | Deletes idle destinations that end once in each `syncPeriod`. | Looks every minute. |
| `embedded/ipvs` | Of two Services with the same frontend, the first one has it. | Either of the two has it. |
| `embedded/userspace` | A half-closed connection stays open the other way. | Closes both ways at the first end. |
| `embedded/userspace` | Passes on datagrams of any size. | Cuts off what exceeds 4,096 bytes. |
| `embedded/userspace` | Puts jumps for node ports behind those for addresses. | Appends them to the built-in chains. |

## Name servers

`dns.server` in a scenario, or `--name-server` for scenarios that leave it open, chooses the program behind kube-dns:
`embedded`, or a real CoreDNS (`coredns`, `coredns@VERSION`, or its path). `proxylab engines --obtain coredns`
downloads a release or builds the Go module, without the plugins of cloud providers and `etcd`, `nomad`, `geoip` and
`trace`. All scenarios of `scenarios/dns` pass on both. They differ in this:

| `embedded` | CoreDNS |
| --- | --- |
| SRV records have weight 100. | It divides 100 by the number of addresses that the name has. |
| A pod with a hostname has one PTR record. | Each Service of the pod adds one, of its dashed address. |
| Answers the packets of probes as pods do, on port 53. | Answers questions alone: probes at its port are skipped. |
| Caches nothing. | The plugin `cache` of a Corefile caches; `dns/coredns-caches-answers` shows it. |

After each change, the lab waits until CoreDNS knows marks that came last in its watches.

## Measurements

Benchmarks measure an engine and its floor in the same run. `./dev pytest tests/benchmarks -m budget -rP` prints the
figures, and fails beyond these bounds:

| what is measured | mode | bound |
| --- | --- | --- |
| processor time of a full sync, with loading | iptables | 2 times iptables-restore, with chains in kube-proxy's order |
| processor time of a full sync of up to 5,000 Services, without loading | nftables | that of `nft -f`, which loads it |
| one changed Service among 1,000 and 5,000 | iptables | 2 times `kube-proxy/iptables` |
| one changed Service among 1,000 and 5,000 | nftables | `kube-proxy/nftables` |
| 1,000 connections at once, 100 MB through one | userspace | 3 times a plain copy loop, and half a second |

## On this machine

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
        (
            f"`{name}`",
            mode_of(name),
            _version(name),
            "yes" if name in EMBEDDED else "no",
            MODES[mode_of(name)].about[name],
        )
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
