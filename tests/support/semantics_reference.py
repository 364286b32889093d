"""The reference page of what Kubernetes promises for Services, made from the table and the catalogue."""

from collections.abc import Iterator, Sequence
from itertools import groupby

from scenario_index import SCENARIOS, SUFFIX, anchor, places, text

from proxylab.engines.engine_names import EMBEDDED, version_of
from proxylab.features.semantics.promise_coverage import Row, read_mutants, semantics
from proxylab.scenario.load import load_scenario

__all__ = ["semantics_reference"]

_PAGE = """\
# What Kubernetes promises for Services

{total} promises of the API and of kube-proxy's configuration, each with its source and with the probes that show it.
`proxylab semantics` prints them, `proxylab semantics --report FILE` writes a page of them.

```console
$ proxylab semantics externalTrafficPolicy=Local drop
$ proxylab semantics healthz --coverage proven
```

An id is one packet: a field with its value; then the sender, the frontend, the protocol, family and mode, and the state
of the endpoints, as far as they matter; then what becomes of the packet.

| sender | |
|---|---|
| `pod`, `node` | dials its own node, or an address that its own node translates |
| `pod-elsewhere`, `node-elsewhere` | dials another node |
| `hostNetwork-pod`, `localhost` | a pod in its node's namespace; a node from 127.0.0.1 |
| `itself` | a pod that is the endpoint |
| `outside`, `neighbour` | a host outside the cluster; a host on a node's own link |

A promise counts as **proven** if a probe names it in its own expectation (`expect.proves`), and turned red for a mutant
of it: a defect of an embedded engine with which an expectation failed that the promise is about (for `drop` the
outcome, for `masquerade` the source, for `stick` the backends or the spread). Another value of the promise's own
setting counts as well, since an engine that ignores the setting behaves so. `scenarios/mutations.json` records which
mutant turned which probes red; the tests that run the mutants compare it with what they see. All {total} promises are
proven. A new one without a probe, or without a mutant that turns its probe red, fails `tests/unit`.

{fields}
"""


def semantics_reference() -> str:
    """A table for each field of the API."""
    record = read_mutants((SCENARIOS / "mutations.json").read_bytes())
    written = {place: load_scenario(SCENARIOS / f"{place}{SUFFIX}") for place in places()}
    rows = semantics(written, record, version_of(EMBEDDED[0]))
    fields = groupby(rows, key=lambda row: row.promise.field)
    return _PAGE.format(
        total=len(rows),
        fields="\n\n".join("\n".join(_table(field, [*group])) for field, group in fields),
    )


def _table(field: str, rows: Sequence[Row]) -> Iterator[str]:
    yield f"## {field}"
    yield ""
    yield "| id | promise | probes |"
    yield "|---|---|---|"
    for row in rows:
        promise = row.promise
        where = dict.fromkeys(f"[{each.file}](scenarios.md#{anchor(each.file)})" for each in row.showings)
        yield f"| `{promise.id}` | {text(promise.text)} [source]({promise.source}) | {', '.join(where)} |"
