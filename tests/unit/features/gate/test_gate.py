"""``proxylab gate``: a binary or a checkout against the release before it, with a lab that needs no kernel."""

import json
import shutil
from pathlib import Path
from xml.etree import ElementTree

import pytest
from caller import Caller
from conformance_tables import subject
from git_repositories import git, make_repository
from golden_words import Told
from kube_proxies import program
from msgspec.structs import replace
from scenario_text import scenario_text

from proxylab.cli.engine_options import choice_of
from proxylab.errors import ExitCode
from proxylab.features.conformance.conformance_table import Conformance, Item, ItemResult, read
from proxylab.features.gate.gate_text import Gate, against_release, gate_lines

needs_git = pytest.mark.skipif(shutil.which("git") is None, reason="needs git; 'apt-get install git'")


def release(**results: ItemResult) -> Conformance:
    """What a release of both modes came to: a result for each probe of ``clusterip/a``."""
    items = [Item(scenario="clusterip/a", name=name, results=(result,) * 2) for name, result in results.items()]
    columns = tuple(subject(f"kube-proxy@v1.37/{mode}", "v1.37.2") for mode in ("iptables", "nftables"))
    return Conformance(columns, tuple(items))


@pytest.fixture
def catalogue(caller: Caller, monkeypatch: pytest.MonkeyPatch) -> Caller:
    """A user with a catalogue of one scenario of the core, and one of another theme that is not."""
    folder = caller.folder / "catalogue"
    for name, probes, metadata in (
        ("clusterip/a", ("holds", "fails"), ", tags: [core]"),
        ("topology/b", ("holds",), ""),
    ):
        file = folder / f"{name}.lab.yaml"
        file.parent.mkdir(parents=True)
        file.write_text(scenario_text(*probes, metadata=metadata))
    monkeypatch.setattr("proxylab.features.gate.verb.files_of", lambda *names: (folder,))
    monkeypatch.setenv("COLUMNS", "400")
    monkeypatch.delenv("ARTIFACTS", raising=False)
    monkeypatch.delenv("PULL_BASE_SHA", raising=False)
    monkeypatch.chdir(caller.folder)
    program(caller.folder / "kube-proxy", "v1.37.3")
    return caller


def released(monkeypatch: pytest.MonkeyPatch, table: Conformance) -> None:
    monkeypatch.setattr("proxylab.features.gate.verb.released_results", table.to_json)


def test_what_is_green_on_the_release_and_red_here_keeps_a_change_out(
    catalogue: Caller, monkeypatch: pytest.MonkeyPatch, told: Told
) -> None:
    released(monkeypatch, release(holds=ItemResult.PASS, fails=ItemResult.PASS))
    code, output, _ = catalogue.type("gate", "kube-proxy")
    assert code == ExitCode.FAILED
    assert output.count("red: the packet took another way\n    clusterip/a: fails\n") == 2, "one for each mode"
    assert "compared with kube-proxy@v1.37.2/nftables" in output
    assert output.splitlines()[-1] == told()
    assert "the core of the catalogue ran alone" in output


def test_what_is_red_on_the_release_too_does_not(catalogue: Caller, monkeypatch: pytest.MonkeyPatch) -> None:
    released(monkeypatch, release(holds=ItemResult.PASS, fails=ItemResult.FAIL))
    code, output, _ = catalogue.type("gate", "kube-proxy")
    assert (code, output.splitlines()[-1]) == (ExitCode.OK, "the change passes: nothing turned red")
    assert "1 item red there, too" in output


def test_scenarios_that_the_release_never_ran_are_counted() -> None:
    """A lab that fails is an item that no release has, of a scenario that it ran."""
    item = Item(
        scenario="clusterip/a", name="", results=(ItemResult.FAIL,), reasons={"engine on node-a: it died": (0,)}
    )
    items = (item, replace(item, scenario="clusterip/new", reasons={"engine on node-b: it died": (0,)}))
    found = Conformance((subject("kube-proxy/iptables", "v1.37.3"),), items)
    against = against_release(found, 0, release(fails=ItemResult.PASS))
    assert (against.unknown, against.red_on_both, len(against.turned)) == (1, 0, 2)
    gate = Gate(ran="", against=(against,), touched=None, base="", late={}, minutes=1.0, ready=0.0, tested=0.0)
    assert sum(line.startswith("  red: ") for line in gate_lines(gate)) == 1, "one fault, on whatever node"


def test_what_the_release_never_ran_is_red_by_itself(catalogue: Caller, monkeypatch: pytest.MonkeyPatch) -> None:
    released(monkeypatch, Conformance((), ()))
    code, output, _ = catalogue.type("gate", "kube-proxy")
    assert (code, output.count("with no release to compare with")) == (ExitCode.FAILED, 2)


def test_the_artifacts_are_where_prow_reads_them(catalogue: Caller, monkeypatch: pytest.MonkeyPatch) -> None:
    released(monkeypatch, release(holds=ItemResult.PASS, fails=ItemResult.PASS))
    monkeypatch.setenv("ARTIFACTS", "prow")
    catalogue.type("gate", "kube-proxy")
    suites = ElementTree.parse("prow/junit_proxylab.xml").getroot()
    assert [each.get("failures") for each in suites] == ["1", "1"]
    table = read(Path("prow/proxylab.json").read_text())
    assert {each.binary.version for each in table.columns if each.binary} == {"v1.37.3"}
    assert "<table>" in Path("prow/proxylab.html").read_text()
    assert "the packet took another way" in Path("prow/failures.html").read_text()
    met = json.loads(Path("prow/rules.json").read_text())
    assert list(met) == ["kube-proxy/iptables", "kube-proxy/nftables"]
    (kind,) = met["kube-proxy/iptables"]["kinds"]
    assert (kind["where"], kind["rules"], kind["met"]) == ("nat KUBE-MARK-MASQ", 1, 0)


def test_rules_that_no_probe_met_are_named(catalogue: Caller, monkeypatch: pytest.MonkeyPatch) -> None:
    released(monkeypatch, release(holds=ItemResult.PASS, fails=ItemResult.PASS))
    _, output, _ = catalogue.type("gate", "kube-proxy")
    assert (
        "  probes met 0 of 1 kinds of rules, 0 of 1 rules\n  no probe met\n"
        "    nat KUBE-MARK-MASQ -j MARK --set-xmark MARK/MARK\n"
    ) in output


def test_what_does_not_begin_in_time_is_said_and_judged_by_nothing(
    catalogue: Caller, monkeypatch: pytest.MonkeyPatch, told: Told
) -> None:
    released(monkeypatch, release(holds=ItemResult.PASS, fails=ItemResult.PASS))
    code, output, _ = catalogue.type("gate", "kube-proxy", "--minutes", "0.000001")
    assert code == ExitCode.CAPABILITY, "a gate that judged nothing does not pass"
    assert output.count("1 scenario did not run within 1e-06 minutes; try --minutes 2e-06\n") == 2
    assert output.splitlines()[-1] == told()


@needs_git
def test_a_checkout_runs_what_its_change_touches(catalogue: Caller, monkeypatch: pytest.MonkeyPatch) -> None:
    released(monkeypatch, release(holds=ItemResult.PASS, fails=ItemResult.FAIL))
    sources = catalogue.folder / "kubernetes"
    for name in ("cmd/kube-proxy/proxy.go", "go.mod", "pkg/proxy/topology.go", "pkg/proxy/iptables/proxier.go"):
        (sources / name).parent.mkdir(parents=True, exist_ok=True)
        (sources / name).write_text("package x\n")
    make_repository(sources, "v1.37.2")
    monkeypatch.setattr(
        "proxylab.features.gate.verb.choice_of",
        lambda engine, given: choice_of(engine, replace(given, kube_proxy=str(catalogue.folder / "kube-proxy"))),
    )
    _, output, _ = catalogue.type("gate", "kubernetes")
    assert "no file since " in output
    assert "topology/b" not in "".join(catalogue.events())
    (sources / "pkg/proxy/topology.go").write_text("package y\n")
    git(sources, "commit", "-qam", "A change")
    _, output, _ = catalogue.type("gate", "kubernetes")
    base = git(sources, "rev-parse", "v1.37.2")[:12]
    assert f"1 file since {base} can alter mode iptables (clusterip" in output
    assert "kube-proxy/nftables: 2 of 3 conform" in output
    code, _, errors = catalogue.type("gate", "kubernetes", "--base", "nowhere")
    assert (code, "no commit 'nowhere'" in errors) == (2, True)
