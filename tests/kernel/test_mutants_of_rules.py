"""``proxylab mutate``: real labs notice mutants of real rules, and the state of a call is the beginning of the next."""

import json
from pathlib import Path

import pytest
from command_line import CommandLine
from sandboxed import ROOT

from proxylab.client.mutants import MutantRuns, mutants_of, ruled
from proxylab.client.session import Session
from proxylab.encoding import decode, encode
from proxylab.engines.protocol import EngineChoice
from proxylab.report.mutants import Baseline, Mutant, Noticed
from proxylab.scenario.load import load_scenario

FILE = "scenarios/clusterip/from-a-pod.lab.yaml"
DNAT = "nat KUBE-SEP-* -p PROTOCOL -j DNAT --to-destination ENDPOINT"


@pytest.fixture(scope="module")
def mutants() -> dict[tuple[str, str], Mutant]:
    case = ruled(load_scenario(ROOT / FILE), "embedded/iptables")
    return {(each.rule_class, each.mutation): each for each in mutants_of([case], "embedded/iptables")}


def test_a_lab_keeps_the_mutated_rules_and_a_probe_notices(mutants: dict[tuple[str, str], Mutant]) -> None:
    case = ruled(load_scenario(ROOT / FILE), "embedded/iptables")
    with Session(EngineChoice("embedded/iptables")) as session:
        runs = MutantRuns(session, "embedded/iptables")
        assert runs.baseline(case.case, lambda _what: None).trouble == ""
        port = runs.settled(mutants[DNAT, "DNAT to another port"], [case], lambda _what: None)
        assert port.noticed is not None
        assert port.noticed.judgement == "fail"
        protocol = runs.settled(mutants[DNAT, "-p of TCP and UDP"], [case], lambda _what: None)
        assert protocol.survives  # the Service has no port of UDP


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


def _fields(mutant: Mutant) -> dict[str, object]:
    return {name: getattr(mutant, name) for name in mutant.__struct_fields__}
