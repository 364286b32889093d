"""A program in a pod that never takes connections ends the start of its lab at a deadline, with the program's log."""

import time

import pytest

from proxylab.client.session import Session
from proxylab.errors import ProgramError
from proxylab.scenario.load import parse_scenario

SCENARIO = """
apiVersion: proxylab/v1
kind: Scenario
metadata: {name: blocked}
spec:
  nodes: {node-a: {}}
  pods:
    client: {nodes: [node-a]}
  commands: [web]
  probes: []
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: 1
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      containers:
      - name: web
        image: web
        ports: [{containerPort: 8080}]
        command: [sh, -c, "iptables -I INPUT -p tcp --dport 8080 -j DROP; echo blocked; exec sleep 1000"]
"""
SYN_SECONDS = 127.0
"""For so long the kernel tries to connect (tcp_syn_retries, ip-sysctl.rst)."""


def test_a_program_that_blocks_its_own_port_has_its_own_deadline() -> None:
    began = time.monotonic()
    with Session() as session, pytest.raises(ProgramError) as error:
        session.open(parse_scenario(SCENARIO, "blocked.lab.yaml"))
    assert "gave up waiting: TCP ports [8080] take connections" in str(error.value)
    assert "\nblocked" in str(error.value)
    assert time.monotonic() - began < SYN_SECONDS
