"""``proxylab mutate``: real labs notice mutants of real rules, and the state of a call is the beginning of the next."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from command_line import CommandLine
from sandboxed import ROOT

from proxylab.client.mutants import MutantRuns, mutants_of, ruled
from proxylab.client.rendered_rules import rendered_rules
from proxylab.client.session import Session
from proxylab.encoding import decode, encode
from proxylab.engines.embedded.mutation import Mutation, mutated
from proxylab.engines.engine_names import mode_of, version_of
from proxylab.engines.modes import MODES
from proxylab.engines.protocol import EngineChoice
from proxylab.plan.assembly import lay_out
from proxylab.report.mutants import Baseline, Mutant, Noticed
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
    ("steps/a-cluster-ip-that-the-node-has", "without --ctstate"): (
        "filter OUTPUT --ctstate NEW -j KUBE-SERVICES # kubernetes service portals",
        "a Service without endpoints gets the address, and the connection loses nothing",
    ),
    ("steps/connections-from-before-the-service", "without --ctstate"): (
        "filter OUTPUT --ctstate NEW -j KUBE-PROXY-FIREWALL # kubernetes load balancer firewall",
        "Services claim the addresses, and the connections lose nothing",
    ),
}
"""The class that a scenario notices with a change, and the probe or step that fails first."""

DNAT = "nat KUBE-SEP-* -p PROTOCOL -j DNAT --to-destination ENDPOINT"

MASQUERADE = "nat KUBE-POSTROUTING --random-fully -j MASQUERADE # kubernetes service traffic requiring SNAT"


@pytest.fixture(scope="module")
def runs() -> Iterator[MutantRuns]:
    with Session(EngineChoice("embedded/iptables")) as session:
        yield MutantRuns(session, "embedded/iptables")


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
    assert lines is not None
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
