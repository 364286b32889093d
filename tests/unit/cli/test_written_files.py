"""Each option by which a verb writes a file: a place that takes nothing is refused in one line, and nothing waits."""

import importlib
import json
import os

import click
import pytest
from caller import Caller
from conformance_tables import BROKEN
from kubectl_clusters import k3s

from proxylab.cli.verbs import VERBS
from proxylab.errors import ExitCode

ELSEWHERE = {
    ("audit", "--report"): "by write_new, which refuses what is there already",
    ("migrate", "--report"): "by write_new, which refuses what is there already",
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


def writing_options() -> set[tuple[str, str]]:
    """The options of all verbs that take a path which need not exist."""
    found = set()
    for name, verb in VERBS.items():
        command = importlib.import_module(verb.module).command
        for each in command.params:
            if isinstance(each, click.Option) and isinstance(each.type, click.Path) and not each.type.exists:
                found.add((name, each.opts[-1]))
    return found


def test_each_option_that_writes_a_file_is_known() -> None:
    assert writing_options() == {*ELSEWHERE, *WITHOUT_A_LAB}


@pytest.mark.parametrize("place", ["/dev/full", "fifo"])
@pytest.mark.parametrize("line", WITHOUT_A_LAB.values(), ids=map(" ".join, WITHOUT_A_LAB))
def test_a_place_that_takes_nothing_is_refused_in_one_line(caller: Caller, line: str, place: str) -> None:
    caller.scenario("a.lab.yaml", "holds")
    (caller.folder / "in.json").write_text(BROKEN.to_json())
    (caller.folder / "cluster.json").write_text(json.dumps(json.loads(k3s().json())))
    os.mkfifo(caller.folder / "fifo")
    code, _, errors = caller.type(*line.format(place).split())
    assert code in (ExitCode.FAILED, ExitCode.SCENARIO), errors
    assert place in errors.splitlines()[-1]
    assert "Traceback" not in errors
    assert sorted(each.name for each in caller.folder.iterdir() if not each.name.startswith(".")) == sorted(
        ["a.lab.yaml", "cluster.json", "fifo", "in.json", *(["journal"] if caller.journal.exists() else [])]
    )
