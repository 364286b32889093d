"""A port that two want: two programs of a node, which is a mistake of the author, or one probe after another."""

from pathlib import Path

import pytest
from command_line import CommandLine

SCENARIO = """\
apiVersion: proxylab/v1
kind: Scenario
metadata: {name: taken}
spec:
  nodes:
    node-a:
      daemons:
        monitor: {port: PORT}
        resolver: {port: 5353, protocol: UDP}
  pods:
    client: {}
    agent: {hostNetwork: true, ports: [AGENT]}
  probes:
  - {name: a pod, from: client, to: {pod: agent}, expect: {outcome: delivered, source: preserved}}
---
apiVersion: v1
kind: Service
metadata: {name: shop}
spec: {type: LoadBalancer, externalTrafficPolicy: Local, healthCheckNodePort: 32000, ports: [{port: 80}]}
"""


@pytest.mark.parametrize(
    ("port", "agent", "wrong"),
    [
        ("10256", "8080", ["6:5: monitor: embedded/iptables serves its health (healthzBindAddress) on TCP 10256"]),
        ("10249", "8080", ["6:5: monitor: embedded/iptables serves its metrics (metricsBindAddress) on TCP 10249"]),
        (
            "32000",
            "10256",
            [
                "6:5: monitor: embedded/iptables serves the healthCheckNodePort of Service default/shop on TCP 32000",
                "12:5: agent: embedded/iptables serves its health (healthzBindAddress) on TCP 10256",
            ],
        ),
    ],
)
def test_who_wants_a_port_that_the_engine_has_is_named_with_it(
    cli: CommandLine, tmp_path: Path, port: str, agent: str, wrong: list[str]
) -> None:
    scenario = tmp_path / "taken.lab.yaml"
    scenario.write_text(SCENARIO.replace("PORT", port).replace("AGENT", agent))
    typed = cli.type("up", str(scenario))
    assert typed.status == 2, typed.errors
    told = [f"{scenario}:{line} of node-a; give {line.split()[1].strip(':')} another port" for line in wrong]
    assert typed.errors.splitlines() == told


def test_two_daemons_on_one_port_are_both_named(cli: CommandLine, tmp_path: Path) -> None:
    scenario = tmp_path / "taken.lab.yaml"
    scenario.write_text(SCENARIO.replace("PORT", "5353, protocol: UDP").replace("AGENT", "8080"))
    typed = cli.type("up", str(scenario))
    told = f"{scenario}:6:5: resolver: monitor listens on UDP 5353 of node-a; give resolver another port"
    assert (typed.status, typed.errors.splitlines()) == (2, [told])


ONE_PORT = """\
apiVersion: proxylab/v1
kind: Scenario
metadata: {name: one-port}
spec:
  nodes: {node-a: {}}
  pods: {web: {ports: [8080]}, client: {}}
  probes:
  - name: data
    from: {name: client, port: 5000}
    to: {pod: web}
    expect: &delivered {outcome: delivered, backends: [web], source: preserved}
  - {name: data again, from: {name: client, port: 5000}, to: {pod: web}, expect: *delivered}
  - {name: HTTP, from: {name: client, port: 5000}, to: {pod: web}, expect: {http: {status: 200}}}
  - {name: SYN, from: {name: client, port: 5000}, to: {pod: web}, send: {as: packet}, expect: *delivered}
"""


def test_probes_follow_each_other_from_a_port_of_the_authors_choice(cli: CommandLine, tmp_path: Path) -> None:
    """The connection of the one before is in TIME_WAIT then."""
    scenario = tmp_path / "one-port.lab.yaml"
    scenario.write_text(ONE_PORT)
    typed = cli.type("run", str(scenario))
    assert typed.status == 0, typed.output
