"""Each option by which a verb writes: what takes nothing is refused in a line, before labs run where a look tells.

Nothing waits.
"""

import importlib
import json
import os
from collections.abc import Iterator

import click
import pytest
from caller import Caller
from conformance_tables import BROKEN
from kubectl_clusters import k3s

from proxylab.cli.output_paths import OutputFile, OutputFolder
from proxylab.cli.verbs import VERBS
from proxylab.errors import ExitCode

ELSEWHERE = {
    ("audit", "--report"): "by write_new, which refuses what is there already",
    ("migrate", "--report"): "by write_new, which refuses what is there already",
    ("bench", "--report"): "after its labs, as conformance writes its own; tests/kernel/test_bench.py",
    ("capture", "--write"): "a lab's frames, written as they come; a reader of the FIFO may be Wireshark",
    ("gate", "--artifacts"): "a folder; tests/unit/features/gate",
    ("run", "--bundle-dir"): "a folder; tests/unit/cli/test_evidence_and_traces.py",
}
"""Options whose files have other tests, and where."""

WITHOUT_A_LAB = {
    ("conformance", "--report"): "conformance --from in.json --report {}",
    ("import", "--output"): "import cluster.json -o {}",
    ("mutate", "--state"): "mutate a.lab.yaml --state {}",
    ("run", "--report"): "run a.lab.yaml --report {}",
    ("semantics", "--report"): "semantics --report {}",
}
"""How each option is typed. The others of the line are right."""


def options() -> Iterator[tuple[str, click.Option]]:
    """The options of all verbs that take a path which need not exist."""
    for name, verb in VERBS.items():
        command = importlib.import_module(verb.module).command
        for each in command.params:
            if isinstance(each, click.Option) and isinstance(each.type, click.Path) and not each.type.exists:
                yield name, each


def writing_options() -> set[tuple[str, str]]:
    return {(name, each.opts[-1]) for name, each in options()}


def test_each_option_that_writes_a_file_is_known() -> None:
    assert writing_options() == {*ELSEWHERE, *WITHOUT_A_LAB}


def test_each_is_looked_at_by_one_function() -> None:
    types = {type(each.type) for _, each in options()}
    assert types == {OutputFile, OutputFolder}


TYPED = {
    **WITHOUT_A_LAB,
    ("audit", "--report"): "audit a.lab.yaml --report {}",
    ("bench", "--report"): "bench --services 2 --report {}",
    ("migrate", "--report"): "migrate a.lab.yaml --from embedded/iptables --to embedded/nftables --report {}",
    ("capture", "--write"): "capture a.lab.yaml client --seconds 1s -w {}",
    ("gate", "--artifacts"): "gate ./proxy --artifacts {}",
    ("run", "--bundle-dir"): "run a.lab.yaml --bundle-dir {}",
    ("init", "FILE"): "init {}",
}
ASKED_NEW = {("audit", "--report"), ("migrate", "--report"), ("import", "--output"), ("init", "FILE")}
NO_PLACES = ("a.lab.yaml/there", "/proc/there", "x" * 300)


def test_each_is_typed() -> None:
    assert {*TYPED} == {*writing_options(), ("init", "FILE")}


@pytest.mark.parametrize("place", NO_PLACES, ids=["below a file", "in proc", "too long"])
@pytest.mark.parametrize("line", TYPED.values(), ids=map(" ".join, TYPED))
def test_a_place_where_nothing_can_be_written_is_refused_before_a_lab_is_built(
    caller: Caller, line: str, place: str
) -> None:
    lay_out(caller)
    place += ".html" if line.startswith(("bench", "conformance")) else ".lab.yaml" if "init" in line else ""
    before = sorted(caller.folder.iterdir())
    code, output, errors = caller.type(*line.format(place).split())
    assert code == ExitCode.SCENARIO, errors
    assert f"cannot write to {place}" in errors or f"cannot write {place}" in errors
    assert output == ""
    assert caller.events() == []
    assert sorted(caller.folder.iterdir()) == before


def test_a_folder_for_evidence_must_take_files_only_where_evidence_is_saved(caller: Caller) -> None:
    lay_out(caller)
    (caller.folder / ".proxylab").write_text("a file lies where the folder would")
    code, _, errors = caller.type("run", "a.lab.yaml")
    assert code == ExitCode.SCENARIO, errors
    assert ".proxylab/bundles" in errors
    assert caller.events() == []
    code, _, errors = caller.type("run", "a.lab.yaml", "--no-bundles")
    assert code == ExitCode.OK, errors


@pytest.mark.parametrize("line", [TYPED[each] for each in sorted(ASKED_NEW)], ids=map(" ".join, sorted(ASKED_NEW)))
def test_a_new_file_that_exists_is_refused_before_a_lab_is_built(caller: Caller, line: str) -> None:
    lay_out(caller)
    (caller.folder / "there.lab.yaml").write_text("mine")
    code, _, errors = caller.type(*line.format("there.lab.yaml").split())
    assert code == ExitCode.SCENARIO, errors
    assert "there.lab.yaml exists already; choose another name" in errors
    assert caller.events() == []
    assert (caller.folder / "there.lab.yaml").read_text() == "mine"


def lay_out(caller: Caller) -> None:
    """What the lines name beside the file that is written."""
    caller.scenario("a.lab.yaml", "holds")
    (caller.folder / "in.json").write_text(BROKEN.to_json())
    (caller.folder / "cluster.json").write_text(json.dumps(json.loads(k3s().json())))
    (caller.folder / "proxy").write_text("")


@pytest.mark.parametrize("place", ["/dev/full", "fifo"])
@pytest.mark.parametrize("line", WITHOUT_A_LAB.values(), ids=map(" ".join, WITHOUT_A_LAB))
def test_a_place_that_takes_nothing_is_refused_in_one_line(caller: Caller, line: str, place: str) -> None:
    lay_out(caller)
    os.mkfifo(caller.folder / "fifo")
    code, _, errors = caller.type(*line.format(place).split())
    assert code in (ExitCode.FAILED, ExitCode.SCENARIO), errors
    assert place in errors.splitlines()[-1]
    assert "Traceback" not in errors
    assert sorted(each.name for each in caller.folder.iterdir() if not each.name.startswith(".")) == sorted(
        ["a.lab.yaml", "cluster.json", "fifo", "in.json", "proxy", *(["journal"] if caller.journal.exists() else [])]
    )
