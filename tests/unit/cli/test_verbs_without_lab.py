"""Verbs of the desk as their caller sees them, where no lab stands."""

from pathlib import Path

import click
import pytest
from caller import Caller
from golden_words import Told

from proxylab.cli import main
from proxylab.cli.durations import Duration, age
from proxylab.cli.scenario_files import complete_scenarios

ROOT = Path(__file__).resolve().parents[3]
FROM_A_POD = str(ROOT / "scenarios/clusterip/from-a-pod.lab.yaml")


@pytest.fixture(autouse=True)
def empty_runtime_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    monkeypatch.chdir(tmp_path)


def type_(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    output, errors = capsys.readouterr()
    return int(ended.value.code or 0), output, errors


@pytest.mark.parametrize(("text", "seconds"), [("90s", 90), ("45m", 2700), ("1h30m", 5400), ("2d", 172800)])
def test_times_are_read(text: str, seconds: float) -> None:
    assert Duration().convert(text, None, None) == seconds


@pytest.mark.parametrize("text", ["", "8", "8 h", "h", "-1h", "0s", "31d", "1w"])
def test_what_is_no_time_is_refused_with_what_is_one(text: str) -> None:
    with pytest.raises(click.BadParameter, match=r"90s, 45m, 8h|between 1s and 30d"):
        Duration().convert(text, None, None)


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(0, "0s"), (59.9, "59s"), (60, "1m"), (200, "3m20s"), (28800, "8h"), (28799, "7h59m"), (200000, "2d7h")],
)
def test_ages_are_those_of_kubectl(seconds: float, words: str) -> None:
    assert age(seconds) == words


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("probe", "client", "echo"), "no lab is running; start one with `proxylab up FILE`"),
        (("exec", "client", "--", "true"), "no lab is running; start one with `proxylab up FILE`"),
        (("exec", "client"), "give a command to run, as in `proxylab exec client -- ip route`"),
        (("shell", "a", "b"), "NODE|POD|HOST: name one"),
        (("get", "cats", "--name", "x"), "no lab 'x' is running; start one with `proxylab up FILE`"),
        (("get", FROM_A_POD, "cats"), "no 'cats'; there are nodes, pods, services, endpoints, deployments"),
        (("get", FROM_A_POD, "pods", "tom"), "no 'tom' among the pods; there are echo-1, echo-2, echo-3, solo, client"),
        (("describe", FROM_A_POD, "node"), "name one of nodes: node-a, node-b"),
        (("get", "missing.lab.yaml", "pods"), "'missing.lab.yaml' does not exist"),
        (("probe", FROM_A_POD, "client", "echo", "--name", "x"), "give FILE, to build a temporary lab, or --lab"),
        (("rules", FROM_A_POD, "node-a"), "--node names a node of FILE"),
        (("capture", "a", "b"), "no lab is running; start one"),
        (("capture", "a", "-w", "x", "--wireshark"), "-w or --wireshark, not both"),
        (("down", "x"), "there is no lab 'x'; no lab is running"),
        (("down", "x", "--all"), "NAME or --all, not both"),
        (
            ("up", FROM_A_POD, "--name", "Not A Name"),
            "is not a valid name; use up to 63 of a-z, 0-9, dot and hyphen",
        ),
        (  # before a kube-proxy is looked for, which may take minutes to build
            ("up", FROM_A_POD, "--name", "Not A Name", "--engine", "kube-proxy/iptables", "--kube-proxy", "/missing"),
            "is not a valid name; use up to 63 of a-z, 0-9, dot and hyphen",
        ),
        (("up", FROM_A_POD, "--ttl", "soon"), "'soon' is not a duration; write it as 90s, 45m, 8h, 1h30m or 2d"),
        (("up", FROM_A_POD, "--case", "x"), "there is no 'x'; there are none"),
        (("up",), "FILE: name a scenario, or give --control-plane real for a cluster of two nodes"),
        (("up", "--control-plane", "real", "--kernel", "uml"), "a guest has no way to a port of this machine"),
        (("kubeconfig",), "no lab is running; start one with `proxylab up FILE`"),
        (("logs", "a", "b"), "NODE: name one node"),
    ],
)
def test_a_user_s_mistake_is_told_with_what_to_do(
    capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], words: str
) -> None:
    status, output, errors = type_(capsys, *arguments)
    assert (status, output) == (2, "")
    assert words in " ".join(errors.split())
    assert "Traceback" not in errors


def test_no_lab_is_no_mistake_of_who_only_asks(capsys: pytest.CaptureFixture[str], told: Told) -> None:
    assert type_(capsys, "ps") == (0, told(), "")
    assert type_(capsys, "down") == (0, "", "no lab is running\n")
    assert type_(capsys, "ps", "-o", "name")[1] == ""


@pytest.mark.parametrize(
    ("shell", "says"),
    [
        ("bash", "complete -o nosort -F"),
        ("fish", "complete --no-files --command proxylab"),
        ("zsh", "#compdef proxylab"),
    ],
)
def test_shells_are_taught_to_complete(capsys: pytest.CaptureFixture[str], shell: str, says: str) -> None:
    status, output, _ = type_(capsys, "completion", shell)
    assert status == 0
    assert says in output
    assert "_PROXYLAB_COMPLETE" in output


@pytest.mark.parametrize(
    ("words", "completed"),
    [
        ("proxylab tr", ["trace"]),
        (
            "proxylab run --engine kube",
            ["kube-proxy/iptables", "kube-proxy/nftables", "kube-proxy/ipvs", "kube-proxy/userspace"],
        ),
        ("proxylab get en", ["endpoints", "endpointslices"]),
        ("proxylab up clu", ["clusters/a.lab.yaml", "clusters/deep/b.lab.yaml"]),
        ("proxylab up x", ["x"]),
    ],
)
def test_names_are_completed(caller: Caller, tmp_path: Path, words: str, completed: list[str]) -> None:
    for name in ("clusters/a.lab.yaml", "clusters/deep/b.lab.yaml", "clusters/c.yaml", "d.lab.yaml"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    assert caller.complete(words) == completed


def test_files_keep_the_way_in_which_they_are_typed(tmp_path: Path) -> None:
    (tmp_path / "a.lab.yaml").touch()
    context = click.Context(click.Command("x"))
    parameter = click.Argument(["file"])
    for typed, completed in {
        "": "a.lab.yaml",
        "./": "./a.lab.yaml",
        f"{tmp_path}/": f"{tmp_path}/a.lab.yaml",
    }.items():
        assert [each.value for each in complete_scenarios(context, parameter, typed)] == [completed]


def test_check_lists_what_the_mode_of_an_engine_cannot_show(capsys: pytest.CaptureFixture[str]) -> None:
    scaled = str(ROOT / "scenarios/steps/scaled-to-zero-under-streams.lab.yaml")
    moved = str(ROOT / "scenarios/steps/endpoints-move.lab.yaml")
    assert type_(capsys, "check", FROM_A_POD, scaled)[1].count("\n") == 2, "without an engine it names no mode"
    _, of_nftables, _ = type_(capsys, "check", "--engine", "embedded/nftables", scaled)
    assert of_nftables.splitlines()[1:] == [
        f"{scaled}: warning: mode nftables ignores udpIdleTimeout of KubeProxyConfiguration"
    ]
    status, output, _ = type_(capsys, "check", "--engine", "embedded/userspace", FROM_A_POD, scaled, moved)
    assert status == 0
    ours = "embedded/userspace skips"
    assert f"{ours} it: mode userspace never preserves the client's address" in output
    assert f"streams reach the only pod: {ours} queries[ipv6].backend: mode userspace serves one family" in output
    assert f"{ours} queries[ipv4].lost" not in output
    assert f"{moved}: {ours} it: needs a mode of the proxy with health-check node ports" in output
