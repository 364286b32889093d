"""Names on the command line as kubectl writes them: a kind before them, a namespace, -n, -A and -l."""

from pathlib import Path

import click
import pytest
from scenario_cases import host, node, pods, scenario

from proxylab.cli import main
from proxylab.cli.netns_argument import find_netns, kind_and_name
from proxylab.errors import ExitCode

ROOT = Path(__file__).resolve().parents[3]
FILE = str(ROOT / "scenarios/manifests/namespaces.lab.yaml")

CLUSTER = scenario(
    [node("node-a")],
    [pods("web", "node-a"), pods("db", "node-a", namespace="team"), pods("web.team", "node-a", namespace="team")],
    [host("out")],
)


@pytest.mark.parametrize(
    ("text", "namespace", "found"),
    [
        ("web", "", "web"),
        ("web", "default", "web"),
        ("web", "team", "web.team"),
        ("team/web", "", "web.team"),
        ("default/web", "team", "web"),
        ("pod/web", "", "web"),
        ("po/team/db", "", "db"),
        ("node-a", "team", "node-a"),
        ("no/node-a", "", "node-a"),
        ("out", "team", "out"),
    ],
)
def test_a_name_may_have_its_kind_and_its_namespace(text: str, namespace: str, found: str) -> None:
    assert find_netns(CLUSTER, text, namespace) == found


@pytest.mark.parametrize(
    ("text", "namespace", "why"),
    [
        ("db", "default", "there is no 'db'; there are node-a, out, web, db, web.team"),
        ("node/web", "", "there is no 'node/web'; there are node-a"),
        ("pod/node-a", "", "there is no 'pod/node-a'; there are web, db, web.team"),
        ("svc/web", "", "there is no 'svc/web'; there are none"),
    ],
)
def test_a_name_of_nothing_is_refused_with_those_that_there_are(text: str, namespace: str, why: str) -> None:
    with pytest.raises(click.UsageError, match=why):
        find_netns(CLUSTER, text, namespace)


def test_a_pod_that_is_there_has_the_name_of_one_that_is_gone() -> None:
    """As a StatefulSet makes it anew, or people by kubectl; the plan keeps the name for the one that is gone."""
    gone, anew = pods("db-0", "node-a", present=False), pods("db-0.default", "node-a")
    for there in ([gone, anew], [anew, gone]):
        assert find_netns(scenario([node("node-a")], there, []), "db-0") == "db-0.default"
    assert find_netns(scenario([node("node-a")], [gone], []), "db-0") == "db-0", "it is yet to come, or may be examined"


def test_a_namespace_before_a_name_is_no_kind() -> None:
    assert kind_and_name("team/web") == ("", "team/web")
    assert kind_and_name("services/team/web") == ("service", "team/web")


def typed(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str]:
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    said = capsys.readouterr()
    return int(ended.value.code or 0), said.out + said.err


def rows(capsys: pytest.CaptureFixture[str], *arguments: str) -> list[list[str]]:
    code, output = typed(capsys, "get", FILE, *arguments)
    assert code == ExitCode.OK, output
    return [line.split()[:2] for line in output.splitlines()[1:] if line]


def test_get_chooses_by_namespace_and_labels(capsys: pytest.CaptureFixture[str]) -> None:
    assert rows(capsys, "pods", "-n", "prod") == [["prod", "shop"]]
    assert rows(capsys, "pods", "-n", "default") == [["client", "1/1"]]
    everything = [["default", "client"], ["prod", "shop"], ["test", "trial"]]
    assert rows(capsys, "pods", "-A") == rows(capsys, "pods") == rows(capsys, "po", "-n", "prod", "-A") == everything
    assert rows(capsys, "pods", "-l", "app=web") == everything[1:]
    assert rows(capsys, "pods", "-l", "app!=web") == [["client", "1/1"]]
    assert rows(capsys, "pods", "-A", "-l", "!app") == [["default", "client"]]
    assert [name for _, name in rows(capsys, "svc,pods", "-A", "-l", "app in (web)") if name.startswith("pod/")] == [
        "pod/shop",
        "pod/trial",
    ]
    _, named = typed(capsys, "get", FILE, "all", "-n", "test", "-o", "name")
    assert named.split() == ["pod/trial", "service/web"]


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (("pods", "shop", "-l", "app"), "give a NAME or a selector, not both"),
        (("pods", "-l", "=web"), "unable to parse requirement"),
        (("pods", "-n", "nowhere"), "-n: there is nothing in a namespace 'nowhere'; there are default, "),
        (("pods", "trial", "-n", "prod"), "no 'trial' among the pods"),
    ],
)
def test_get_refuses_in_words(capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], why: str) -> None:
    code, output = typed(capsys, "get", FILE, *arguments)
    assert (code, why in output) == (ExitCode.SCENARIO, True), output
