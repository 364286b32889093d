"""``proxylab merge`` and ``run --shard``: parts of a run, and runs side by side, become one."""

import json
import re
from xml.etree import ElementTree

import pytest
from caller import Caller
from msgspec.structs import replace
from probed import RUN

from proxylab.errors import ExitCode
from proxylab.report.html import Heading, PageEntry, entries_of, message, page, read_page
from proxylab.verdict.model import Judgement


@pytest.fixture
def five(caller: Caller) -> Caller:
    """A user with five files, one of which fails."""
    for name in "abde":
        caller.scenario(f"{name}.lab.yaml", "holds")
    caller.scenario("c.lab.yaml", "fails")
    return caller


def run(caller: Caller, file: str, *arguments: str) -> int:
    code, output, errors = caller.type("run", ".", "-o", "json", *arguments)
    assert errors.count("Traceback") == 0
    (caller.folder / file).write_text(output)
    return code


def test_shards_run_every_file_once_and_their_reports_become_that_of_the_whole_run(five: Caller) -> None:
    codes = {run(five, f"{index}.json", "--shard", f"{index}/2") for index in (1, 2)}
    assert codes == {ExitCode.OK, ExitCode.FAILED}
    assert run(five, "whole.json") == ExitCode.FAILED
    code, output, _ = five.type("merge", "1.json", "2.json", "-o", "json")
    merged, whole = json.loads(output), json.loads((five.folder / "whole.json").read_text())
    assert code == merged["exitCode"] == ExitCode.FAILED
    assert merged["counts"] == whole["counts"]
    assert sorted(each["file"] for each in merged["scenarios"]) == [each["file"] for each in whole["scenarios"]]
    code, output, _ = five.type("merge", "1.json", "2.json")
    assert code == ExitCode.FAILED
    assert "c.lab.yaml:10:5: fails\n  fail [embedded/iptables]: the packet took another way\n" in output
    assert "1 failed, 4 passed in" in output.splitlines()[-1]


def test_a_missing_shard_is_no_success(five: Caller) -> None:
    run(five, "1.json", "--shard", "1/3")
    run(five, "3.json", "--shard", "3/3")
    code, output, errors = five.type("merge", "1.json", "3.json")
    assert (code, output) == (ExitCode.SCENARIO, "")
    assert "shard 2/3 is missing; merge the outputs of all shards" in errors


def test_shards_are_balanced_by_the_times_of_an_earlier_run(five: Caller) -> None:
    scenarios = [{"file": f"{name}.lab.yaml", "seconds": 9 if name == "b" else 1} for name in "abcde"]
    (five.folder / "times.json").write_text(json.dumps({"scenarios": scenarios}))
    run(five, "1.json", "--shard", "1/2", "--times", "times.json")
    document = json.loads((five.folder / "1.json").read_text())
    assert [each["file"] for each in document["scenarios"]] == ["b.lab.yaml"]
    assert document["shard"] == "1/2"


def test_runs_on_several_engines_become_columns(five: Caller) -> None:
    run(five, "new.json")
    run(five, "old.json", "--engine", "embedded@v1.23/iptables")
    _, output, _ = five.type("merge", "new.json", "old.json")
    lines = output.splitlines()
    assert lines[0].split() == ["scenario", "embedded/iptables", "embedded@v1.23/iptables"]
    assert lines[3].split() == ["c.lab.yaml", "fail", "fail"]


def test_runs_on_one_engine_have_the_names_of_their_files(five: Caller) -> None:
    run(five, "before.json")
    run(five, "after.json")
    _, output, _ = five.type("merge", "before.json", "after.json")
    assert "embedded/iptables (before)  embedded/iptables (after)" in output


def test_runs_of_one_engine_on_several_kernels_have_a_column_for_each(five: Caller) -> None:
    for name, kernel, release in (("host", "host", "6.12.1"), ("old", "uml", "6.1.9"), ("new", "uml", "7.2.11")):
        run(five, f"{name}.json", "--kernel", "host")
        document = json.loads((five.folder / f"{name}.json").read_text())
        for each in document["scenarios"]:
            # The release is unknown where no lab was built.
            each |= {"kernel": kernel, "release": None if each["file"] == "a.lab.yaml" else release}
        (five.folder / f"{name}.json").write_text(json.dumps(document))
    _, output, _ = five.type("merge", "host.json", "old.json", "new.json")
    columns = ["embedded/iptables", "embedded/iptables on uml 6.1.9", "embedded/iptables on uml 7.2.11"]
    head, engines, first, judgements = output.splitlines()[:4]
    assert (head, re.split("  +", engines.strip())) == ("scenario", columns)
    assert (first, judgements.split()) == ("a.lab.yaml", ["pass", "pass", "pass"])
    assert "fail [embedded/iptables on uml 7.2.11]: the packet took another" in output
    again = json.loads(five.type("merge", "host.json", "old.json", "new.json", "-o", "json")[1])["scenarios"]
    assert {each["engine"] for each in again} == {"embedded/iptables"}


@pytest.mark.parametrize(
    ("files", "words"),
    [
        ({"a.json": "{}", "b.xml": "<a/>"}, "different kinds"),
        ({"a.txt": ""}, "different kinds"),
        ({"a.json": "{"}, "a: _Document: not JSON"),
        ({"a.json": '{"apiVersion": "v1", "kind": "List", "scenarios": []}'}, "a: it is no RunReport of proxylab/v1"),
        ({"a.xml": "<a"}, "a: "),
        ({"a.html": "<html></html>"}, "a: it is no page of a run"),
    ],
)
def test_what_is_no_report_is_refused(caller: Caller, files: dict[str, str], words: str) -> None:
    for name, text in files.items():
        (caller.folder / name).write_text(text)
    code, _, errors = caller.type("merge", *files)
    assert code == ExitCode.SCENARIO
    assert words in errors


def test_suites_of_junit_are_counted_together(caller: Caller) -> None:
    for name, failures in (("one", 0), ("two", 1)):
        suite = f'<testsuite name="pytest" tests="3" failures="{failures}" errors="0" skipped="1" time="1.5"/>'
        (caller.folder / f"{name}.xml").write_text(f"<testsuites>{suite}</testsuites>")
    code, output, _ = caller.type("merge", "one.xml", "two.xml")
    assert code == ExitCode.FAILED
    root = ElementTree.fromstring(output)
    assert [each.get("name") for each in root] == ["one", "two"]
    assert (root.get("tests"), root.get("failures"), root.get("skipped"), root.get("time")) == ("6", "1", "2", "3.000")
    assert caller.type("merge", "one.xml")[0] == ExitCode.OK


def test_a_missing_shard_of_junit_is_no_success(caller: Caller) -> None:
    shard = '<properties><property name="shard" value="{}/3"/></properties>'
    for index in (1, 3):
        suite = f'<testsuite tests="1" failures="0" errors="0">{shard.format(index)}</testsuite>'
        (caller.folder / f"{index}.xml").write_text(f"<testsuites>{suite}</testsuites>")
    code, output, errors = caller.type("merge", "1.xml", "3.xml")
    assert (code, output) == (ExitCode.SCENARIO, "")
    assert "shard 2/3 is missing; merge the outputs of all shards" in errors


HOSTILE = "--><script>alert(1)</script><!--entry -- \"'&<!--/entry-->"


def entries() -> list[PageEntry]:
    hostile = Heading(file=HOSTILE, engine=HOSTILE, case=HOSTILE, description=HOSTILE, tags=(HOSTILE,))
    found = [each for result in RUN for each in entries_of(result)]
    return [*found, message(hostile, HOSTILE, Judgement.FAIL, HOSTILE, 1e-7)]


def test_a_page_can_be_read_again() -> None:
    about = {"kernel": HOSTILE, "begun": "2026-01-01"}
    text = page(entries(), about)
    assert sorted(read_page(text)[0], key=repr) == sorted(entries(), key=repr)
    assert read_page(text)[1] == about
    again = page(*read_page(text))
    assert page(*read_page(again)) == again
    assert "<script>alert" not in text


def test_pages_side_by_side_become_one_with_a_column_each(caller: Caller) -> None:
    for name, kernel in (("old", "6.1"), ("new", "6.12")):
        (caller.folder / f"{name}.html").write_text(page(entries(), {"kernel": kernel, "proxylab": "1"}))
    code, output, _ = caller.type("merge", "old.html", "new.html")
    assert code == ExitCode.FAILED
    found, about = read_page(output)
    assert about == {"kernel": "6.1, 6.12", "proxylab": "1"}
    engines = {each.heading.engine for each in found}
    assert {"embedded/iptables (old)", "embedded/iptables (new)"} <= engines
    bare = [replace(each, heading=replace(each.heading, engine="")) for each in found]
    assert len(bare) == 2 * len(entries())


def test_pages_of_one_engine_on_several_kernels_have_a_column_for_each(caller: Caller) -> None:
    for name, kernel, release in (("host", "", ""), ("old", " on uml", "6.1.9"), ("new", " on uml", "7.2.11")):
        heading = Heading(file="a.lab.yaml", engine=f"embedded/ipvs{kernel}", kernel=release)
        (caller.folder / f"{name}.html").write_text(page([message(heading, "n", Judgement.PASS, "")], {}))
    _, output, _ = caller.type("merge", "host.html", "old.html", "new.html")
    found = {each.heading.engine for each in read_page(output)[0]}
    assert found == {"embedded/ipvs", "embedded/ipvs on uml 6.1.9", "embedded/ipvs on uml 7.2.11"}
