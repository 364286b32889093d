"""Diagnosis of a Service: one broken lab for each stage, and no finding where nothing is broken.

The tests break a lab by hand, as a user would, and repair it again, so that one lab shows all defects.
"""

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from command_line import CommandLine
from sandboxed import ROOT
from shared_sessions import shared_session

from proxylab.binaries.choose import Sources
from proxylab.engines.protocol import EngineChoice
from proxylab.features.diagnose.model import Diagnosis
from proxylab.features.diagnose.runs import Round
from proxylab.scenario.load import load_scenario

SCENARIO = """\
apiVersion: proxylab/v1
kind: Scenario
metadata: {name: stages, description: Every kind of Service and some without endpoints.}
spec:
  dns: true
  nodes: {node-a: {}, node-b: {}}
  pods:
    echo: {replicas: 2, nodes: [node-a, node-b], labels: {app: echo}, ports: [{name: web, port: 8080}]}
    late: {nodes: [node-b], labels: {app: late}, ports: [8080], ready: false}
    only: {nodes: [node-b], labels: {app: only}, ports: [8080]}
    client: {nodes: [node-a]}
  hosts: {outside: {}}
  loadBalancers: {metal: {pool: [198.51.100.0/28], nodes: [node-a, node-b], healthChecked: true}}
  probes:
  - {name: any, from: client, to: {service: echo, via: clusterIP}, expect: {outcome: delivered, source: preserved}}
  steps:
  - {name: an engine dies, change: {engines: {node-b: kill}}, until: {engines: {node-b: stopped}}}
"""
SERVICES = {
    "echo": "type: NodePort, selector: {app: echo}, ports: [{port: 80, targetPort: 8080}]",
    "near": "type: NodePort, externalTrafficPolicy: Local, selector: {app: echo}, ports: [{port: 80, targetPort: web}]",
    "inner": "internalTrafficPolicy: Local, selector: {app: echo}, ports: [{port: 80, targetPort: web}]",
    "sticky": "sessionAffinity: ClientIP, selector: {app: echo}, ports: [{port: 80, targetPort: 8080}]",
    "balanced": "type: LoadBalancer, selector: {app: echo}, ports: [{port: 80, targetPort: 8080}]",
    "heads": "clusterIP: None, selector: {app: echo}, ports: [{port: 80, targetPort: 8080}]",
    "away": "type: ExternalName, externalName: outside.example",
    "nobody": "selector: {app: ecko}, ports: [{port: 80, targetPort: 8080}]",
    "late": "selector: {app: late}, ports: [{port: 80, targetPort: 8080}]",
    "deaf": "selector: {app: echo}, ports: [{port: 80, targetPort: 8081}]",
    "checked": "type: LoadBalancer, externalTrafficPolicy: Local, selector: {app: only}, "
    "ports: [{port: 80, targetPort: 8080}]",
}
SWITCHED = """\
apiVersion: proxylab/v1
kind: Scenario
metadata: {name: switched, description: The proxy of one node changes its mode.}
spec:
  nodes: {node-a: {}, node-b: {}}
  pods:
    echo: {replicas: 2, nodes: [node-a, node-b], labels: {app: echo}, ports: [8080]}
    client: {replicas: 2, nodes: [node-a, node-b]}
  hosts: {outside: {}}
  probes:
  - name: any
    from: client-2
    to: {service: echo, via: clusterIP}
    expect: {outcome: delivered, source: {node: node-b, device: pods}}
  steps:
  - name: node-a changes its mode
    change: {engines: {node-a: nftables}}
    until: {engines: {node-a: synced}}
    probes:
    - {name: fails, from: client-1, to: {service: echo, via: clusterIP}, expect: {outcome: rejected}}
---
apiVersion: v1
kind: Service
metadata: {name: echo}
spec: {type: NodePort, selector: {app: echo}, ports: [{port: 80, targetPort: 8080, nodePort: 30080}]}
---
apiVersion: kubeproxy.config.k8s.io/v1alpha1
kind: KubeProxyConfiguration
iptables: {masqueradeAll: true}
"""
SOUND = ("echo", "near", "inner", "sticky", "balanced", "heads", "away", "kube-system/kube-dns", "checked")


@pytest.fixture
def scenario(tmp_path: Path) -> Path:
    file = tmp_path / "stages.lab.yaml"
    manifests = [f"---\napiVersion: v1\nkind: Service\nmetadata: {{name: {name}}}\nspec: {{{spec}}}\n"
                 for name, spec in SERVICES.items()]  # fmt: skip
    file.write_text(SCENARIO + "".join(manifests))
    return file


@dataclass
class Bench:
    """A user with a detached lab, who breaks and repairs one of its nodes."""

    cli: CommandLine
    node: str = "node-b"

    def diagnosed(self, *words: str) -> tuple[int, dict[str, str]]:
        """The exit code, and the JSON output without its many stages."""
        typed = self.cli.type("diagnose", *words, "-o", "json")
        told = json.loads(typed.output)
        return typed.status, {"at": told["breaksAt"], "cause": told["cause"], "look": " & ".join(told["lookAt"])}

    def do(self, *argv: str) -> str:
        typed = self.cli.type("exec", self.node, "--", *argv)
        assert typed.status == 0, typed.errors
        return typed.output

    def rule(self, pattern: str) -> str:
        """The first matching rule of the nat table, as arguments of iptables."""
        rules = self.do("iptables-legacy", "-t", "nat", "-S")
        return next(line.removeprefix("-A ") for line in rules.splitlines() if re.search(pattern, line))

    def without(self, rule: str, then: Callable[[], tuple[int, dict[str, str]]]) -> dict[str, str]:
        """The diagnosis while a rule is missing. The rule returns to its position."""
        table = self.do("iptables-legacy-save", "-t", "nat")
        self.do("sh", "-c", f"iptables-legacy -t nat -D {rule}")
        status, found = then()
        self.do("sh", "-c", f"iptables-legacy-restore <<'END'\n{table}\nEND")
        assert status == 1
        return found


def test_every_stage_is_named_at_which_a_lab_breaks(cli: CommandLine, scenario: Path) -> None:
    assert cli.type("up", str(scenario)).status == 0
    bench = Bench(cli)

    def echo() -> tuple[int, dict[str, str]]:
        return bench.diagnosed("echo")

    assert echo() == (0, {"at": None, "cause": None, "look": ""})

    missing = bench.diagnosed("ecko")
    assert missing[1]["cause"] == "there is no Service 'ecko' in namespace default; did you mean echo?"
    near = Bench(cli, "node-a")
    asked = near.without(near.rule("KUBE-SERVICES .*kube-dns:dns cluster"), echo)
    assert (asked["at"], "queried past the Service" in asked["cause"]) == ("name", True)

    causes = {
        "nobody": "the selector of nobody, app=ecko, matches no pod; echo-1 has app=echo; change the selector",
        "late": "none of 1 endpoint is ready: late is not ready; a passing readiness probe or",
        "deaf": "no program listens at 10.244.0.10:8081 on echo-1",
    }
    for name, words in causes.items():
        status, found = bench.diagnosed(name)
        assert (status, found["at"]) == (1, "endpoints")
        assert words in found["cause"]
    bench.do("iptables-legacy", "-I", "FORWARD", "-p", "tcp", "--dport", "8080", "-j", "DROP")
    walled = echo()[1]
    bench.do("iptables-legacy", "-D", "FORWARD", "1")
    assert "echo-2 (10.244.1.10:8080) answers its own node node-b, but not client" in walled["cause"]
    dropping = "-A FORWARD -p tcp -m tcp --dport 8080 -j DROP"
    assert f'node-b dropped the packet by its rule "{dropping}" of table filter' in walled["cause"]

    entry = bench.without(bench.rule("KUBE-SERVICES .*default/echo cluster IP"), echo)
    assert entry["cause"].startswith("node-b has no rule for the cluster IP 10.96.1.1:80/TCP")
    assert entry["look"] == "proxylab rules node-b | grep 10.96.1.1 & proxylab logs node-b"
    balancing = bench.without(bench.rule("KUBE-SVC-.*default/echo ->.*statistic"), echo)
    assert (balancing["at"], "none leads to echo-1" in balancing["cause"]) == ("balancing", True)
    translation = bench.without(bench.rule("KUBE-SEP-.*default/echo.*DNAT"), echo)
    assert (translation["at"], "translates nothing" in translation["cause"]) == ("DNAT", True)
    hidden = bench.without(bench.rule("KUBE-EXT-.*default/echo external.*MARK-MASQ"), echo)
    assert hidden["at"] == "masquerade"
    assert re.search(r"outside to the node port \d+/TCP of node-b: echo-\d saw 203.0.113.10", hidden["cause"])
    itself = bench.without(bench.rule("KUBE-SEP-.*-s 10.244.1.10/32.*default/echo.*MARK-MASQ"), echo)
    assert (itself["at"], "echo-2 got its own packet" in itself["cause"]) == ("hairpin", True)
    assert echo()[0] == 0, "all is as it was"

    screen = cli.type("diagnose", "nobody").output
    assert "  engine       -       not looked at, since endpoints break\n" in screen
    assert "look at:\n  proxylab describe service nobody\n" in screen
    assert "nobody" in cli.complete("proxylab diagnose no")
    assert cli.type("diagnose", "echo", "--from", "nobody").status == 2

    for chain in ("PREROUTING", "OUTPUT"):  # all of the proxy's rules exist, and no packet meets them
        bench.do("iptables-legacy", "-t", "nat", "-I", chain, "-d", "10.96.1.1", "-j", "ACCEPT")
    status, unasked = bench.diagnosed("echo", "--node", "node-b")
    assert (status, unasked["at"]) == (6, "DNAT")
    assert re.fullmatch(
        r'late to the cluster IP 10\.96\.1\.1:80/TCP by node-b: node-b has the rule "-A PREROUTING -d 10\.96\.1\.1/32 '
        r'-j ACCEPT" in chain PREROUTING of table nat, which counted \d+ packets, which belongs to no engine, '
        r"and may have kept it from the engine's rules\.",
        unasked["cause"],
    )


def test_a_node_that_tells_balancers_the_wrong_thing_is_named(cli: CommandLine, scenario: Path) -> None:
    assert cli.type("up", str(scenario)).status == 0
    bench = Bench(cli)
    port = json.loads(cli.type("get", "service", "checked", "-o", "json").output)["spec"]["healthCheckNodePort"]

    def checked(*rule: str) -> dict[str, str]:
        """The diagnosis of the Service while a rule redirects the health checks of a node."""
        table, *rest = rule
        chain = "INPUT" if table == "filter" else "PREROUTING"
        words = ("-t", table, "-I", chain, "-p", "tcp", "--dport", str(port), *rest)
        bench.do("iptables-legacy", *words)
        status, found = bench.diagnosed("checked")
        bench.do("iptables-legacy", "-t", table, "-D", chain, "1")
        assert (status, found["at"]) == (1, "health"), found
        return found

    assert bench.diagnosed("checked") == (0, {"at": None, "cause": None, "look": ""})
    lost = checked("filter", "-j", "REJECT", "--reject-with", "tcp-reset")
    assert lost["cause"] == (
        f"node-b's health-check port 172.18.0.3:{port} does not answer outside: the socket reports ECONNREFUSED; so no "
        "balancer sends to node-b, though only is ready there."
    )
    assert lost["look"].startswith(f"proxylab trace outside 172.18.0.3:{port} & ")
    elsewhere = ("nat", "-j", "DNAT", "--to-destination")
    hide = ("iptables-legacy", "-t", "nat", "-I", "POSTROUTING", "-p", "tcp", "--dport", str(port), "-j", "MASQUERADE")
    bench.do(*hide)
    closed = checked(*elsewhere, f"172.18.0.2:{port}")
    assert "answers 503, though only is ready there: balancers send nothing to node-b." in closed["cause"]
    bench.node = "node-a"
    bench.do(*hide)
    opened = checked(*elsewhere, f"172.18.0.3:{port}")
    assert "answers 200, though no endpoint is ready there: balancers send what node-a drops." in opened["cause"]
    assert bench.diagnosed("checked")[0] == 0, "all is as it was"


def rounds(engine: EngineChoice, file: Path, *services: str) -> dict[str, Diagnosis]:
    """The diagnosis of every Service, and ``dead``: that of echo after the death of an engine."""
    with shared_session(engine) as session:
        lab = session.open(load_scenario(file))
        named = {name: name.rpartition("/") for name in services}
        found = {name: Round(lab, space or "default", own, None, None).go() for name, (space, _, own) in named.items()}
        lab.step()
        return found | {"dead": Round(lab, "default", "echo", None, None).go()}


def check_rounds(engine: EngineChoice, file: Path) -> None:
    found = rounds(engine, file, *SOUND)
    dead = found.pop("dead").broken
    assert {name: each.broken for name, each in found.items()} == dict.fromkeys(SOUND), "a false alarm"
    assert dead is not None
    assert (dead.stage, dead.look_at[0]) == ("engine", "logs node-b")
    assert dead.cause.startswith("the engine of node-b does not run")


def test_sound_services_give_no_false_alarm_and_a_dead_engine_does(scenario: Path) -> None:
    check_rounds(EngineChoice(), scenario)


@pytest.mark.upstream
@pytest.mark.engine_kube_proxy
@pytest.mark.thorough  # it asks the kernel and the API, which are the same on the embedded engine above
@pytest.mark.parametrize("mode", ["iptables", "nftables"])
def test_so_it_is_with_the_real_kube_proxy(scenario: Path, mode: str) -> None:
    from proxylab.cli.engine_options import choice_of

    if not Sources.of_user().obtained():
        pytest.skip("needs a kube-proxy in the cache; 'proxylab engines --obtain' puts one there")
    check_rounds(choice_of(f"kube-proxy/{mode}"), scenario)


@pytest.mark.thorough  # tests/unit/features/diagnose/test_program_stage.py judges the stage that this mode has alone
def test_so_it_is_where_a_process_ends_connections(scenario: Path) -> None:
    without_policies = ("echo", "sticky", "balanced", "heads", "away")
    found = rounds(EngineChoice("embedded/userspace"), scenario, *without_policies)
    dead = found.pop("dead").broken
    assert {name: each.broken for name, each in found.items()} == dict.fromkeys(without_policies), "a false alarm"
    assert dead is not None
    assert dead.cause.startswith("the engine of node-b does not run")
    entries = next(each for each in found["echo"].findings if each.stage == "entry rules")
    assert "node-a: its proxy's process listens on port" in entries.seen[0]


def test_a_node_is_examined_in_the_mode_to_which_a_step_changed_it(cli: CommandLine, tmp_path: Path) -> None:
    """Rules, path tests and trace of each node go by its own mode; masqueradeAll is a key of mode iptables alone."""
    file = tmp_path / "switched.lab.yaml"
    file.write_text(SWITCHED)
    assert cli.type("run", str(file), "--no-bundles", "--keep", "--probe", "fails").status == 1
    bench = Bench(cli, "node-a")
    assert bench.diagnosed("echo") == (0, {"at": None, "cause": None, "look": ""})
    screen = cli.type("diagnose", "echo").output
    assert screen.startswith("default/echo on embedded/nftables and embedded/iptables\n")
    assert "client-1 keeps its address" in screen
    assert "endpoints see the node's address in place of client-2" in re.sub(r"\s+", " ", screen)
    assert cli.type("diagnose", "echo", "--node", "node-a").output.startswith("default/echo on embedded/nftables\n")
    assert cli.type("rules", "node-a").output.startswith("table ip kube-proxy {")
    assert "KUBE-SVC-" in cli.type("rules", "node-b").output
    traced = cli.type("trace", "client-1", "echo").output
    assert "kube-proxy  nat-prerouting      goes to services" in traced
    assert "KUBE-SERVICES" not in traced

    bench.do("nft", "flush", "map", "ip", "kube-proxy", "service-ips")
    status, found = bench.diagnosed("echo")
    assert (status, found["at"]) == (1, "entry rules")
    assert found["cause"].startswith("node-a has no rule for the cluster IP")


def test_the_lab_of_a_file_is_made_for_it(cli: CommandLine, scenario: Path) -> None:
    done = cli.type("diagnose", str(scenario), "nobody")
    assert done.status == 1
    assert f"look at:\n  proxylab up {scenario}\n  proxylab describe service nobody\n" in done.output
    assert cli.type("ps", "-o", "name").output == "", f"it is closed; {ROOT}"
