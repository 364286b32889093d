"""A lab with a real control plane: what people do by kubectl reaches the rules of its nodes, and pods behind them."""

import fcntl
import http.client
import json
import os
import re
import shutil
import signal
import socket
import ssl
import struct
import subprocess
import sys
import termios
import urllib.error
import urllib.request
from base64 import b64decode
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from command_line import CommandLine, lives, wait_for
from kubectl_verbs import MANIFESTS, SINCE, VERBS
from machine import command_of, descendants
from sandboxed import ROOT
from test_examples import example

from proxylab.binaries.control_plane import REAL, control_plane_sources, find_control_plane
from proxylab.cli.command import proxylab
from proxylab.errors import CapabilityError, ExitCode

SECONDS = 60.0
NAME = "cluster"


def program() -> str:
    """The path of the program, or empty."""
    try:
        return str(find_control_plane(REAL, control_plane_sources().cache).path)
    except CapabilityError:
        return ""


pytestmark = pytest.mark.skipif(
    not program(),
    reason="needs a control plane of Kubernetes, none is in the cache; `proxylab engines --obtain control-plane`",
)

Kubectl = Callable[..., str]


@pytest.fixture
def kubectl(cli: CommandLine, tmp_path: Path) -> Kubectl:
    """A lab of two nodes, and a function that runs kubectl in it."""
    return started(cli, tmp_path)


def started(cli: CommandLine, tmp_path: Path, *arguments: str, client: tuple[str, ...] = ()) -> Kubectl:
    """A lab with these arguments of ``up``, and a function that runs a kubectl in it, by default the lab's own."""
    up = cli.type("up", *arguments, "--control-plane", "real")
    assert up.status == 0, up.errors
    file = tmp_path / "kubeconfig"
    file.write_text(cli.type("kubeconfig").output)
    environment = {"PATH": os.defpath, "HOME": str(tmp_path), "KUBECONFIG": str(file), "EDITOR": str(tmp_path / "edit")}

    def run(*words: str, stdin: str = "", fails: bool = False, both: bool = False, seconds: float = SECONDS) -> str:
        argv = [*(client or (program(), "kubectl")), *words]
        done = subprocess.run(
            argv, input=stdin, env=environment, capture_output=True, text=True, timeout=seconds, check=False
        )
        assert (done.returncode != 0) == fails, f"{words}: {done.stdout}{done.stderr}"
        return done.stdout + (done.stderr if fails or both else "")

    return run


Beside = Callable[..., AbstractContextManager[subprocess.Popen[str]]]


@pytest.fixture
def beside(tmp_path: Path) -> Beside:
    """A function that runs kubectl beside the test, and ends it with its block."""

    @contextmanager
    def run(*words: str, terminal: int | None = None) -> Iterator[subprocess.Popen[str]]:
        environment = {"PATH": os.defpath, "HOME": str(tmp_path), "KUBECONFIG": str(tmp_path / "kubeconfig")}
        streams = (subprocess.DEVNULL, subprocess.PIPE) if terminal is None else (terminal, terminal)
        argv = [program(), "kubectl", *words]
        with subprocess.Popen(argv, env=environment, stdin=streams[0], stdout=streams[1], text=True) as started:
            try:
                yield started
            finally:
                started.kill()

    return run


def first_line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline()


ASKS = """
import sys, urllib.request
for _ in range(int(sys.argv[2])):
    print(urllib.request.urlopen(sys.argv[1], timeout=3).read().decode().strip(), flush=True)
"""


def answers(cli: CommandLine, url: str, sender: str = "client", times: int = 1) -> set[str]:
    """The pods that answer requests; empty where one fails."""
    done = cli.type("exec", sender, "--", sys.executable, "-c", ASKS, url, str(times))
    if done.status != 0:
        return set()
    return {json.loads(line)["pod"] for line in done.output.splitlines() if line}


def test_the_examples_of_kubectl_and_kubeconfig_do_what_they_say(cli: CommandLine, kubectl: Kubectl) -> None:
    assert kubectl("get", "nodes")
    listed = cli.start(*example("kubectl"), stdout=subprocess.PIPE)  # a process of its own, which kubectl replaces
    assert b"default     kubernetes" in listed.communicate(timeout=SECONDS)[0]
    assert listed.returncode == 0
    elsewhere = cli.start("kubectl", "--name", "x", "--", "get", "pods", stderr=subprocess.PIPE)
    assert b"no lab 'x' is running" in elsewhere.communicate(timeout=SECONDS)[1]
    called = CliRunner().invoke(proxylab, ["kubectl", "--", "get", "nodes"])  # this process stays
    assert called.exit_code == ExitCode.SCENARIO
    assert "kubectl takes the place of this process; start `proxylab kubectl` as one of its own" in called.output
    printed = cli.type(*example("kubeconfig"))
    assert printed.status == 0
    assert json.loads(printed.output)["kind"] == "Config"


def test_a_service_by_kubectl_reaches_the_pods_of_the_lab(cli: CommandLine, kubectl: Kubectl) -> None:
    assert "node-b   Ready" in kubectl("get", "nodes")
    assert kubectl("get", "pods", "-o", "name").split() == ["pod/client", "pod/echo-1", "pod/echo-2"]
    kubectl("create", "-f", "-", stdin=service("web", {"app": "echo"}, 8080))
    address = kubectl("get", "service", "web", "-o", "jsonpath={.spec.clusterIP}")
    wait_for(lambda: answers(cli, f"http://{address}/", times=20) == {"echo-1", "echo-2"}, "both pods to answer")
    assert "web" in cli.type("rules", "node-b").output
    kubectl("label", "pod", "echo-1", "app-")
    wait_for(lambda: answers(cli, f"http://{address}/", times=20) == {"echo-2"}, "the other pod alone to answer")
    kubectl("delete", "service", "web")
    wait_for(lambda: "default/web" not in cli.type("rules", "node-a").output, "the rules to go")


def test_a_deployment_gets_pods_that_come_and_go(cli: CommandLine, kubectl: Kubectl) -> None:
    kubectl("create", "deployment", "shop", "--image=shop", "--port=8080", "--replicas=2")
    kubectl("rollout", "status", "deployment/shop", "--timeout=30s")
    kubectl("expose", "deployment", "shop", "--port=80", "--target-port=8080")
    address = kubectl("get", "service", "shop", "-o", "jsonpath={.spec.clusterIP}")
    names = set(kubectl("get", "pods", "-l", "app=shop", "-o", "jsonpath={.items[*].metadata.name}").split())
    assert len(names) == 2
    wait_for(lambda: answers(cli, f"http://{address}/", times=20) == names, "both pods to answer")
    # Both nodes have one, and each pod is reached from outside the cluster by way of a node.
    nodes = set(kubectl("get", "pods", "-l", "app=shop", "-o", "jsonpath={.items[*].spec.nodeName}").split())
    assert nodes == {"node-a", "node-b"}
    assert answers(cli, f"http://{address}/", sender="outside", times=20) == names
    kubectl("scale", "deployment/shop", "--replicas=5")
    kubectl("rollout", "status", "deployment/shop", "--timeout=30s")
    wait_for(lambda: len(answers(cli, f"http://{address}/", times=60)) == 5, "five pods to answer")
    kubectl("scale", "deployment/shop", "--replicas=0")
    kubectl("wait", "--for=delete", "pod", "-l", "app=shop", "--timeout=30s")
    wait_for(lambda: not answers(cli, f"http://{address}/"), "the Service to answer no more")
    devices = json.loads(cli.type("exec", "node-a", "--", "ip", "-json", "link").output)
    assert not [each["ifname"] for each in devices if each["ifname"].startswith("shop")]


def test_the_api_is_for_who_has_the_token(cli: CommandLine, kubectl: Kubectl) -> None:
    document = json.loads(cli.type("kubeconfig").output)
    assert document["current-context"] == NAME
    (cluster,) = (each["cluster"] for each in document["clusters"])
    authority = b64decode(cluster["certificate-authority-data"]).decode()
    context = ssl.create_default_context(cadata=authority)
    with pytest.raises(urllib.error.HTTPError, match="401"):
        urllib.request.urlopen(f"{cluster['server']}/api/v1/namespaces", context=context, timeout=SECONDS)
    assert "You must be logged in" in kubectl("get", "nodes", "--token=wrong", fails=True)


def test_it_ends_with_the_lab_and_leaves_nothing(cli: CommandLine, kubectl: Kubectl) -> None:
    port = int(json.loads(cli.type("kubeconfig").output)["clusters"][0]["cluster"]["server"].rpartition(":")[2])
    kubectl("create", "deployment", "shop", "--image=shop", "--port=8080", "--replicas=3")
    pids = set(descendants(cli.supervisor(NAME)))
    assert cli.type("down").output == f"{NAME} is gone\n"
    wait_for(lambda: not any(map(lives, pids)), "every process to end")
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port), timeout=SECONDS)


@pytest.mark.parametrize(("word", "name"), [(b"run", "the control plane"), (b"--leader-elect=false", "the scheduler")])
def test_a_dead_control_plane_is_told_by_each_verb(cli: CommandLine, kubectl: Kubectl, word: bytes, name: str) -> None:
    assert kubectl("get", "nodes")
    (pid,) = (each for each in descendants(cli.supervisor(NAME)) if word in command_of(each).split(b"\0"))
    os.kill(pid, signal.SIGKILL)
    wait_for(lambda: f"{name} was killed by signal 9" in cli.type("ps").output, "ps to say it")
    probe = cli.type("probe", "client", "echo-1:8080")
    assert (probe.status, f"{name}: was killed by signal 9" in probe.errors) == (1, True), probe
    assert cli.type("down").output == f"{NAME} is gone\n"


def test_a_client_that_is_killed_while_it_starts_leaves_nothing(cli: CommandLine) -> None:
    client = cli.start("up", "--control-plane", "real", stdout=subprocess.DEVNULL)
    wait_for(lambda: any(b"\0run\0" in command_of(each) for each in descendants(client.pid)), "the control plane")
    pids = set(descendants(client.pid))
    client.kill()
    client.wait(SECONDS)
    wait_for(lambda: not any(map(lives, pids)), "every process to end")
    assert cli.type("ps").output.startswith("no lab is running")


@pytest.mark.parametrize("role", ["supervisor", "init", "lab process", "launcher"])
def test_a_kill_below_kubectl_leaves_nothing(cli: CommandLine, kubectl: Kubectl, beside: Beside, role: str) -> None:
    port = int(json.loads(cli.type("kubeconfig").output)["clusters"][0]["cluster"]["server"].rpartition(":")[2])
    kubectl("create", "deployment", "shop", "--image=shop", "--port=8080", "--replicas=3")
    with beside("exec", "client", "--", "sleep", "600"), beside("logs", "--follow", "echo-1") as following:
        supervisor = cli.supervisor(NAME)
        wait_for(
            lambda: any(command_of(each).startswith(b"sleep\0") for each in descendants(supervisor)),
            "the command",
        )
        pids = {supervisor, *descendants(supervisor)}
        os.kill(cli.processes(NAME)[role], signal.SIGKILL)
        wait_for(lambda: not any(map(lives, pids)), "every process to end")
        assert following.wait(SECONDS) != 0
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port), timeout=SECONDS)


def test_objects_of_a_scenario_are_in_it_and_its_probes_pass(cli: CommandLine, tmp_path: Path) -> None:
    file = tmp_path / "shop.lab.yaml"
    file.write_text(SCENARIO)
    kubectl = started(cli, tmp_path, str(file))
    listed = json.loads(kubectl("get", "services,endpointslices", "-A", "-o", "json"))
    services = {each["metadata"]["name"]: each for each in listed["items"] if each["kind"] == "Service"}
    assert services["echo"]["spec"]["ports"][0]["nodePort"] == 30080
    assert cli.type("probe", "client", "echo").output.startswith("pass  delivered")


def test_logs_exec_and_port_forward_reach_pods_of_the_scenario_and_new_ones(cli: CommandLine, kubectl: Kubectl) -> None:
    kubectl("create", "deployment", "shop", "--image=shop", "--port=8080")
    kubectl("rollout", "status", "deployment/shop", "--timeout=30s")
    name = kubectl("get", "pods", "-l", "app=shop", "-o", "name").strip().removeprefix("pod/")
    address = kubectl("get", "pod", name, "-o", "jsonpath={.status.podIP}")
    for pod in (name, "client"):
        where = kubectl("get", "pod", pod, "-o", "jsonpath={.status.podIP}")
        assert where in kubectl("exec", pod, "--", "ip", "-4", "address")
        # Standard input with its end, both outputs, and the exit code.
        assert kubectl("exec", "-i", pod, "--", "wc", "-c", stdin="x" * 300_000) == "300000\n"
        said = kubectl("exec", pod, "--", "sh", "-c", "echo there; echo here >&2; exit 3", fails=True)
        assert "there" in said
        assert "here" in said
        assert "exit code 3" in said
        assert "exit code 127" in kubectl("exec", pod, "--", "no-such-program", fails=True)
    assert json.loads(kubectl("exec", "client", "--", "curl", "-s", f"http://{address}:8080/"))["pod"] == name
    client = kubectl("get", "pod", "client", "-o", "jsonpath={.status.podIP}")
    (line,) = kubectl("logs", name).splitlines()
    assert line.startswith(f"GET / HTTP/1.1 from {client}:")
    assert line.endswith(f"to {address}:8080")
    assert kubectl("logs", "deployment/shop", "--tail=1", "--timestamps").split("Z ", 1)[1] == f"{line}\n"
    assert "no previous log" in kubectl("logs", name, "--previous", fails=True)
    assert "no process to attach to" in kubectl("attach", name, fails=True)


def test_logs_show_what_programs_in_pods_print(cli: CommandLine, tmp_path: Path) -> None:
    source = ROOT / "scenarios/workloads/containers-run-their-command.lab.yaml"
    file = tmp_path / source.name
    file.write_text(source.read_text(encoding="utf-8"), encoding="utf-8")
    kubectl = started(cli, tmp_path, str(file))
    name, other = kubectl("get", "pods", "-l", "app=files", "-o", "name").split()
    address = kubectl("get", name, "-o", "jsonpath={.status.podIP}")
    kubectl("exec", "client", "--", "curl", "-s", "-o", "/dev/null", f"http://{address}:8080/said-by-python")
    asked = '"GET /said-by-python HTTP/1.1" 404'
    wait_for(lambda: asked in kubectl("logs", name), "the server's own line")
    assert asked not in kubectl("logs", other)


def test_own_verbs_know_new_pods_and_these_serve_later_services(cli: CommandLine, kubectl: Kubectl) -> None:
    kubectl("create", "namespace", "team")
    for namespace in ("default", "team"):
        kubectl("create", "deployment", "shop", "--image=shop", "-n", namespace)  # says no port
        kubectl("rollout", "status", "deployment/shop", "--timeout=30s", "-n", namespace)
        kubectl("expose", "deployment", "shop", "--port=80", "--target-port=9090", "-n", namespace)
    of_default, of_team = (
        kubectl("get", "pods", "-n", each, "-l", "app=shop", "-o", "jsonpath={.items[0].metadata.name}")
        for each in ("default", "team")
    )
    address = kubectl("get", "service", "shop", "-n", "team", "-o", "jsonpath={.spec.clusterIP}")
    wait_for(lambda: answers(cli, f"http://{address}/", sender=of_default) == {of_team}, "the other pod to answer")
    own = kubectl("get", "pod", of_team, "-n", "team", "-o", "jsonpath={.status.podIP}")
    assert own in cli.type("exec", f"team/{of_team}", "--", "ip", "address").output
    listed = cli.type("get", "pods").output
    assert re.search(rf"team +{of_team} +1/1 +Running +{own} ", listed), listed
    assert "shop" in cli.type("get", "services").output
    refused = cli.type("exec", "shop", "--", "true")
    assert (refused.status, of_default in refused.errors) == (2, True)
    kubectl("delete", "deployment", "shop", "-n", "team")
    wait_for(lambda: of_team not in cli.type("get", "pods").output, "the pod to go")
    assert cli.type("exec", of_team, "--", "true").status == 2


def test_probes_and_traces_go_to_and_from_new_pods_and_services(cli: CommandLine, kubectl: Kubectl) -> None:
    assert cli.type("probe", "client", "echo-1:8080").output.startswith("pass  delivered")  # taps of nodes are open now
    kubectl("create", "namespace", "team")
    for namespace in ("default", "team"):
        kubectl("create", "deployment", "shop", "--image=shop", "--port=8080", "--replicas=2", "-n", namespace)
        kubectl("rollout", "status", "deployment/shop", "--timeout=30s", "-n", namespace)
        kubectl("expose", "deployment", "shop", "--port=80", "--target-port=8080", "-n", namespace)
    address = kubectl("get", "service", "shop", "-o", "jsonpath={.spec.clusterIP}")
    wait_for(lambda: len(answers(cli, f"http://{address}/", times=20)) == 2, "both pods to answer")
    kubectl("run", "web-0", "--image=web", "--port=80")
    kubectl("run", "web-0", "--image=web", "--port=80", "-n", "team")
    for namespace in ("default", "team"):
        kubectl("wait", "--for=condition=Ready", "pod/web-0", "-n", namespace, "--timeout=30s")
    own = kubectl("get", "pods", "-l", "app=shop", "-o", "jsonpath={.items[0].metadata.name}")
    other = kubectl("get", "pods", "-n", "team", "-l", "app=shop", "-o", "jsonpath={.items[0].metadata.name}")
    for sender, target in (
        ("client", "shop"), ("outside", "shop"), ("client", "svc/shop:80"), ("client", "team/shop"),
        ("client", own), ("client", f"team/{other}"), (own, "shop"), (f"team/{other}", "shop"), (own, "echo-1:8080"),
        ("team/web-0", "pod/web-0"), ("web-0", "team/web-0"), ("node-a", "team/web-0"),
    ):  # fmt: skip
        probe = cli.type("probe", sender, target, "--flows", "20")
        assert probe.output.startswith("pass  20 delivered"), (sender, target, probe)
    for sender, target, further in (
        ("client", f"{own}:9", ()), (own, f"team/{other}:9", ("--udp",)), (f"team/{other}", "echo-1:9", ("--udp",)),
    ):  # fmt: skip
        probe = cli.type("probe", sender, target, *further, "--expect", "refused")
        assert probe.output.startswith("pass  "), (sender, target, probe)
    assert cli.type("probe", "client", "shop", "--expect", "rejected").output.startswith("fail")
    assert "web-0.team" in cli.type("probe", "client", "team/web-0").output
    trace = cli.type("trace", own, "team/shop").output
    assert f"{own} sends the request" in trace, trace
    assert re.search(r"shop-\S+ gets the request", trace), trace
    assert "there is no service 'none'" in cli.type("probe", "client", "svc/none:80").errors
    # What is gone is known no more.
    kubectl("delete", "deployment", "shop", "-n", "team")
    kubectl("wait", "--for=delete", "pod", "-l", "app=shop", "-n", "team", "--timeout=30s")
    wait_for(lambda: cli.type("probe", "client", f"team/{other}").status == ExitCode.SCENARIO, "the pod to be unknown")
    wait_for(
        lambda: cli.type("probe", "client", "team/shop", "--expect", "rejected").output.startswith("pass"), "a reject"
    )
    kubectl("scale", "deployment/shop", "--replicas=0")
    wait_for(lambda: not answers(cli, f"http://{address}/"), "the Service to answer no more")
    diagnosed = cli.type("diagnose", "shop")
    assert (diagnosed.status, "breaks" in diagnosed.output) == (1, True), diagnosed


INSTALLED = shutil.which("kubectl")


@pytest.mark.parametrize(
    "client",
    [
        pytest.param((), id="built"),
        pytest.param(
            (INSTALLED or "",),
            id="installed",
            marks=[
                pytest.mark.thorough,
                pytest.mark.skipif(INSTALLED is None, reason="needs kubectl; 'apt-get install kubernetes-client'"),
            ],
        ),
    ],
)
@pytest.mark.timeout(240)
def test_each_verb_of_an_unmodified_kubectl_does_its_work(
    cli: CommandLine, tmp_path: Path, client: tuple[str, ...]
) -> None:
    """The one of the same version as the server, and the one that this machine has: a distribution's, mostly older."""
    kubectl = started(cli, tmp_path, client=client)
    version = json.loads(kubectl("version", "--client", "-o", "json"))["clientVersion"]
    minor = int(version["minor"].rstrip("+"))
    file, editor = tmp_path / "some.yaml", tmp_path / "edit"
    file.write_text(MANIFESTS)
    editor.write_text("#!/bin/sh\nsed -i 's/^  labels:$/  labels:\\n    edited: by-sed/' \"$1\"\n")
    editor.chmod(0o700)
    heard = {}
    for typed, said in VERBS:
        if minor < SINCE.get(typed.split()[0], 0):
            continue
        words = [str(file) if each == "FILE" else each for each in typed.split()]
        if re.search(said, output := kubectl(*words, both=True).strip()) is None:
            heard[typed] = said, output
    assert heard == {}


def test_kubectl_prints_each_change_of_pods_and_nodes_as_it_comes(kubectl: Kubectl, beside: Beside) -> None:
    with beside("get", "pods", "--watch", "--selector=run=one") as pods, beside("get", "nodes", "-w") as nodes:
        assert first_line(nodes).startswith("NAME")
        assert {first_line(nodes).split()[0] for _ in range(2)} == {"node-a", "node-b"}
        kubectl("run", "one", "--image=one", "--port=80")
        assert first_line(pods).startswith("NAME")
        said = [first_line(pods)]
        while "Running" not in said[-1]:
            said.append(first_line(pods))
        assert re.match(r"one +1/1 +Running", said[-1])
        kubectl("cordon", "node-b")
        said = [first_line(nodes)]
        while "SchedulingDisabled" not in said[-1]:  # the node controller labels nodes at the beginning
            said.append(first_line(nodes))
        assert said[-1].startswith("node-b ")


AGENT = """\
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: agent}
spec:
  selector: {matchLabels: {app: agent}}
  template:
    metadata: {labels: {app: agent}}
    spec:
      hostNetwork: true
      containers: [{name: agent, image: agent, ports: [{containerPort: 9100}]}]
"""


def test_pods_on_the_host_network_listen_at_their_nodes_addresses_and_go(cli: CommandLine, kubectl: Kubectl) -> None:
    assert cli.type("probe", "client", "echo-1:8080").output.startswith("pass  delivered")  # taps of nodes are open now
    kubectl("apply", "-f", "-", stdin=AGENT)
    kubectl("rollout", "status", "daemonset/agent", "--timeout=40s")
    kubectl("create", "service", "clusterip", "agent", "--tcp=80:9100")
    nodes = {each["metadata"]["name"]: each for each in json.loads(kubectl("get", "nodes", "-o", "json"))["items"]}
    pods = json.loads(kubectl("get", "pods", "-l", "app=agent", "-o", "json"))["items"]
    assert {each["spec"]["nodeName"] for each in pods} == {*nodes}
    for each in pods:
        own = nodes[each["spec"]["nodeName"]]["status"]["addresses"][0]["address"]
        assert (each["status"]["podIP"], each["status"]["hostIP"]) == (own, own)
    names = {each["metadata"]["name"] for each in pods}
    address = kubectl("get", "service", "agent", "-o", "jsonpath={.spec.clusterIP}")
    wait_for(lambda: answers(cli, f"http://{address}/", times=20) == names, "both agents to answer")
    first = pods[0]["metadata"]["name"]
    for sender, target in (
        ("client", "agent"), ("outside", "agent"), ("node-a", "agent"), ("client", f"{first}:9100"),
        ("outside", f"{first}:9100"), (first, "echo-1:8080"), (first, "agent"),
    ):  # fmt: skip
        probe = cli.type("probe", sender, target, "--flows", "10")
        assert probe.output.startswith("pass  10 delivered"), (sender, target, probe)
    assert cli.type("probe", "client", f"{first}:9101", "--expect", "refused").output.startswith("pass")
    assert "GET / HTTP/1.1 from " in kubectl("logs", first)
    assert pods[0]["status"]["podIP"] in kubectl("exec", first, "--", "ip", "-4", "address")
    assert first in cli.type("get", "pods").output
    # The scheduler knows that the port is taken on both nodes, and the second one's pods wait.
    kubectl("apply", "-f", "-", stdin=AGENT.replace("agent", "other"))
    wait_for(lambda: "free ports" in kubectl("get", "events"), "the scheduler to say why")
    kubectl("delete", "daemonset", "agent")
    kubectl("wait", "--for=delete", "pod", "-l", "app=agent", "--timeout=40s")
    kubectl("rollout", "status", "daemonset/other", "--timeout=40s")
    others = set(kubectl("get", "pods", "-l", "app=other", "-o", "jsonpath={.items[*].metadata.name}").split())
    kubectl("delete", "service", "agent")
    kubectl("create", "service", "clusterip", "other", "--tcp=80:9100")
    address = kubectl("get", "service", "other", "-o", "jsonpath={.spec.clusterIP}")
    wait_for(lambda: answers(cli, f"http://{address}/", times=20) == others, "the others, at the same port")
    kubectl("delete", "daemonset", "other")
    kubectl("wait", "--for=delete", "pod", "-l", "app=other", "--timeout=40s")
    probe = cli.type("probe", "client", f"{pods[0]['status']['podIP']}:9100", "--expect", "refused")
    assert probe.output.startswith("pass"), probe


def test_nodes_have_leases_lose_pods_by_taints_and_come_again_when_they_are_made_anew(
    cli: CommandLine, kubectl: Kubectl, tmp_path: Path
) -> None:
    def renewed() -> dict[str, str]:
        leases = json.loads(kubectl("get", "leases", "-n", "kube-node-lease", "-o", "json"))["items"]
        return {each["spec"]["holderIdentity"]: each["spec"]["renewTime"] for each in leases}

    def place(name: str) -> str:
        return kubectl("get", "pods", "-l", f"app={name}", "-o", "jsonpath={.items[*].spec.nodeName}")

    wait_for(lambda: set(renewed()) == {"node-a", "node-b"}, "a Lease of each node")
    before = renewed()
    kubectl("create", "deployment", "shop", "--image=shop", "--port=8080", "--replicas=4")
    kubectl("rollout", "status", "deployment/shop", "--timeout=40s")
    assert set(place("shop").split()) == {"node-a", "node-b"}
    kubectl("taint", "node", "node-b", "broken=yes:NoExecute")
    wait_for(lambda: place("shop").split() == ["node-a"] * 4, "the pods to leave the node")
    kubectl("rollout", "status", "deployment/shop", "--timeout=40s")
    assert "echo-2" in kubectl("get", "pods", "-o", "name"), "pods of the scenario tolerate all"
    kubectl("taint", "node", "node-b", "broken-")
    wait_for(lambda: all(now > before[name] for name, now in renewed().items()), "the Leases to be renewed")
    # A node that is deleted is none, until it is made again: its machine has been there all the time.
    described = json.loads(kubectl("get", "node", "node-b", "-o", "json"))
    kubectl("delete", "node", "node-b")
    wait_for(lambda: set(renewed()) == {"node-a"}, "its Lease to go with it")
    assert kubectl("get", "nodes", "-o", "name").split() == ["node/node-a"]
    kubectl("create", "-f", "-", stdin=json.dumps({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "node-b"}}))
    kubectl("wait", "--for=condition=Ready", "node/node-b", "--timeout=20s")
    anew = json.loads(kubectl("get", "node", "node-b", "-o", "json"))
    assert anew["status"]["addresses"] == described["status"]["addresses"]
    assert anew["spec"]["podCIDRs"] == described["spec"]["podCIDRs"]
    kubectl("create", "deployment", "more", "--image=more", "--port=8080", "--replicas=4")
    kubectl("rollout", "status", "deployment/more", "--timeout=40s")
    assert "node-b" in place("more").split()
    kubectl("expose", "deployment", "more", "--port=80", "--target-port=8080")
    names = set(kubectl("get", "pods", "-l", "app=more", "-o", "jsonpath={.items[*].metadata.name}").split())
    address = kubectl("get", "service", "more", "-o", "jsonpath={.spec.clusterIP}")
    wait_for(lambda: answers(cli, f"http://{address}/", "outside", 40) == names, "all four to answer")


NODE_C = json.dumps({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "node-c", "labels": {"tier": "new"}}})


@pytest.mark.parametrize(
    "engine",
    [
        "embedded/iptables",
        pytest.param("kube-proxy/iptables", marks=pytest.mark.thorough),
        pytest.param("kube-proxy/nftables", marks=pytest.mark.thorough),
    ],
)
@pytest.mark.timeout(300)
def test_a_new_node_joins_a_lab_that_stands_and_leaves_it(cli: CommandLine, tmp_path: Path, engine: str) -> None:
    kubectl = started(cli, tmp_path, "--engine", engine)
    kubectl("apply", "-f", "-", stdin=AGENT.replace("      hostNetwork: true\n", ""))
    kubectl("rollout", "status", "daemonset/agent", "--timeout=40s")
    kubectl("create", "service", "nodeport", "agent", "--tcp=9100", "--node-port=30910")
    assert kubectl("get", "nodes", "-o", "name").split() == ["node/node-a", "node/node-b"]
    assert "default/agent" not in cli.type("rules", "node-c").output, "it has no proxy yet"
    kubectl("create", "-f", "-", stdin=NODE_C)
    kubectl("wait", "--for=condition=Ready", "node/node-c", "--timeout=20s")
    kubectl("rollout", "status", "daemonset/agent", "--timeout=40s")
    placed = "jsonpath={.items[?(@.spec.nodeName=='node-c')].metadata.name}"
    own = kubectl("get", "pods", "-l", "app=agent", "-o", placed)
    assert own.startswith("agent-")
    names = set(kubectl("get", "pods", "-l", "app=agent", "-o", "jsonpath={.items[*].metadata.name}").split())
    assert len(names) == 3
    address = kubectl("get", "node", "node-c", "-o", "jsonpath={.status.addresses[0].address}")
    url = f"http://{address}:30910/"
    wait_for(lambda: answers(cli, url, "outside", 60) == names, "all pods, by way of the new node")
    for sender, target in (("client", f"{own}:9100"), (own, "agent"), ("node-c", "echo-1:8080"), (own, "echo-2:8080")):
        probe = cli.type("probe", sender, target, "--flows", "10")
        assert probe.output.startswith("pass  10 delivered"), (sender, target, probe)
    kubectl("drain", "node-c", "--ignore-daemonsets", "--timeout=30s")
    kubectl("delete", "node", "node-c")
    wait_for(lambda: "node-c" not in kubectl("get", "leases", "-n", "kube-node-lease"), "its Lease to go")
    if engine.startswith("kube-proxy"):  # the controller that collects pods without a node takes a minute
        kubectl("wait", "--for=delete", f"pod/{own}", "--timeout=120s", seconds=130)
        wait_for(lambda: own not in cli.type("get", "pods").output, "its pod to go")
    assert cli.type("probe", "client", "agent", "--flows", "10").status == 0
    kubectl("create", "-f", "-", stdin=NODE_C)
    kubectl("wait", "--for=condition=Ready", "node/node-c", "--timeout=20s")
    kubectl("rollout", "status", "daemonset/agent", "--timeout=60s")
    names = set(kubectl("get", "pods", "-l", "app=agent", "-o", "jsonpath={.items[*].metadata.name}").split())
    wait_for(lambda: answers(cli, url, "outside", 60) == names, "the pods, when it is back")
    assert cli.type("ps").status == 0


def test_a_node_that_joins_later_needs_a_control_plane_that_takes_writes(cli: CommandLine, tmp_path: Path) -> None:
    file = tmp_path / "shop.lab.yaml"
    file.write_text(SCENARIO.replace("node-b: {}}", "node-b: {}, node-c: {present: false}}"))
    done = cli.type("up", str(file))
    assert done.status == ExitCode.SCENARIO
    assert "nodes.node-c.present: the lab's own control plane has all nodes from the beginning" in done.errors, done


FRONT = """\
apiVersion: proxylab/v1
kind: Scenario
metadata: {name: front}
spec:
  dns: true
  nodes: {node-a: {}, node-b: {}}
  pods:
    controller: {nodes: [node-b], labels: {app: nginx}, program: nginx, ports: [80]}
    echo: {nodes: [node-a], labels: {app: echo}, ports: [8080]}
    client: {nodes: [node-a]}
  hosts: {outside: {}}
---
apiVersion: v1
kind: Service
metadata: {name: nginx}
spec: {type: NodePort, selector: {app: nginx}, ports: [{port: 80, nodePort: 30080}]}
---
apiVersion: v1
kind: Service
metadata: {name: echo}
spec: {selector: {app: echo}, ports: [{port: 80, targetPort: 8080}]}
---
apiVersion: networking.k8s.io/v1
kind: Ingress
metadata: {name: echo}
spec:
  rules:
  - host: echo.example
    http: {paths: [{path: /, pathType: Prefix, backend: {service: {name: echo, port: {number: 80}}}}]}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: settings}
data: {color: blue}
"""

ASKS_OF_HOST = """
import json, sys, urllib.error, urllib.request
request = urllib.request.Request(sys.argv[1], headers={"Host": sys.argv[2]})
try:
    print(json.load(urllib.request.urlopen(request, timeout=3))["pod"])
except urllib.error.HTTPError as error:
    print(error.code)
"""


@pytest.mark.skipif(shutil.which("nginx") is None, reason="needs nginx; 'apt-get install nginx-light'")
def test_ingresses_and_names_follow_what_kubectl_makes(cli: CommandLine, tmp_path: Path) -> None:
    file = tmp_path / "front.lab.yaml"
    file.write_text(FRONT)
    kubectl = started(cli, tmp_path, str(file))
    address = kubectl("get", "node", "node-a", "-o", "jsonpath={.status.addresses[0].address}")

    def heard(host: str) -> str:
        asked = cli.type("exec", "outside", "--", sys.executable, "-c", ASKS_OF_HOST, f"http://{address}:30080/", host)
        return asked.output.strip()

    # What the scenario has is in the API, too.
    assert kubectl("get", "ingress", "echo", "-o", "jsonpath={.spec.rules[0].host}") == "echo.example"
    assert kubectl("get", "configmap", "settings", "-o", "jsonpath={.data.color}") == "blue"
    wait_for(lambda: heard("echo.example") == "echo", "the scenario's pod behind its Ingress")
    assert heard("shop.example") == "404"
    kubectl("create", "deployment", "shop", "--image=shop", "--port=8080")
    kubectl("expose", "deployment", "shop", "--port=80", "--target-port=8080")
    kubectl("rollout", "status", "deployment/shop", "--timeout=40s")
    kubectl("create", "ingress", "shop", "--rule=shop.example/*=shop:80")
    wait_for(lambda: heard("shop.example").startswith("shop-"), "the new pod behind the new Ingress")
    kubectl("delete", "ingress", "echo")
    wait_for(lambda: heard("echo.example") == "404", "the first Ingress to go")
    assert heard("shop.example").startswith("shop-")
    own = kubectl("get", "service", "shop", "-o", "jsonpath={.spec.clusterIP}")
    found = cli.type("exec", "client", "--", "getent", "hosts", "shop.default.svc.cluster.local")
    assert found.output.split()[:1] == [own], found


LATE = """\
apiVersion: apps/v1
kind: Deployment
metadata: {name: late}
spec:
  selector: {matchLabels: {app: late}}
  template:
    metadata: {labels: {app: late}}
    spec:
      containers:
      - name: late
        image: late
        ports: [{containerPort: 8080}]
        readinessProbe: {initialDelaySeconds: 4, httpGet: {port: 8080}}
"""


def test_a_pod_is_ready_when_its_readiness_probe_may_succeed(cli: CommandLine, kubectl: Kubectl) -> None:
    kubectl("apply", "-f", "-", stdin=LATE)
    kubectl("expose", "deployment", "late", "--port=80", "--target-port=8080")
    wait_for(lambda: "Running" in kubectl("get", "pods", "-l", "app=late"), "the pod to run")
    pod = json.loads(kubectl("get", "pods", "-l", "app=late", "-o", "json"))["items"][0]
    ready = {each["type"]: each["status"] for each in pod["status"]["conditions"]}
    assert (ready["Ready"], pod["status"]["containerStatuses"][0]["ready"]) == ("False", False)
    probe = cli.type("probe", "client", "late", "--expect", "rejected")
    assert probe.output.startswith("pass"), probe
    kubectl("rollout", "status", "deployment/late", "--timeout=30s")
    address = kubectl("get", "service", "late", "-o", "jsonpath={.spec.clusterIP}")
    wait_for(lambda: answers(cli, f"http://{address}/") == {pod["metadata"]["name"]}, "the pod to answer")
    kubectl("delete", "pod", "-l", "app=late", "--wait=false")  # its successor goes before it is ready
    kubectl("scale", "deployment/late", "--replicas=0")
    kubectl("wait", "--for=delete", "pod", "-l", "app=late", "--timeout=30s")


def test_a_log_is_followed_and_a_port_forwarded_until_the_client_ends(
    cli: CommandLine, kubectl: Kubectl, beside: Beside
) -> None:
    with beside("logs", "--follow", "echo-1") as following, beside("port-forward", "pod/echo-1", ":8080") as forwarding:
        port = int(re.search(r"127.0.0.1:(\d+)", first_line(forwarding))[1])  # type: ignore[index]
        for _ in range(5):
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=SECONDS) as answer:
                assert json.load(answer)["pod"] == "echo-1"
            assert "GET / HTTP/1.1 from 127.0.0.1:" in first_line(following)
    with beside("port-forward", "pod/echo-1", ":9") as forwarding:
        port = int(re.search(r"127.0.0.1:(\d+)", first_line(forwarding))[1])  # type: ignore[index]
        with (
            pytest.raises((http.client.HTTPException, OSError)),
            urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=SECONDS),
        ):
            pass


def test_a_command_on_a_terminal_has_its_size_and_ends_with_its_client(
    cli: CommandLine, kubectl: Kubectl, beside: Beside
) -> None:
    primary, replica = os.openpty()
    fcntl.ioctl(replica, termios.TIOCSWINSZ, struct.pack("HHHH", 33, 99, 0, 0))
    with beside("exec", "-it", "client", "--", "sh", "-c", "read go; stty size; exec sleep 600", terminal=replica):
        os.write(primary, b"\n")
        heard = b""
        while b"33 99" not in heard:
            heard += os.read(primary, 4096)
        sleeping = [each for each in descendants(cli.supervisor(NAME)) if command_of(each).startswith(b"sleep\0")]
        assert len(sleeping) == 1
    wait_for(lambda: not any(map(lives, sleeping)), "the command to end with its client")
    os.close(primary)
    os.close(replica)


@pytest.mark.parametrize("engine", ["kube-proxy/iptables", "kube-proxy/nftables"])
def test_the_real_kube_proxy_follows_it(cli: CommandLine, tmp_path: Path, engine: str) -> None:
    kubectl = started(cli, tmp_path, "--engine", engine)
    kubectl("create", "deployment", "shop", "--image=shop", "--port=8080", "--replicas=2")
    kubectl("rollout", "status", "deployment/shop", "--timeout=30s")
    kubectl("expose", "deployment", "shop", "--type=NodePort", "--port=80", "--target-port=8080")
    address = kubectl("get", "service", "shop", "-o", "jsonpath={.spec.clusterIP}")
    port = kubectl("get", "service", "shop", "-o", "jsonpath={.spec.ports[0].nodePort}")
    node = kubectl("get", "node", "node-b", "-o", "jsonpath={.status.addresses[0].address}")
    names = set(kubectl("get", "pods", "-l", "app=shop", "-o", "jsonpath={.items[*].metadata.name}").split())
    for url, sender in ((f"http://{address}/", "client"), (f"http://{node}:{port}/", "outside")):
        wait_for(lambda url=url, sender=sender: answers(cli, url, sender, 20) == names, "both pods")  # type: ignore[misc]
    kubectl("scale", "deployment/shop", "--replicas=0")
    wait_for(lambda: not answers(cli, f"http://{address}/"), "the Service to answer no more")


STEPS = """\
  probes:
  - name: Both pods answer
    from: client
    to: {service: echo, via: clusterIP}
    expect: {outcome: delivered, source: preserved, backends: [echo-1, echo-2]}
  steps:
  - name: one pod is not ready
    change: {pods: {echo-1: {ready: false}}}
    probes:
    - name: The other one answers
      from: client
      to: {service: echo, via: clusterIP}
      expect: {outcome: delivered, source: preserved, backends: [echo-2]}
"""

PARITY = (
    "terminating/conditions-of-endpoints", "terminating/fallback-without-ready-endpoints",
    "terminating/first-and-last-endpoint", "terminating/local-policy-fallback",
    "topology/hints-at-node-ports", "topology/incomplete-hints", "topology/prefer-same-node",
    "topology/prefer-same-zone", "topology/second-node-of-a-hint", "topology/second-zone-and-local-policy",
    "steps/endpoints-move", "steps/service-edited-and-deleted", "steps/scaled-to-zero", "steps/service-type-changes",
    "steps/node-changes-zone", "steps/last-endpoint-terminates", "steps/publish-not-ready-addresses-switched",
    "manifests/namespaces", "manifests/status-addresses", "workloads/a-stateful-set-by-name",
    "workloads/a-daemon-set-on-each-node", "steps/one-of-two-services-deleted", "manifests/hosts-as-endpoints",
    "steps/traffic-policy-and-affinity-change", "manifests/several-endpoint-slices",
)  # fmt: skip


@pytest.mark.parametrize("name", [PARITY[0], *(pytest.param(each, marks=pytest.mark.thorough) for each in PARITY[1:])])
def test_a_scenario_has_the_verdicts_of_its_file_on_a_real_control_plane(cli: CommandLine, name: str) -> None:
    done = cli.type("run", str(ROOT / f"scenarios/{name}.lab.yaml"), "--control-plane", "real", "--no-bundles")
    assert (done.status, "failed" in done.output) == (0, False), done


def test_a_scenario_names_its_control_plane_and_its_steps_are_written_there(cli: CommandLine, tmp_path: Path) -> None:
    file = tmp_path / "shop.lab.yaml"
    file.write_text(SCENARIO.replace("spec:\n", f"spec:\n  controlPlane: real\n{STEPS}", 1))
    done = cli.type("run", str(file), "--no-bundles")
    assert (done.status, "2 passed" in done.output) == (0, True), done


SCENARIO = """\
apiVersion: proxylab/v1
kind: Scenario
metadata: {name: shop}
spec:
  nodes: {node-a: {}, node-b: {}}
  pods:
    echo: {replicas: 2, nodes: [node-a, node-b], labels: {app: echo}, ports: [8080]}
    client: {nodes: [node-a]}
---
apiVersion: v1
kind: Service
metadata: {name: echo}
spec:
  type: NodePort
  selector: {app: echo}
  ports: [{port: 80, targetPort: 8080, nodePort: 30080}]
"""


def service(name: str, selector: dict[str, str], target: int) -> str:
    document: dict[str, Any] = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": name},
        "spec": {"selector": selector, "ports": [{"port": 80, "targetPort": target}]},
    }
    return json.dumps(document)


KUBECTL = """\
apiVersion: proxylab/v1
kind: Scenario
metadata: {name: shop}
spec:
  controlPlane: real
  nodes: {node-a: {}, node-b: {}}
  pods:
    client: {nodes: [node-a]}
  streams:
    pages: {from: client, to: {service: shop, via: clusterIP}, send: {every: 10ms}}
  probes:
  - name: both pods answer
    from: client
    to: {service: shop, via: clusterIP}
    expect: {outcome: delivered, source: preserved, backends: [shop]}
  steps:
  - name: kubectl scales the Deployment, and nothing is lost
    change: {kubectl: [scale, deployment/shop, --replicas=5]}
    expect: {pages: {lost: 0, resets: 0, source: preserved}}
    probes:
    - name: five pods answer
      from: client
      to: {service: shop, via: clusterIP}
      send: {as: packet, flows: 5000}
      expect: {outcome: delivered, source: preserved, backends: [shop], spread: even}
  - name: kubectl exposes it under another name
    change: {kubectl: [expose, deployment/shop, --name=other, --port=90, --target-port=8080]}
    probes:
    - name: a Service that no file has reaches them
      from: client
      to: {service: other, via: clusterIP}
      expect: {outcome: delivered, source: preserved, backends: [shop]}
  - name: kubectl takes all pods away
    change: {kubectl: [scale, deployment/shop, --replicas=0]}
    probes:
    - name: the Service rejects
      from: client
      to: {service: shop, via: clusterIP}
      expect: {outcome: rejected, at: node-a}
---
apiVersion: v1
kind: Service
metadata: {name: shop}
spec: {selector: {app: shop}, ports: [{port: 80, targetPort: 8080}]}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: shop}
spec:
  replicas: 2
  selector: {matchLabels: {app: shop}}
  template:
    metadata: {labels: {app: shop}}
    spec: {containers: [{name: shop, image: shop, ports: [{containerPort: 8080}]}]}
"""


def test_steps_run_kubectl_and_are_judged_by_what_it_makes(cli: CommandLine, tmp_path: Path) -> None:
    file = tmp_path / "shop.lab.yaml"
    file.write_text(KUBECTL)
    done = cli.type("run", str(file), "--no-bundles")
    assert (done.status, "5 passed" in done.output) == (0, True), done
    # The same expectations fail where kubectl does something else.
    file.write_text(KUBECTL.replace("--replicas=5", "--replicas=4").replace("--replicas=0", "--replicas=1"))
    done = cli.type("run", str(file), "--no-bundles")
    assert (done.status, "the Service rejects" in done.output) == (1, True), done


def test_a_step_with_kubectl_is_refused_where_nothing_takes_writes(cli: CommandLine, tmp_path: Path) -> None:
    file = tmp_path / "shop.lab.yaml"
    file.write_text(KUBECTL.replace("  controlPlane: real\n", ""))
    done = cli.type("run", str(file), "--no-bundles")
    assert done.status == ExitCode.SCENARIO
    what = "change.kubectl: the lab's own control plane takes no writes; write `controlPlane: real`, or use"
    assert what in done.output + done.errors, done


def test_a_kubectl_that_fails_or_never_comes_to_rest_ends_the_run(cli: CommandLine, tmp_path: Path) -> None:
    file = tmp_path / "shop.lab.yaml"
    file.write_text(KUBECTL.replace("deployment/shop, --replicas=5", "deployment/none, --replicas=5"))
    done = cli.type("run", str(file), "--no-bundles")
    assert done.status == 1
    assert "kubectl: ended with status 1: scale deployment/none --replicas=5" in done.output + done.errors, done
    assert 'deployments.apps "none" not found' in done.output + done.errors


def test_workloads_of_a_scenario_are_their_controllers_and_keep_its_pods(cli: CommandLine, tmp_path: Path) -> None:
    file = tmp_path / "all.lab.yaml"
    file.write_text(SCENARIO + "---\n" + WORKLOADS)
    kubectl = started(cli, tmp_path, str(file))
    pods = set(kubectl("get", "pods", "-o", "jsonpath={.items[*].metadata.name}").split())
    assert {"db-0", "db-1", "echo-1", "echo-2", "client"} <= pods
    assert len(pods) == 3 + 2 + 2 + 2, "a Deployment of two, a StatefulSet of two, and a DaemonSet on two nodes"
    for each in ("deployment/web", "statefulset/db", "daemonset/agent"):
        assert "roll" in kubectl("rollout", "status", each, "--timeout=40s")
    assert set(kubectl("get", "pods", "-o", "jsonpath={.items[*].metadata.name}").split()) == pods, "none was replaced"
    assert kubectl("get", "replicasets", "-o", "name").count("replicaset.apps/web-") == 1
    gone = next(each for each in pods if each.startswith("web-"))
    kubectl("delete", "pod", gone)
    kubectl("rollout", "status", "deployment/web", "--timeout=40s")
    kubectl("rollout", "restart", "statefulset/db")
    kubectl("rollout", "status", "statefulset/db", "--timeout=60s")
    now = set(kubectl("get", "pods", "-l", "app=web", "-o", "jsonpath={.items[*].metadata.name}").split())
    assert (len(now), gone in now) == (2, False)


WORKLOADS = (
    MANIFESTS
    + """\
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: 2
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec: {containers: [{name: web, image: web, ports: [{containerPort: 8080}]}]}
"""
)


def test_jobs_end_new_load_balancers_get_addresses_and_commands_reach_the_api(
    cli: CommandLine, kubectl: Kubectl, tmp_path: Path
) -> None:
    kubectl("create", "job", "once", "--image=once")
    kubectl("wait", "--for=condition=complete", "job/once", "--timeout=40s")
    assert "Completed" in kubectl("get", "pods", "-l", "job-name=once")
    # The first free address of the pool, which the outside reaches through a node.
    kubectl("expose", "pod", "echo-1", "--name=edge", "--type=LoadBalancer", "--port=80", "--target-port=8080")
    kubectl("wait", "--for=jsonpath={.status.loadBalancer.ingress}", "service/edge", "--timeout=40s")
    address = kubectl("get", "service", "edge", "-o", "jsonpath={.status.loadBalancer.ingress[0].ip}")
    assert address.startswith("192.0.2.")
    wait_for(lambda: answers(cli, f"http://{address}/", "outside", 5) == {"echo-1"}, "the pod to answer")
    kubectl("create", "service", "loadbalancer", "second", "--tcp=80")
    kubectl("wait", "--for=jsonpath={.status.loadBalancer.ingress}", "service/second", "--timeout=40s")
    second = kubectl("get", "service", "second", "-o", "jsonpath={.status.loadBalancer.ingress[0].ip}")
    assert (second.startswith("192.0.2."), second == address) == (True, False)
    # A command of ours has a kubeconfig of the API; a program without its token gets no further than any stranger.
    listed = cli.type("exec", "client", "--", program(), "kubectl", "--cache-dir=/run/cache", "get", "nodes")
    assert "node-b   Ready" in listed.output, listed
    url = json.loads(cli.type("exec", "client", "--", "sh", "-c", "cat $KUBECONFIG").output)["clusters"][0]["cluster"]
    asked = cli.type("exec", "client", "--", "curl", "-sk", f"{url['server']}/api/v1/pods")
    assert '"code": 401' in asked.output, asked
    cluster_ip = kubectl("get", "service", "kubernetes", "-o", "jsonpath={.spec.clusterIP}")
    refused = cli.type("exec", "client", "--", "curl", "-sk", "--max-time", "5", f"https://{cluster_ip}/api")
    assert refused.status == 7, "the Service kubernetes has no endpoint, so the proxy rejects"


def test_apply_takes_manifests_a_folder_and_standard_input(cli: CommandLine, kubectl: Kubectl, tmp_path: Path) -> None:
    folder = tmp_path / "manifests"
    folder.mkdir()
    (folder / "web.yaml").write_text(WORKLOADS)
    (folder / "svc.json").write_text(service("web", {"app": "web"}, 8080))
    applied = cli.start("apply", "-f", str(folder), stdout=subprocess.PIPE)
    assert b"deployment.apps/web serverside-applied" in applied.communicate(timeout=SECONDS)[0]
    kubectl("rollout", "status", "deployment/web", "--timeout=40s")
    more = WORKLOADS.replace(
        "replicas: 2\n  selector: {matchLabels: {app: web}", "replicas: 3\n  selector: {matchLabels: {app: web}"
    )
    typed = cli.start("apply", "-f", "-", stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    typed.communicate(more.encode(), timeout=SECONDS)
    kubectl("rollout", "status", "deployment/web", "--timeout=40s")
    assert cli.type("probe", "client", "web", "--flows", "20").output.startswith("pass  20 delivered")
    assert kubectl("get", "deployment", "web", "-o", "jsonpath={.spec.replicas}") == "3"


def test_get_prints_each_line_that_changes(cli: CommandLine, kubectl: Kubectl) -> None:
    watching = cli.start("get", "-w", "pods", stdout=subprocess.PIPE)
    assert watching.stdout is not None
    for _ in range(4):  # the head, and three pods
        watching.stdout.readline()
    kubectl("run", "one", "--image=one", "--port=80")
    assert re.match(rb"one +1/1 +Running", watching.stdout.readline())
    watching.send_signal(signal.SIGINT)
    watching.communicate(timeout=SECONDS)
    refused = cli.type("get", "-w", "pods", "-o", "json")
    assert (refused.status, "-w: watches tables of a standing lab" in refused.errors) == (2, True)
