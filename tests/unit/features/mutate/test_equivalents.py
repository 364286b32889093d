"""The list of proven mutants names classes and changes that exist."""

from pathlib import Path

from proxylab.engines.engine_names import version_of
from proxylab.engines.modes import MODES
from proxylab.features.mutate.runs import mutants_of, ruled
from proxylab.scenario.cases import cases
from proxylab.scenario.load import load_scenario

SCENARIOS = Path(__file__).parents[4] / "scenarios"
FILES = (  # with source ranges, affinity, both policies at every frontend and protocol, and each way to know pods
    "loadbalancer/source-ranges",
    "affinity/client-ip",
    "clusterip/internal-traffic-policy-local",
    "masquerade/all",
    "detect-local/bridge-interface",
    "sctp/associations",
    "sctp/connections",
    "loadbalancer/address-on-the-node",
    "nodeport/traffic-policy-local",
    "affinity/shared-by-all-frontends",
    "externalip/local-policy",
    "affinity/over-udp",
)


def test_every_row_is_of_rules_that_the_engine_renders() -> None:
    known = set()
    for engine in ("embedded/iptables", "embedded/nftables", "embedded/ipvs", "embedded/userspace"):
        mode = engine.partition("/")[2]
        found = [
            case
            for name in FILES
            for case in cases(load_scenario(SCENARIOS / f"{name}.lab.yaml"), mode, version_of(engine))
        ]
        mutants = mutants_of((ruled(case, engine) for case in found), engine)
        known |= {(mode, each.rule_class, each.mutation) for each in mutants if each.equivalent}
    rows = {
        (name, rule, change)
        for name, mode in MODES.items()
        for row in mode.equivalents
        for rule in row.classes
        for change in row.changes
    }
    assert rows - known == set()
