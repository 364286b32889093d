"""Verbs of other packages: found where no verb of ours fits, never instead of one, and blamed on their package."""

import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest
from caller import Caller

from proxylab.cli.verbs import VERBS
from proxylab.errors import ExitCode

HELLO = """
import click

@click.command("hello", short_help="Greet a scenario.")
@click.argument("name")
@click.option("--loud", is_flag=True)
def command(name, loud):
    '''Greet NAME.'''
    click.echo(f"hello {name}" + "!" * loud)
    return 6 if loud else 0
"""
FAILING = HELLO.replace('click.echo(f"hello {name}" + "!" * loud)', "raise KeyError(name)")


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder where Python looks for packages."""
    folder = tmp_path / "site"
    folder.mkdir()
    monkeypatch.syspath_prepend(folder)
    yield folder
    for module in folder.glob("*.py"):
        sys.modules.pop(module.stem, None)


def install(site: Path, package: str, text: str, verb: str = "hello") -> None:
    """What pip leaves of a package: its module, and what it says of itself."""
    module = package.replace("-", "_")
    (site / f"{module}.py").write_text(textwrap.dedent(text))
    about = site / f"{module}-1.2.dist-info"
    about.mkdir()
    (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.2\n")
    (about / "entry_points.txt").write_text(f"[proxylab.features]\n{verb} = {module}:command\n")


def test_a_verb_of_another_package_is_called_with_its_arguments(caller: Caller, site: Path) -> None:
    install(site, "greeter-one", HELLO)
    assert caller.type("hello", "echo") == (ExitCode.OK, "hello echo\n", "")
    assert caller.type("hello", "echo", "--loud") == (ExitCode.INCONCLUSIVE, "hello echo!\n", "")
    code, _, errors = caller.type("hello")
    assert (code, "Missing argument 'NAME'" in errors) == (ExitCode.SCENARIO, True)


def test_help_and_completion_name_it_with_its_package(caller: Caller, site: Path) -> None:
    assert "other packages" not in caller.type("--help")[1]
    install(site, "greeter-two", HELLO)
    _, own, added = caller.type("--help")[1].partition("Verbs of other packages:\n")
    assert own
    assert added.splitlines()[0] == "  hello  Greet a scenario. (greeter-two 1.2)"
    assert "Greet NAME." in caller.type("hello", "--help")[1]
    assert caller.complete("proxylab hel") == ["hello"]
    assert caller.complete("proxylab hello --l") == ["--loud"]


def test_the_advice_for_an_unknown_verb_knows_it(caller: Caller, site: Path) -> None:
    install(site, "greeter-three", HELLO)
    code, _, errors = caller.type("helo")
    assert (code, "did you mean 'hello'?" in errors) == (ExitCode.SCENARIO, True)


def test_a_verb_of_ours_stays_ours(caller: Caller, site: Path) -> None:
    install(site, "greeter-four", HELLO, "check")
    caller.scenario("x.lab.yaml", "one")
    assert caller.type("check", "x.lab.yaml")[1] == "x.lab.yaml: ok, 1 probe\n"
    assert "check  ignored: proxylab has a verb of this name (greeter-four 1.2)" in caller.type("--help")[1]
    assert caller.complete("proxylab chec") == ["check"]


def test_a_verb_of_ours_looks_for_no_other_package(caller: Caller, monkeypatch: pytest.MonkeyPatch) -> None:
    looked: list[str] = []
    monkeypatch.setattr("importlib.metadata.entry_points", lambda group: looked.append(group) or ())
    caller.scenario("x.lab.yaml", "one")
    assert caller.type("check", "x.lab.yaml")[0] == ExitCode.OK
    assert looked == []
    caller.type("--help")
    assert set(looked) == {"proxylab.features"}


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("import a_library_that_nothing_has\n", "cannot be imported: ModuleNotFoundError: No module named"),
        ("command = (\n", "cannot be imported: SyntaxError"),
        ("raise SystemExit('no')\n", "cannot be imported: SystemExit: no"),
        ("", "cannot be imported: AttributeError"),
        ("def command(): pass\n", "is no click.Command: greeter_five:command is <function command"),
    ],
)
def test_a_verb_that_cannot_be_had_is_blamed_on_its_package(caller: Caller, site: Path, text: str, what: str) -> None:
    install(site, "greeter-five", text)
    code, output, errors = caller.type("hello", "echo")
    last = errors.splitlines()[-1]
    assert (code, output) == (ExitCode.INTERNAL, "")
    assert last.startswith(f"the verb 'hello' of greeter-five 1.2 {what}")
    assert last.endswith("please report this to the authors of that package")
    assert "proxylab 0" not in errors

    code, output, errors = caller.type("--help")
    assert (code, errors) == (ExitCode.OK, "")
    assert f"broken: it {what}"[:40] in " ".join(output.split())
    assert caller.complete("proxylab ''") == sorted(VERBS)
    assert "--loud" not in caller.complete("proxylab hello --")


def test_a_verb_that_fails_is_blamed_on_its_package_and_one_of_ours_on_us(caller: Caller, site: Path) -> None:
    install(site, "greeter-six", FAILING)
    code, _, errors = caller.type("hello", "echo")
    assert code == ExitCode.INTERNAL
    assert errors.startswith("Traceback")
    assert "KeyError: 'echo'" in errors
    assert errors.splitlines()[-1].startswith("the verb 'hello' of greeter-six 1.2 has failed; please report")


def test_an_error_that_a_verb_of_another_package_explains_has_no_traceback(caller: Caller, site: Path) -> None:
    explained = HELLO.replace("click.echo(", "raise click.UsageError(")
    install(site, "greeter-seven", explained)
    code, _, errors = caller.type("hello", "echo")
    assert (code, "Traceback" in errors) == (ExitCode.SCENARIO, False)
    assert "Error: hello echo" in errors


def test_two_packages_with_one_verb_are_both_named(caller: Caller, site: Path) -> None:
    install(site, "greeter-eight", HELLO)
    install(site, "greeter-nine", HELLO)
    code, _, errors = caller.type("hello", "echo")
    assert code == ExitCode.SCENARIO
    assert "several packages have a verb 'hello': greeter-eight 1.2, greeter-nine 1.2" in " ".join(errors.split())
    assert "hello" not in caller.complete("proxylab hel")
