"""Where a proxy's own process ends connections: the rules that lead to it, and whether it listens."""

import pytest
from oracle_worlds import PROXY
from rule_cases import CASES, ELSEWHERE, HERE, Addresses

from proxylab.addresses import Family, Protocol
from proxylab.cluster.objects import Node
from proxylab.engines.embedded.settings import ProxySettings
from proxylab.engines.embedded.userspace.texts import FIRST_PORT, load, read
from proxylab.features.diagnose.model import Standing
from proxylab.features.diagnose.rules_stages import judge_programs, listening
from proxylab.features.diagnose.subject import DiagnosedService

CASE = CASES["node-port"](Addresses(Family.IPV4))
NODES = (Node(name=HERE), Node(name=ELSEWHERE))
SUBJECT = DiagnosedService.of(
    CASE.cluster.services[0],
    (*CASE.cluster.services, *CASE.cluster.slices, *NODES),
    (Family.IPV4,),
    PROXY,
)
RULES = load(CASE.cluster, CASE.node, ProxySettings(), Family.IPV4, (1, 25))
TCP = frozenset({(Protocol.TCP, FIRST_PORT)})

SOCKETS = """\
  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 00000000:9C41 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 1 1 0 100 0 0 10 0
   1: 0100007F:1F90 0100007F:9C41 01 00000000:00000000 00:00000000 00000000     0        0 2 1 0 100 0 0 10 0
   sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode ref pointer drops
  100: 00000000:0035 00000000:0000 07 00000000:00000000 00:00000000 00000000     0        0 3 2 0 0
   2: 00000000000000000000000000000000:9C42 00000000000000000000000000000000:0000 0A 00000000:00000000 00:00000000
"""


def test_what_listens_is_read_from_the_kernels_lists() -> None:
    assert listening(SOCKETS) == {(Protocol.TCP, 40001), (Protocol.TCP, 40002), (Protocol.UDP, 53)}
    assert listening("") == frozenset()


def test_rules_that_lead_to_a_listening_process_hold() -> None:
    finding = judge_programs(SUBJECT, {(HERE, Family.IPV4): read(RULES)}, {HERE: TCP}, (HERE,))
    assert finding.standing is Standing.HOLDS, finding.cause
    assert finding.seen == (f"{HERE}: its proxy's process listens on port {FIRST_PORT}",)


@pytest.mark.parametrize(
    ("gone", "listens", "cause"),
    [
        ("-A KUBE-PORTALS-CONTAINER", TCP, "has no rule that leads the cluster IP"),
        ("-A KUBE-NODEPORT-CONTAINER", TCP, "has no rule that leads the node port"),
        ("nothing", frozenset[tuple[Protocol, int]](), f"leads to port {FIRST_PORT}, where no process listens"),
        ("nothing", frozenset({(Protocol.UDP, FIRST_PORT)}), "where no process listens"),
    ],
)
def test_what_is_missing_is_named(gone: str, listens: frozenset[tuple[Protocol, int]], cause: str) -> None:
    text = "\n".join(line for line in RULES.splitlines() if not line.startswith(gone))
    finding = judge_programs(SUBJECT, {(HERE, Family.IPV4): read(text)}, {HERE: listens}, (HERE,))
    assert finding.standing is Standing.BREAKS
    assert cause in finding.cause
