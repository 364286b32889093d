"""The example in the help of every verb works."""

import inspect
import re
import shlex
import subprocess
from pathlib import Path

import click
import pytest
from command_line import CommandLine
from guests import OWN
from kube_proxies import BundleStore
from kubectl_clusters import k3s
from sandboxed import ROOT
from screen_lab import record
from verb_kills import has_changed

from proxylab.binaries.binary import inspect as inspect_binary
from proxylab.binaries.cache import Cache
from proxylab.binaries.choose import Sources
from proxylab.cli import main
from proxylab.cli.command import proxylab
from proxylab.cli.verbs import VERBS
from proxylab.errors import ExitCode
from proxylab.guest.kernels import known_kernels

EXAMPLE = r"^Example: proxylab (.*)$"
FIRST, LAST = ("up", "run"), ("down",)
APART = {"shell", "engines", "gate", "kernels", "kubeconfig", "kubectl", "merge", "watch"}
"""Those with a test of their own: what they need is not what a lab has."""
ALONE = ("audit", "bench", "conformance", "migrate", "mutate")
"""Those that run many labs of their own, and so take the most of the time."""
LACKING = {"diff": "kube-proxy", "capture": "tcpdump"}
"""Where that cannot be had, the verb says so."""
THAT_FINDS = {"migrate"}
"""What differs between the two engines of its example is its answer, and has an exit code."""


def example(verb: str) -> list[str]:
    """The text after ``Example: proxylab`` in the help of a verb."""
    command = proxylab.get_command(click.Context(proxylab), verb)
    assert command is not None
    assert command.help is not None
    found = re.findall(EXAMPLE, inspect.cleandoc(command.help), re.MULTILINE)
    assert len(found) == 1, f"{verb}: its help has {len(found)} examples"
    return shlex.split(found[0])


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The files of a clone, output of kubectl, and a bundle of an earlier run."""
    (tmp_path / "scenarios").symlink_to(ROOT / "scenarios")
    (tmp_path / "cluster.yaml").write_text(k3s().yaml())
    record(tmp_path / ".proxylab" / "bundles" / "a-probe")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def type_the_example(cli: CommandLine, verb: str) -> None:
    words = example(verb)
    assert words[0] == verb
    done = cli.type(*words)
    lacks = done.status == ExitCode.CAPABILITY and LACKING.get(verb, "nothing") in done.errors
    finds = verb in THAT_FINDS and done.status == ExitCode.FAILED
    assert done.status == ExitCode.OK or lacks or finds, f"{shlex.join(words)}: {done.output}{done.errors}"


# Where another verb changed, each of them has its tests in tests/unit/features and tests/kernel.
@pytest.mark.parametrize(
    "verb", [pytest.param(verb, marks=[] if has_changed(verb) else [pytest.mark.thorough]) for verb in ALONE]
)
def test_the_example_of_a_verb_with_many_labs_does_what_it_says(verb: str, cli: CommandLine, folder: Path) -> None:
    type_the_example(cli, verb)


@pytest.mark.obtains
def test_the_example_of_every_verb_does_what_it_says(cli: CommandLine, folder: Path) -> None:
    """In one lab, from ``up`` to ``down``."""
    for verb in (*FIRST, *sorted({*VERBS} - {*FIRST, *LAST, *APART, *ALONE}), *LAST):
        type_the_example(cli, verb)
    assert (folder / "mine.lab.yaml").exists(), "import writes it"
    assert (folder / "my-first.lab.yaml").exists(), "init writes it"


def test_the_example_of_shell_opens_one(cli: CommandLine) -> None:
    cli.up(scenario="scenarios/clusterip/from-a-pod.lab.yaml")
    shell = cli.start(*example("shell"), stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert shell.communicate(b"hostname\n", timeout=30)[0] == b"client\n"
    assert shell.returncode == 0


def test_the_example_of_engines_obtains_the_newest_patch_once(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """With a small source tree of the test: users' trees may build for minutes."""
    bundle_store = BundleStore(("v1.33.9", "v1.34.2", "v1.34.4", "v1.35.0"))
    sources = Sources(Cache(folder / "cache"), {"release": bundle_store})
    monkeypatch.setattr(Sources, "of_user", lambda: sources)
    told = []
    for _ in range(2):
        with pytest.raises(SystemExit) as ended:
            main(example("engines"))
        assert ended.value.code == ExitCode.OK
        told.append(capsys.readouterr())
    assert told[0].out == told[1].out
    assert inspect_binary(Path(told[0].out.rstrip()), "the shelf").version == "v1.34.4"
    assert "obtaining kube-proxy v1.34.4" in told[0].err
    assert (told[1].err, bundle_store.asked) == ("", ["v1.34.4"])


@OWN
def test_the_example_of_kernels_names_the_one_that_it_has_built(cli: CommandLine) -> None:
    done = cli.type(*example("kernels"))
    assert done.status == ExitCode.OK, done.output + done.errors
    assert Path(done.output.strip()) in [Path(each.binary) for each in known_kernels()]


def test_the_example_of_the_command_itself_works(cli: CommandLine, folder: Path) -> None:
    found = re.search(EXAMPLE, inspect.cleandoc(proxylab.help or ""), re.MULTILINE)
    assert found is not None
    assert cli.type(*shlex.split(found[1])).status == ExitCode.OK
