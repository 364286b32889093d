"""All in which the mode differs from the others."""

from proxylab.capability import CapabilityName
from proxylab.engines.embedded.mutation import MutantLines
from proxylab.engines.embedded.settings import Periods, ProxySettings
from proxylab.engines.programmed import Programmed
from proxylab.engines.proxy_mode import Lacks, ProxyMode

MODE = ProxyMode(
    word="no-rules",
    package=__package__,
    about={"embedded/no-rules": "Writes nothing."},
    settings=ProxySettings.of,
    periods=lambda _proxy: Periods(),
    load=lambda cluster, node, _settings, family, _version: (
        f"# {family} on {node.name}: {len(cluster.services)} Services without a rule\n"
    ),
    read=lambda _text: Programmed(
        hooked=frozenset(),
        reaches_addresses=False,
        reaches_node_ports=False,
        entries=(),
        leads={},
        ways={},
        local=frozenset(),
        in_turn=False,
        masquerades=False,
    ),
    differences=lambda ours, theirs: [] if ours == theirs else [f"- {ours}", f"+ {theirs}"],
    by_family=lambda dump, families: dict.fromkeys(families, dump),
    holds=lambda _dump, present: not present,
    without=lambda dump, _service, _addresses: dump,
    loaded=lambda _dump: iter(()),
    mutants=MutantLines(
        classes=lambda text: [""] * len(text.split("\n")),
        mutants=lambda _rule, _line: {},
        suggestion=lambda _rule, _change: "",
        met=lambda _table, _chain, _text: "",
    ),
    failures="sync_failures",
    lacks=Lacks(of_probe=lambda _assembly, probe, _resolved: [f"mode no-rules cannot show {probe.name}"]),
    needs=(CapabilityName.DUMMY,),
)
