"""``proxylab run --ray`` without Ray: what the caller makes of nodes that answer, die, or cannot run labs."""

import functools
import json
import re
import socket
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from caller import Caller
from fake_lab import FakeSession
from fake_ray import FakeRay, install

from proxylab.client import ray_node, ray_workers
from proxylab.client.ray_cluster import lab_worker
from proxylab.errors import CapabilityError, ExitCode

LACKING = CapabilityError("user namespaces", "ask an administrator")


class Tried:
    """A lab process by which a worker tries its node. The first ones do not start."""

    lacking = 0

    def ready(self) -> None:
        if Tried.lacking > 0:
            Tried.lacking -= 1
            raise LACKING

    def close(self) -> None:
        pass


@pytest.fixture
def user(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Caller:
    caller = Caller(tmp_path, capsys)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(ray_node, "Session", functools.partial(FakeSession, caller.journal))
    monkeypatch.setattr(ray_node, "LabProcess", Tried)
    monkeypatch.setattr(ray_workers, "_NODE_SECONDS", 0.05)
    for name in "abcde":
        caller.scenario(f"{name}.lab.yaml", "fails" if name == "c" else "holds", name=name)
    return caller


@pytest.fixture
def address() -> Iterator[str]:
    """Where something listens."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"ray://127.0.0.1:{server.getsockname()[1]}"


Cluster = Callable[..., FakeRay]


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Cluster:
    return lambda nodes, **options: install(FakeRay(nodes, **options), monkeypatch)


def timeless(text: str) -> str:
    return re.sub(r"\d+\.\d\d s", "0.00 s", text)


def opened(caller: Caller) -> Counter[str]:
    return Counter(line for line in caller.journal.read_text().splitlines() if line.startswith("open "))


def test_the_output_and_the_bundles_are_those_of_a_run_on_this_machine(
    user: Caller, cluster: Cluster, address: str
) -> None:
    ray = cluster({"one": 2, "two": 1, "head": 0})
    here = user.type("run", ".", "-v", "--bundle-dir", "bundles", "--jobs", "1")
    there = user.type("run", ".", "-v", "--bundle-dir", "bundles", "--ray", address)
    assert there[0] == here[0] == ExitCode.FAILED
    assert timeless(there[1]) == timeless(here[1])
    assert there[2] == "c.lab.yaml [embedded/iptables] ran on node host (one)\n" + here[2]
    assert not ray.is_connected
    (bundle,) = (user.folder / "bundles/embedded-iptables/c").iterdir()
    assert any(bundle.iterdir())


def test_a_scenario_whose_node_dies_runs_on_another_one_and_has_one_result(
    user: Caller, cluster: Cluster, address: str
) -> None:
    cluster({"one": 1, "two": 1}, dies=lambda node, work: (node, work) == ("one", "result"))
    code, output, errors = user.type("run", ".", "-o", "json", "--jobs", "1", "--ray", address)
    assert code == ExitCode.FAILED
    assert [each["file"] for each in json.loads(output)["scenarios"]] == [f"{name}.lab.yaml" for name in "abcde"]
    assert "a.lab.yaml [embedded/iptables]: its worker on node host (one) died; another worker runs it" in errors
    assert opened(user) == Counter(f"open {name}" for name in "abcde")


def test_a_scenario_with_which_workers_die_again_and_again_is_an_error(
    user: Caller, cluster: Cluster, address: str
) -> None:
    fatal = {"one", "two", "three"}
    cluster(dict.fromkeys([*sorted(fatal), "four"], 1), dies=lambda node, work: work == "result" and node in fatal)
    code, output, _ = user.type("run", "a.lab.yaml", "-o", "json", "--jobs", "1", "--ray", address)
    assert code == ExitCode.INTERNAL
    (result,) = json.loads(output)["scenarios"]
    assert "died, as did 2 before; look for memory that ran out" in result["fault"]["message"]


def test_without_a_node_the_other_scenarios_are_errors(user: Caller, cluster: Cluster, address: str) -> None:
    done = iter([False, True])
    cluster({"one": 0.5}, dies=lambda node, work: work == "result" and next(done))
    code, output, _ = user.type("run", ".", "-o", "json", "--ray", address)
    assert code == ExitCode.INTERNAL
    judged = [(each["judgement"], (each["fault"] or {}).get("message", "")) for each in json.loads(output)["scenarios"]]
    assert [judgement for judgement, _ in judged] == ["pass", *["fail"] * 4]
    assert {said for _, said in judged[1:]} == {
        f"no node of the Ray cluster at {address} is left to run it; run it again when there is one"
    }


def test_a_node_that_cannot_run_labs_is_named_and_gets_no_scenario(
    user: Caller, cluster: Cluster, address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Tried, "lacking", 1)
    cluster({"one": 1, "two": 1})
    code, _, errors = user.type("run", ".", "--jobs", "1", "--ray", address)
    assert code == ExitCode.FAILED
    said = "no scenario runs on node host (one): this machine lacks user namespaces; ask an administrator"
    assert errors.count(said) == 1
    assert opened(user) == Counter(f"open {name}" for name in "abcde")


def test_a_cluster_without_any_node_that_can_run_labs(
    user: Caller, cluster: Cluster, address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Tried, "lacking", 2)
    cluster({"one": 1})
    code, output, errors = user.type("run", ".", "--ray", address)
    assert (code, output) == (ExitCode.CAPABILITY, "")
    assert "can run labs:\n  node host (one): this machine lacks user namespaces; ask an administrator" in errors
    cluster({"head": 0})
    code, _, errors = user.type("run", ".", "--ray", address)
    assert code == ExitCode.CAPABILITY
    assert "has no node with a processor; add one: ray start --address=HEAD:6379" in errors


def test_a_run_whose_cluster_does_not_let_it_go_ends_with_all_results(
    user: Caller, cluster: Cluster, address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ray_workers, "_LEAVE_SECONDS", 0.05)
    answers = threading.Event()
    monkeypatch.setattr(cluster({"one": 1}), "shutdown", answers.wait)
    code, output, errors = user.type("run", "a.lab.yaml", "-o", "json", "--ray", address)
    answers.set()
    assert (code, errors.count("Traceback")) == (ExitCode.OK, 0)
    assert [each["judgement"] for each in json.loads(output)["scenarios"]] == ["pass"]


def test_a_cluster_that_is_gone_after_the_last_result_changes_nothing(
    user: Caller, cluster: Cluster, address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def gone() -> None:
        raise ConnectionError("the head is gone")

    monkeypatch.setattr(cluster({"one": 1}), "shutdown", gone)
    code, _, errors = user.type("run", "a.lab.yaml", "--ray", address)
    assert (code, errors.count("gone")) == (ExitCode.OK, 0)


@pytest.mark.parametrize(("failures", "expected"), [(1, ExitCode.OK), (2, ExitCode.SCENARIO)])
def test_a_head_that_fails_to_serve_a_client_is_asked_once_more(
    user: Caller, cluster: Cluster, address: str, monkeypatch: pytest.MonkeyPatch, failures: int, expected: ExitCode
) -> None:
    ray = cluster({"one": 1})
    answers = iter([False] * failures)

    def init(address: str, **options: object) -> None:
        if not next(answers, True):
            raise ConnectionAbortedError("Starting Ray client server failed")

    monkeypatch.setattr(ray, "init", init)
    assert user.type("run", "a.lab.yaml", "--ray", address)[0] == expected


def test_an_error_and_a_skip_name_their_node(user: Caller, cluster: Cluster, address: str) -> None:
    cluster({"one": 1})
    user.scenario("s.lab.yaml", "holds", name="lacking")
    user.scenario("t.lab.yaml", "holds", name="refused")
    _, output, _ = user.type("run", "s.lab.yaml", "t.lab.yaml", "-o", "json", "--ray", address)
    skipped, refused = json.loads(output)["scenarios"]
    assert skipped["skipped"]["missing"] == "user namespaces on node host (one)"
    assert refused["fault"]["message"].startswith("node host (one): engine on node-a: its rules were refused")


@pytest.mark.parametrize("name", ["leaving", "buggy"])
def test_what_a_worker_reports_has_the_exit_code_of_a_run_on_this_machine(
    user: Caller, cluster: Cluster, address: str, name: str
) -> None:
    ray = cluster({"one": 1})
    user.scenario("last.lab.yaml", "holds", name=name)
    assert user.type("run", "last.lab.yaml", "--ray", address)[0] == ExitCode.INTERNAL
    assert not ray.is_connected


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (
            "ray://127.0.0.1:9",
            "cannot use the Ray cluster at ray://127.0.0.1:9: [Errno 111] Connection refused; look at",
        ),
        ("auto", "'auto' is no address of a Ray cluster; give ray://HOST:10001"),
        ("127.0.0.1:6379", "'127.0.0.1:6379' is no address of a Ray cluster; give ray://HOST:10001"),
        ("ray://h:99999", "cannot use the Ray cluster at ray://h:99999"),
    ],
)
def test_what_is_no_cluster_is_refused_in_one_sentence(user: Caller, cluster: Cluster, given: str, said: str) -> None:
    cluster({"one": 1})
    code, output, errors = user.type("run", ".", "--ray", given)
    assert (code, output) == (ExitCode.SCENARIO, "")
    assert errors.startswith(said)
    assert errors.count("\n") == 1


def test_without_the_package_the_error_says_what_to_install(user: Caller, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    code, _, errors = user.type("run", ".", "--ray", "ray://h:1")
    assert code == ExitCode.CAPABILITY
    assert "install proxylab[ray]: pip install 'proxylab[ray]'" in errors


@pytest.mark.parametrize("flag", ["--keep", "--hold-on-failure"])
def test_a_lab_elsewhere_cannot_be_kept(user: Caller, cluster: Cluster, flag: str) -> None:
    code, _, errors = user.type("run", ".", "--ray", "ray://h:1", flag)
    assert code == ExitCode.SCENARIO
    assert "leave out" in errors


def test_a_node_with_another_proxylab_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    worker = lab_worker()()
    assert worker.begin("0.0.1", b"", []).endswith("pip install proxylab==0.0.1 there")
    monkeypatch.setitem(sys.modules, "proxylab.client.ray_node", None)
    assert worker.begin("0.0.1", b"", []).startswith("its Python lacks proxylab")
