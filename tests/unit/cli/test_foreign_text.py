"""Text of others never acts on a terminal or a CI system, whichever verb shows it, and in whichever field it stands.

Each string of each document gets an end that would colour, ring, reorder, begin a line of its own, or give a command.
"""

import json
import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml
from audits import RIGHT, asked, audit_of, wrong
from caller import Caller
from circumstances import HERE
from conformance_tables import BROKEN
from hypothesis import example, given
from hypothesis import strategies as st
from kubectl_clusters import k3s
from msgspec.structs import replace
from poisoned import poisoned
from probed import not_masqueraded
from scenario_cases import frontend, probe, two_nodes

from proxylab.cli.standard_streams import echo
from proxylab.errors import ExitCode, InternalError
from proxylab.evidence.evidence import Capture
from proxylab.features.audit.audit_page import page as audit_page
from proxylab.features.audit.findings import Audit
from proxylab.features.audit.findings import to_json as audit_json
from proxylab.features.audit.findings import to_lines as audit_lines
from proxylab.features.gate.gate_text import Gate, against_release, gate_lines
from proxylab.features.migrate.certificate import Certificate, certificate_of
from proxylab.features.migrate.certificate_page import page as certificate_page
from proxylab.features.migrate.certificate_text import to_json as certificate_json
from proxylab.features.migrate.certificate_text import to_lines as certificate_lines
from proxylab.plan.model import PlannedNamespace, Role
from proxylab.plan.topology import draw
from proxylab.report.bundle import bundle
from proxylab.text import printable

WRITTEN = "INJECTED"
BAD = f"\x1b[31m\a\u202e\r##[error]\n::error::{WRITTEN}\n{WRITTEN}"
COMMAND = re.compile(r"^\s*::[A-Za-z_-]+[ :]|##\w*\[")


def faults(text: str) -> list[str]:
    """The lines of a text that could act, and those that the text of others wrote."""
    return [
        line
        for line in text.split("\n")
        if not line.replace("\t", "").isprintable() or COMMAND.search(line) or line.startswith(WRITTEN)
    ]


def paths(value: Any, path: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    """Where the strings of a document stand."""
    match value:
        case str():
            yield path
        case list():
            yield from (found for number, each in enumerate(value) for found in paths(each, (*path, number)))
        case dict():
            yield from (found for key, each in value.items() for found in paths(each, (*path, key)))


def variants(document: Any) -> Iterator[Any]:
    """The document with one string changed, for each field: items of a list have the same fields."""
    fields = {tuple("" if isinstance(key, int) else key for key in path): path for path in paths(document)}
    for *others, last in fields.values():
        changed = json.loads(json.dumps(document))
        at = changed
        for key in others:
            at = at[key]
        at[last] += BAD
        yield changed


def as_document(each: Any) -> str:
    return json.dumps(each, ensure_ascii=False)


def as_documents(each: Sequence[Any]) -> str:
    return "\n---\n".join(map(as_document, each))


def check(
    caller: Caller,
    file: str,
    document: Any,
    *arguments: str,
    dump: Callable[[Any], str] = as_document,
) -> int:
    """Call a verb with each variant in ``file``; return how many it took as valid."""
    taken = 0
    for each in variants(document):
        (caller.folder / file).write_text(dump(each))
        code, output, errors = caller.type(*arguments)
        assert (faults(output), faults(errors)) == ([], []), each
        assert "Traceback" not in errors, errors
        taken += code != ExitCode.SCENARIO
    return taken


@given(st.text())
@example(BAD)
@example("\U000e0001\ud800\x85\u2028\xa0")
@example("## vso[x] ##vso[task] ::a::b\n \t::add-mask::x")
def test_nothing_acts_and_nothing_is_lost(text: str) -> None:
    assert not [line for line in faults(printable(text)) if not line.startswith(WRITTEN)]
    assert "\n" not in printable(text, keep="")
    if "\\" not in text:
        back = re.sub(r"\\u[0-9a-f]{4}|\\[rnt]", lambda each: json.loads(f'"{each[0]}"'), printable(text, keep=""))
        assert back.encode("utf-16", "surrogatepass") == text.encode("utf-16", "surrogatepass")


def test_what_is_plain_stays() -> None:
    for text in ("fd00::1 to ::", "::1", "## heading", "\u2026 \u2011 caf\u00e9", "a\tb\nc"):
        assert printable(text) == text


def test_colours_of_verdicts_pass_and_no_others(capsys: pytest.CaptureFixture[str]) -> None:
    echo("\x1b[32m\x1b[22mpass\x1b[0m \x1b[5m \x1b]0;title\a", color=True)
    assert capsys.readouterr().out == "\x1b[32m\x1b[22mpass\x1b[0m \\u001b[5m \\u001b]0;title\\u0007\n"


@pytest.mark.parametrize("output", ["text", "json"])
def test_merged_documents(caller: Caller, output: str) -> None:
    caller.scenario("a.lab.yaml", "holds", "fails")
    code, text, _ = caller.type("run", ".", "-o", "json")
    assert code == ExitCode.FAILED
    (caller.folder / "other.json").write_text(text.replace("embedded/iptables", "embedded/nftables"))
    assert check(caller, "mine.json", json.loads(text), "merge", "mine.json", "other.json", "-o", output) > 10


def test_merged_junit(caller: Caller) -> None:
    case = '<testcase classname="{0}" name="{0}" time="1"><failure message="{0}">{0}</failure></testcase>'
    suite = f'<testsuite name="{{0}}" tests="1" failures="1" errors="0" skipped="0" time="1">{case}</testsuite>'
    bad = BAD.replace("\x1b", "").replace("\a", "")  # XML 1.0 has no such characters
    (caller.folder / "a.xml").write_text(f"<testsuites>{suite.format('fine' + bad)}</testsuites>")
    code, output, errors = caller.type("merge", "a.xml")
    assert (code, errors) == (ExitCode.FAILED, "")
    assert faults(output.replace(f"\n{WRITTEN}", "\n")) == []


def test_merged_pages(caller: Caller) -> None:
    caller.scenario("a.lab.yaml", "fails")
    caller.type("run", ".", "--report", "a.html")
    text = (caller.folder / "a.html").read_text()
    (caller.folder / "b.html").write_text(text.replace("a.lab.yaml", "a.lab.yaml" + json.dumps(BAD)[1:-1]))
    code, output, _ = caller.type("merge", "b.html")
    assert code == ExitCode.FAILED
    assert faults(output) == []


@pytest.mark.parametrize("form", ["json", "xml", "html", "md", "svg"])
def test_tables_of_conformance(caller: Caller, form: str) -> None:
    written = caller.folder / f"out.{form}"
    for each in variants(json.loads(BROKEN.to_json())):
        (caller.folder / "in.json").write_text(json.dumps(each))
        written.unlink(missing_ok=True)
        _, output, errors = caller.type("conformance", "--from", "in.json", "--report", written.name, "-v")
        texts = (output, errors, written.read_text() if written.exists() else "")
        assert [faults(text) for text in texts] == [[], [], []], each


@pytest.mark.parametrize("file", ["case.json", "plan.json"])
def test_recorded_probes(caller: Caller, file: str) -> None:
    verdict = not_masqueraded()
    plan = draw(two_nodes(probe("p", "sender", frontend())))
    sender = PlannedNamespace(name=verdict.resolved.sender.namespace, role=Role.HOST)
    recorded = bundle(
        verdict,
        circumstances=HERE,
        plan=replace(plan, namespaces=(*plan.namespaces, sender)),
        capture=Capture((), 0),
        nodes={},
        scenario=b"",
    )
    (caller.folder / "plan.json").write_bytes(recorded["plan.json"])
    (caller.folder / "case.json").write_bytes(recorded["case.json"])
    assert check(caller, file, json.loads(recorded[file]), "judge", ".", "-v") > 10


@pytest.mark.parametrize(
    "words",
    [
        "check in.lab.yaml",
        "expected in.lab.yaml",
        "expected in.lab.yaml -o json",
        "plan in.lab.yaml",
        "graph in.lab.yaml",
        "graph in.lab.yaml -o mermaid",
        "graph in.lab.yaml -o svg",
    ],
)
def test_scenarios(caller: Caller, words: str) -> None:
    caller.scenario("a.lab.yaml", "holds")
    documents = [*yaml.safe_load_all((caller.folder / "a.lab.yaml").read_text())]
    assert len([*variants(documents)]) > 10
    check(caller, "in.lab.yaml", documents, *words.split(), dump=as_documents)  # most are refused, with their text


def printed(lines: Iterable[str], capsys: pytest.CaptureFixture[str]) -> str:
    """Lines on a terminal."""
    echo("\n".join(lines))
    return capsys.readouterr().out


def expect_harmless(record: Any, render: Callable[[Any], Iterator[str]]) -> None:
    """What this record shows, with a text of others in each of its fields in turn, acts nowhere."""
    fields = 0
    for name, each in poisoned(record, BAD):
        try:
            texts = [*render(each)]
        except (
            InternalError,
            KeyError,
            ValueError,
        ):  # a word of ours, such as an engine's, which no file of others has
            continue
        assert [faults(text) for text in texts] == [[] for _ in texts], name
        fields += any(WRITTEN in text for text in texts)
    assert fields > 3


def test_audits(capsys: pytest.CaptureFixture[str]) -> None:
    def render(found: Audit) -> Iterator[str]:
        yield printed(audit_lines(found, 80), capsys)
        yield audit_page(found).replace(f"\n{WRITTEN}", " ")  # HTML takes an end of line as a blank
        yield printed([audit_json(found)], capsys)

    expect_harmless(audit_of(asked(RIGHT), asked(wrong(), "another", "shop/db")), render)


def test_certificates(capsys: pytest.CaptureFixture[str]) -> None:
    def render(found: Certificate) -> Iterator[str]:
        yield printed(certificate_lines(found, 80), capsys)
        yield certificate_page(found).replace(f"\n{WRITTEN}", " ")
        yield printed([certificate_json(found)], capsys)

    old, new = (
        replace(audit_of(asked(verdict), asked(RIGHT, "another", "shop/db")), engine=f"embedded/{mode}")
        for verdict, mode in ((RIGHT, "iptables"), (wrong(), "nftables"))
    )
    expect_harmless(certificate_of(old, new), render)


def test_gates(capsys: pytest.CaptureFixture[str]) -> None:
    def render(found: Gate) -> Iterator[str]:
        yield printed(gate_lines(found), capsys)

    gate = Gate(
        ran="kube-proxy v1.37.2",
        against=tuple(against_release(BROKEN, column, BROKEN) for column in range(len(BROKEN.columns))),
        touched=None,
        base="0123456789abcdef",
        late={"kube-proxy/iptables": 2},
        minutes=10,
        ready=1.0,
        tested=60.0,
    )
    turned = tuple((item, "a reason") for item in BROKEN.items[:2])
    first = replace(gate.against[0], turned=turned, release="kube-proxy@v1.36/iptables")
    expect_harmless(replace(gate, against=(first, *gate.against[1:])), render)


def test_imported_clusters(caller: Caller) -> None:
    assert check(caller, "in.json", json.loads(k3s().json()), "import", "in.json") > 10


@pytest.mark.parametrize(
    ("arguments", "file"),
    [
        (("merge", "bad.json"), "bad.json"),
        (("merge", "bad.xml"), "bad.xml"),
        (("merge", "bad.html"), "bad.html"),
        (("conformance", "--from", "bad.json"), "bad.json"),
        (("run", ".", "--shard", "1/2", "--times", "bad.json"), "bad.json"),
        (("import", "bad.json"), "bad.json"),
    ],
)
def test_what_is_no_text_gets_one_line(caller: Caller, arguments: tuple[str, ...], file: str) -> None:
    (caller.folder / file).write_bytes(b'{"a": "\xff"}')
    code, output, errors = caller.type(*arguments)
    assert (code, output) == (ExitCode.SCENARIO, "")
    assert f"{file} is not UTF-8 text (byte 7); name " in errors.splitlines()[-1]
    assert "Traceback" not in errors


@pytest.mark.parametrize("file", ["/proc/kmsg", "/proc/self/status", "/sys/kernel/uevent_seqnum", "fifo", "/dev/zero"])
def test_what_may_never_end_is_not_read(caller: Caller, file: str) -> None:
    os.mkfifo(caller.folder / "fifo")
    if not Path(file).exists():
        pytest.skip(f"{file} is not there")
    if not os.access(file if file != "fifo" else caller.folder / "fifo", os.R_OK):
        pytest.skip("needs root; run it as root")
    (caller.folder / "bad.json").symlink_to(file)
    assert "cannot read bad.json: it is a " in caller.type("merge", "bad.json")[2]
    assert "cannot read bad.json: it is a " in caller.type("import", "bad.json")[2]
    caller.scenario("a.lab.yaml", "holds")
    scenario = caller.folder / "a.lab.yaml"
    scenario.write_text(scenario.read_text().replace("spec:\n", f"spec:\n  manifests: [{file}]\n", 1))
    code, _, errors = caller.type("check", "a.lab.yaml")
    assert code == ExitCode.SCENARIO
    assert "the file cannot be read: it is a " in errors
