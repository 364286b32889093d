"""``proxylab mutate``: real labs notice mutants of real rules, and the state of a call is the beginning of the next."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from command_line import CommandLine
from guests import OWN
from sandboxed import ROOT

from proxylab.client.rendered_rules import rendered_rules
from proxylab.client.session import Session
from proxylab.encoding import decode, encode
from proxylab.engines.embedded.mutation import Mutation, mutated
from proxylab.engines.engine_names import mode_of, version_of
from proxylab.engines.modes import MODES
from proxylab.engines.protocol import EngineChoice
from proxylab.features.mutate.mutants import Baseline, Mutant, Noticed
from proxylab.features.mutate.runs import MutantRuns, mutants_of, ruled
from proxylab.plan.assembly import lay_out
from proxylab.scenario.cases import cases
from proxylab.scenario.load import load_scenario

FILE = "scenarios/clusterip/from-a-pod.lab.yaml"
FILES = (
    "loadbalancer/source-ranges",
    "rejections/at-every-frontend",
    "affinity/client-ip",
    "nodeport/range-of-its-own",
)
LOCALNET = (
    "filter KUBE-FIREWALL ! -s LOOPBACK -d LOOPBACK ! --ctstate DNAT,ESTABLISHED,RELATED -j DROP"
    " # block incoming localnet connections"
)
NOTICED = {
    ("rejections/only-the-claimed-port", "without --dport"): (
        "filter KUBE-EXTERNAL-SERVICES -d ADDRESS -p PROTOCOL --dport PORT -j DROP # SERVICE has no local endpoints",
        "another port than the one dropped at an external IP reaches the machine",
    ),
    ("rejections/only-the-claimed-port", "without --dst-type"): (
        "filter KUBE-EXTERNAL-SERVICES -p PROTOCOL --dport PORT --dst-type LOCAL -j REJECT # SERVICE has no endpoints",
        "the number of a NodePort that rejects is reached at another machine",
    ),
    ("untranslated/beside-claimed-addresses", "-p of TCP and UDP"): (
        "nat KUBE-SERVICES -d ADDRESS -p PROTOCOL --dport PORT -j KUBE-FW-* # SERVICE loadbalancer IP",
        "UDP to a port of TCP reaches the machine from inside source ranges",
    ),
    ("nodeport/both-policies-local", "without -d"): (
        "nat KUBE-SVL-* ! -s NETWORK -d ADDRESS -p PROTOCOL --dport PORT -j KUBE-MARK-MASQ # SERVICE cluster IP",
        "external IP with both policies Local preserves an outside host",
    ),
    ("network/forward-policy-drop", "the rule is absent"): (
        "filter KUBE-FORWARD --ctstate ESTABLISHED,RELATED -j ACCEPT # kubernetes forwarding conntrack rule",
        "NodePort from outside to a pod of the node passes FORWARD with policy DROP",
    ),
    ("bugs/92315-neighbours-reach-loopback", "without ! --ctstate"): (
        LOCALNET,
        "NodePort on 127.0.0.1 serves the node in iptables and is refused in nftables",
    ),
    ("senders/from-loopback", "-p of TCP and UDP"): (
        "nat KUBE-NODEPORTS -d LOOPBACK -p PROTOCOL --dport PORT --nfacct-name COUNTER -j KUBE-EXT-*",
        "UDP on localhost to the number of a NodePort of TCP reaches the program",
    ),
    ("rejections/only-the-claimed-port", "-p of TCP and UDP"): (
        "filter KUBE-SERVICES -d ADDRESS -p PROTOCOL --dport PORT -j REJECT # SERVICE has no endpoints",
        "UDP to a ClusterIP port that rejects TCP is untranslated in iptables",
    ),
    ("health/input-rule-before-the-health-check", "-p of TCP and UDP"): (
        "filter KUBE-NODEPORTS -p PROTOCOL --dport PORT -j ACCEPT # SERVICE health check node port",
        "UDP to the number of a healthCheckNodePort stays closed by the INPUT rule",
    ),
    ("masquerade/all", "without -d"): (
        "nat KUBE-SVC-* -d ADDRESS -p PROTOCOL --dport PORT -j KUBE-MARK-MASQ # SERVICE cluster IP",
        "masqueradeAll leaves a pod its address at an external IP with policy Local",
    ),
    ("clusterip/one-port-over-tcp-and-udp", "-p of TCP and UDP"): (
        "nat KUBE-SERVICES -d ADDRESS -p PROTOCOL --dport PORT -j KUBE-SVC-* # SERVICE cluster IP",
        "ClusterIP port 53 over TCP preserves the source of the pod that serves UDP",
    ),
    ("steps/affinity-timeout-at-a-node-port", "without --seconds"): (
        "nat KUBE-SVL-* --name KUBE-SEP-* --rcheck --reap --seconds SECONDS -j KUBE-SEP-*",
        "timeoutSeconds pass without a connection: ClientIP affinity with policy Local ends after timeoutSeconds",
    ),
    **{
        ("steps/metric-of-node-ports-on-localhost", change): (
            "nat KUBE-NODEPORTS -d LOOPBACK -p PROTOCOL --dport PORT --nfacct-name COUNTER -j KUBE-EXT-*",
            first,
        )
        for change, first in (
            ("the rule is absent", "three connections to 127.0.0.1 are counted on their node"),
            ("without --nfacct-name", "three connections to 127.0.0.1 are counted on their node"),
            ("without -d", "a connection to another address than 127.0.0.1 is not counted"),
        )
    },
    ("steps/a-cluster-ip-that-the-node-has", "without --ctstate"): (
        "filter OUTPUT --ctstate NEW -j KUBE-SERVICES # kubernetes service portals",
        "a Service without endpoints gets the address, and the connection loses nothing",
    ),
    ("steps/connections-from-before-the-service", "without --ctstate"): (
        "filter OUTPUT --ctstate NEW -j KUBE-PROXY-FIREWALL # kubernetes load balancer firewall",
        "Services claim the addresses, and the connections lose nothing",
    ),
}
"""The class of mode iptables that a scenario notices with a change, and the probe or step that fails first."""

HAIRPIN = (
    "masquerading ct status dnat ip saddr . ip daddr . meta l4proto . th dport @hairpin-connections "
    "masquerade fully-random"
)
NOTICED_IN_NFTABLES = {
    ("nodeport/traffic-policy-local", "the rule is absent"): (
        'external-* fib saddr type local mark set mark or MARK comment "masquerade local traffic"',
        "NodePort with externalTrafficPolicy Local masquerades the node itself",
    ),
    ("clusterip/host-network-endpoints", "without ct status dnat"): (
        HAIRPIN,
        "a node that dials its own host-network pod without a Service is not masqueraded",
    ),
    ("hairpin/random-source-ports", "without fully-random"): (
        HAIRPIN,
        "ClusterIP from a pod to itself leaves its node from another port than the pod's",
    ),
    ("steps/connections-from-before-the-service", "without ct state new"): (
        "filter-input ct state new jump service-endpoints-check",
        "Services claim the addresses, and the connections lose nothing",
    ),
    ("conntrack/open-flows-to-an-unused-port", "without ct state new"): (
        "filter-forward ct state new jump cluster-ips-check",
        "UDP of an open flow from a pod to an unused ClusterIP port leaves its node",
    ),
    ("nodeport/at-every-address", "without fib daddr type local"): (
        "services fib daddr type local ip daddr != LOOPBACK meta l4proto . th dport vmap @service-nodeports",
        "the number of a NodePort is reached at another machine",
    ),
    ("nodeport/at-every-address", "without ip daddr != LOOPBACK"): (
        "nodeport-endpoints-check ip daddr != LOOPBACK meta l4proto . th dport vmap @no-endpoint-nodeports",
        "NodePort without endpoints on localhost leaves a daemon alone in nftables",
    ),
}
"""The same for mode nftables."""

DNAT = "nat KUBE-SEP-* -p PROTOCOL -j DNAT --to-destination ENDPOINT"

MASQUERADE = "nat KUBE-POSTROUTING --random-fully -j MASQUERADE # kubernetes service traffic requiring SNAT"


@pytest.fixture(scope="module")
def runs() -> Iterator[MutantRuns]:
    with Session(EngineChoice("embedded/iptables")) as session:
        yield MutantRuns(session, "embedded/iptables")


@pytest.fixture(scope="module")
def nftables_runs() -> Iterator[MutantRuns]:
    with Session(EngineChoice("embedded/nftables")) as session:
        yield MutantRuns(session, "embedded/nftables")


@pytest.fixture(scope="module")
def mutants() -> dict[tuple[str, str], Mutant]:
    case = ruled(load_scenario(ROOT / FILE), "embedded/iptables")
    return {(each.rule_class, each.mutation): each for each in mutants_of([case], "embedded/iptables")}


def test_a_lab_keeps_the_mutated_rules_and_a_probe_notices(
    mutants: dict[tuple[str, str], Mutant], runs: MutantRuns
) -> None:
    case = ruled(load_scenario(ROOT / FILE), "embedded/iptables")
    assert runs.baseline(case.case, lambda _what: None).trouble == ""
    port = runs.settled(mutants[DNAT, "DNAT to another port"], [case], lambda _what: None)
    assert port.noticed is not None
    assert port.noticed.judgement == "fail"
    ports = runs.settled(mutants[MASQUERADE, "without --random-fully"], [case], lambda _what: None)
    assert ports.survives  # each client of the scenario has a source port of its own


@pytest.mark.parametrize(("scenario", "change"), NOTICED)
def test_a_scenario_notices_what_no_other_does(scenario: str, change: str, runs: MutantRuns) -> None:
    engine, (rule, item) = "embedded/iptables", NOTICED[scenario, change]
    case = ruled(
        cases(load_scenario(ROOT / f"scenarios/{scenario}.lab.yaml"), mode_of(engine), version_of(engine))[0], engine
    )
    (mutant,) = (each for each in mutants_of([case], engine) if (each.rule_class, each.mutation) == (rule, change))
    noticed = runs.settled(mutant, [case], lambda _what: None).noticed
    assert noticed is not None
    assert (noticed.file, noticed.item.partition("[")[0], noticed.judgement) == (case.case.file, item, "fail")


@OWN
@pytest.mark.thorough  # it boots a guest
def test_a_guest_keeps_mutated_tables_of_ipvs_and_a_probe_notices() -> None:
    engine = "embedded/ipvs"
    (case, *_) = cases(load_scenario(ROOT / "scenarios/clusterip/from-a-pod.lab.yaml"), mode_of(engine))
    own = [each for each in mutants_of([ruled(case, engine)], engine) if each.rule_class.startswith(("ipvs", "kube-"))]
    assert len(own) == 7
    with Session(EngineChoice(engine, kernel="uml")) as session:
        runs = MutantRuns(session, engine)
        found = {(each.rule_class, each.mutation): runs.settled(each, [ruled(case, engine)], print) for each in own}
    assert [key for key, each in found.items() if each.survives] == []
    absent = found["ipvs KUBE-CLUSTER-IP -a ENDPOINT -r ENDPOINT", "-r of another port"].noticed
    assert absent is not None
    assert absent.judgement == "fail"


@pytest.mark.parametrize(("scenario", "change"), NOTICED_IN_NFTABLES)
def test_a_scenario_notices_what_no_other_does_in_mode_nftables(
    scenario: str, change: str, nftables_runs: MutantRuns
) -> None:
    engine, (rule, item) = "embedded/nftables", NOTICED_IN_NFTABLES[scenario, change]
    (case,) = cases(load_scenario(ROOT / f"scenarios/{scenario}.lab.yaml"), mode_of(engine))
    mutant = Mutant(engine=engine, rule_class=rule, mutation=change, rule="")
    noticed = nftables_runs.settled(mutant, [ruled(case, engine)], lambda _what: None).noticed
    assert noticed is not None
    assert (noticed.file, noticed.item.partition("[")[0], noticed.judgement) == (case.file, item, "fail")


def test_rules_that_the_kernel_refuses_without_the_mutation_too_prove_nothing() -> None:
    engine, nowhere = "embedded/nftables", "scenarios/steps/nftables-table-deleted.lab.yaml"
    case = ruled(*cases(load_scenario(ROOT / nowhere), mode_of(engine)), engine)
    mutant = Mutant(engine=engine, rule_class=HAIRPIN, mutation="without fully-random", rule="")
    with Session(EngineChoice(engine)) as session:  # its end raises what the labs left behind
        assert MutantRuns(session, engine).settled(mutant, [case], lambda _what: None).noticed is None


def test_a_second_call_goes_on_from_the_state_of_the_first(
    mutants: dict[tuple[str, str], Mutant], cli: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    state = tmp_path / "state.jsonl"
    new = mutants.pop((DNAT, "DNAT to another port"))
    known = Noticed(FILE, "known from before", "fail")
    before = [Baseline(file=FILE, case=""), *(decode(encode(each), Mutant) for each in mutants.values())]
    lines = [each if isinstance(each, Baseline) else Mutant(**_fields(each) | {"noticed": known}) for each in before]
    state.write_bytes(b"".join(encode(each) + b"\n" for each in lines))
    typed = cli.type("mutate", FILE, "--state", str(state), "-o", "json")
    assert typed.status == 0
    assert typed.errors.splitlines() == [f"1/1 noticed: {new.rule_class}: {new.mutation}"]
    found = {(each["class"], each["mutation"]): each for each in json.loads(typed.output)}
    assert len(found) == len(mutants) + 1
    assert found[new.rule_class, new.mutation]["noticed"]["item"] != "known from before"
    assert cli.type("mutate", FILE, "--state", str(state)).errors == ""
    refused = cli.type("mutate", FILE, "--state", str(state), "--engine", "embedded/userspace")
    assert refused.status == 2
    assert "embedded/iptables" in refused.errors


@pytest.mark.thorough  # a campaign of the verb loads them too, and names what a kernel refuses
@pytest.mark.parametrize(
    ("engine", "command"),
    [("embedded/iptables", "iptables-restore --test --noflush"), ("embedded/nftables", "nft --check --file -")],
)
def test_the_kernel_takes_every_mutant(engine: str, command: str, tmp_path: Path) -> None:
    mode, lines = mode_of(engine), MODES[mode_of(engine)].mutants
    found: dict[tuple[str, str], str] = {}
    for name in FILES:
        (case, *_) = cases(load_scenario(ROOT / f"scenarios/{name}.lab.yaml"), mode)
        layout = lay_out(case)
        rules = next(rendered_rules(case, layout.plan, layout.objects, engine))
        for rule, line in zip(lines.classes(rules.text), rules.text.split("\n"), strict=True):
            for change in lines.mutants(rule, line) if rule else ():
                if (rule, change) not in found:
                    found[rule, change] = mutated(rules.text, Mutation(rule, change), lines)
    assert len(found) > 90
    for number, text in enumerate(found.values()):
        (tmp_path / str(number)).write_text(text)
    check = f"for f in {tmp_path}/*; do {command} < $f || echo refuses $f; done 2>&1"
    with Session(EngineChoice("embedded/userspace")) as session:
        lab = session.open(load_scenario(ROOT / FILE))
        printed = lab.execute("node-b", "sh", "-c", check).stdout
    refused = [key for number, key in enumerate(found) if f"refuses {tmp_path}/{number}\n" in printed]
    assert not refused, printed


def _fields(mutant: Mutant) -> dict[str, object]:
    return {name: getattr(mutant, name) for name in mutant.__struct_fields__}
