"""``proxylab conformance``: runs the catalogue, writes its table, and compares two."""

import json
import re
from hashlib import sha256
from pathlib import Path

import pytest
from caller import Caller
from conformance_tables import BROKEN, RELEASE
from kube_proxies import program

from proxylab.errors import ExitCode
from proxylab.features.conformance.conformance_files import markdown
from proxylab.features.conformance.conformance_table import read


@pytest.fixture
def catalogue(caller: Caller, monkeypatch: pytest.MonkeyPatch) -> Caller:
    """A user whose catalogue has two themes, one of which fails."""
    caller.scenario("catalogue/clusterip/a.lab.yaml", "holds", "skips")
    caller.scenario("catalogue/nodeport/b.lab.yaml", "fails")

    def files_of(*names: str) -> tuple[Path, ...]:
        return tuple(Path("catalogue") / name for name in names) or (Path("catalogue"),)

    monkeypatch.setattr("proxylab.features.conformance.verb.files_of", files_of)
    return caller


def test_the_catalogue_on_an_engine_is_a_table_by_theme(catalogue: Caller) -> None:
    code, output, errors = catalogue.type("conformance", "--engine", "embedded/nftables")
    assert code == ExitCode.FAILED
    rows = [line.split() for line in output.splitlines()[:4]]
    assert rows[1:] == [
        ["clusterip", "1", "of", "1", "1"],
        ["nodeport", "0", "of", "1"],
        ["all", "1", "of", "2", "1"],
    ]
    assert "fail: nodeport/b: fails\n  the packet took another way\n" in output
    assert output.splitlines()[-1] == "embedded@v1.38/nftables: 1 of 2"
    assert "catalogue/nodeport/b.lab.yaml" in errors


def test_a_theme_alone_runs_alone(catalogue: Caller) -> None:
    code, output, _ = catalogue.type("conformance", "clusterip", "-o", "json")
    assert code == ExitCode.OK
    (column,) = read(output).columns
    assert (column.engine, column.version, column.scenarios) == ("embedded/iptables", "v1.38", 1)
    assert [each.title for each in read(output).items] == ["clusterip/a: holds", "clusterip/a: skips"]


def test_engines_are_columns_and_reports_join(catalogue: Caller) -> None:
    both = ("--engine", "embedded/iptables", "--engine", "embedded/nftables")
    catalogue.type("conformance", *both, "-j", "2", "--report", "sub/both.json")
    catalogue.type("conformance", "--engine", "embedded/ipvs", "--report", "ipvs.json")
    code, output, _ = catalogue.type("conformance", "--from", "sub/both.json", "--from", "ipvs.json", "-o", "json")
    assert code == ExitCode.FAILED
    assert [each.mode for each in read(output).columns] == ["iptables", "nftables", "ipvs"]
    assert len({each.catalogue for each in read(output).columns}) == 1, "one digest of the whole catalogue"
    assert read(output).columns[0].catalogue != sha256(b"").hexdigest()[:12]
    assert {tuple(each.results) for each in read(output).items} == {("pass",) * 3, ("skip",) * 3, ("fail",) * 3}


@pytest.fixture
def reports(caller: Caller) -> Caller:
    """A user with two reports."""
    for name, table in (("release", RELEASE), ("broken", BROKEN)):
        (caller.folder / f"{name}.json").write_text(table.to_json())
    return caller


def test_only_a_change_for_the_worse_fails(reports: Caller) -> None:
    code, output, _ = reports.type("conformance", "--from", "broken.json", "--compare", "release.json")
    assert (code, "no longer conforms: 1" in output) == (ExitCode.FAILED, True)
    code, output, _ = reports.type("conformance", "--from", "release.json", "--compare", "broken.json")
    assert (code, "conforms now: 1" in output) == (ExitCode.OK, True)


def test_a_run_can_be_compared_with_a_report(catalogue: Caller) -> None:
    catalogue.type("conformance", "--report", "before.json")
    catalogue.scenario("catalogue/nodeport/b.lab.yaml", "holds")
    code, output, _ = catalogue.type("conformance", "--compare", "before.json")
    assert code == ExitCode.OK
    assert "nodeport/b: holds (absent, now pass)" in output


def test_reports_of_parts_of_the_catalogue_are_one(catalogue: Caller) -> None:
    catalogue.scenario("catalogue/nodeport/b.lab.yaml", "holds")
    catalogue.type("conformance", "clusterip", "--report", "one.json")
    catalogue.type("conformance", "nodeport", "--report", "other.json")
    _, output, _ = catalogue.type("conformance", "--from", "one.json", "--from", "other.json", "-o", "json")
    (column,) = read(output).columns
    assert column.scenarios == 2
    assert {each.theme for each in read(output).items if each.results == ("pass",)} == {"clusterip", "nodeport"}


def test_a_bug_is_not_hidden_by_a_comparison(catalogue: Caller) -> None:
    catalogue.type("conformance", "--report", "before.json")
    catalogue.scenario("catalogue/nodeport/b.lab.yaml", "holds", name="broken")
    assert catalogue.type("conformance", "--compare", "before.json")[0] == ExitCode.INTERNAL


def test_the_table_is_printed_even_if_something_is_left_in_the_end(catalogue: Caller) -> None:
    catalogue.scenario("catalogue/clusterip/a.lab.yaml", "holds", name="leaving")
    code, output, errors = catalogue.type("conformance", "clusterip")
    assert code == ExitCode.INTERNAL
    assert "embedded@v1.38/iptables: 1 of 1" in output
    assert "left behind: descriptor 9" in errors


def test_a_report_has_the_form_of_its_suffix(reports: Caller) -> None:
    files = {"r.json": "{", "r.xml": "<?xml", "r.html": "<!doctype html>", "r.md": "# ", "r.svg": "<svg"}
    options = [word for file in files for word in ("--report", f"new/{file}")]
    assert reports.type("conformance", "--from", "release.json", *options)[0] == ExitCode.OK
    for file, beginning in files.items():
        assert (reports.folder / "new" / file).read_text().startswith(beginning)
    (reports.folder / "taken").write_text("a file where a folder must be")
    code, output, errors = reports.type("conformance", "--from", "release.json", "--report", "taken/r.md")
    assert (code, output) == (ExitCode.SCENARIO, "")
    assert "cannot write taken/r.md: " in errors
    (reports.folder / "full.md").symlink_to("/dev/full")  # which says that only when it gets the table
    code, output, errors = reports.type("conformance", "--from", "release.json", "--report", "full.md")
    assert (code, "4 of 4" in output) == (ExitCode.FAILED, True)
    assert "cannot write full.md: " in errors


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--from", "release.json", "--compare", "iptables.json"), "no mode nftables, only iptables; name another"),
        (("--from", "run.json"), "run.json: it is no ConformanceReport"),
        (("--report", "table.txt", "--from", "release.json"), "must end in .json"),
        (("nodeport", "--from", "release.json"), "--from runs nothing; leave out NAME"),
        (("nodeports",), "did you mean 'nodeport'?"),
    ],
)
def test_mistakes_are_named(reports: Caller, arguments: tuple[str, ...], words: str) -> None:
    (reports.folder / "run.json").write_text(json.dumps({"kind": "RunReport"}))
    (reports.folder / "iptables.json").write_text(RELEASE.to_json().replace("/nftables", "/iptables"))
    code, _, errors = reports.type("conformance", *arguments)
    assert code == ExitCode.SCENARIO
    assert words in " ".join(errors.split())


def test_the_binary_is_named_in_every_form(catalogue: Caller) -> None:
    """A patch that calls itself by the version of a release is told from it."""
    digest = sha256(program(catalogue.folder / "mine", "v1.37.2", "# with a patch").read_bytes()).hexdigest()
    words = f"kube-proxy v1.37.2: the file {catalogue.folder / 'mine'}; SHA-256 {digest[:12]}"
    files = [f"table{suffix}" for suffix in (".json", ".xml", ".html", ".md")]
    written = [word for file in files for word in ("--report", file)]
    chosen = ("--engine", "kube-proxy/nftables", "--kube-proxy", "mine", "--engine", "embedded/nftables")
    _, output, _ = catalogue.type("conformance", *chosen, *written)
    assert words in " ".join(output.split())
    texts = [(catalogue.folder / file).read_text() for file in files]
    real, embedded = read(texts[0]).columns
    assert (str(real.binary), real.binary and real.binary.digest) == (words, digest)
    assert embedded.binary is None
    assert f'<property name="binary" value="{words}" />' in texts[1]
    assert f'<property name="binary_sha256" value="{digest}" />' in texts[1]
    for text in texts[2:]:
        shown = re.sub("<[^>]+>", "", text)
        assert words in shown
        assert "a part of proxylab" in shown


def test_a_report_from_before_has_no_binary_and_says_so() -> None:
    assert RELEASE.columns[0].binary is None
    assert "| unknown |" in markdown(RELEASE)
