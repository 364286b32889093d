"""The addresses of a Service by frontend: one table, by which plan, oracle and features go."""

import re
from ipaddress import ip_address
from pathlib import Path

import proxylab
from proxylab.cluster.objects import LoadBalancerIngress, Service
from proxylab.scenario.targets import FRONTENDS_OF_PORTS, addresses_by_frontend, frontend_addresses
from proxylab.scenario.words import Frontend

PACKAGE = Path(proxylab.__file__).parent
CLUSTER, EXTERNAL, VIP, PROXIED = map(ip_address, ("10.96.0.1", "192.0.2.1", "192.0.2.2", "192.0.2.3"))
SERVICE = Service(
    name="web",
    cluster_ips=(CLUSTER,),
    external_ips=(EXTERNAL,),
    load_balancer_ingress=(
        LoadBalancerIngress(ip=VIP),
        LoadBalancerIngress(ip=PROXIED, ip_mode="Proxy"),
        LoadBalancerIngress(hostname="lb.example.org"),
    ),
)


def test_clients_dial_every_address_and_proxies_claim_those_that_no_balancer_rewrites() -> None:
    found = addresses_by_frontend(SERVICE)
    assert found[Frontend.LOAD_BALANCER_IP] == (VIP, PROXIED)
    assert addresses_by_frontend(SERVICE, claimed=True) == found | {Frontend.LOAD_BALANCER_IP: (VIP,)}


def test_a_frontend_at_the_addresses_of_nodes_has_none_of_its_own() -> None:
    assert {*FRONTENDS_OF_PORTS} - {*addresses_by_frontend(SERVICE)} == {Frontend.NODE_PORT}
    assert frontend_addresses(SERVICE, Frontend.NODE_PORT) == ()
    assert frontend_addresses(SERVICE, Frontend.EXTERNAL_IP) == (EXTERNAL,)


def test_no_other_module_knows_which_addresses_are_a_services_own() -> None:
    """But those that make the field, write or draw it, and the engines, which treat each kind by itself."""
    its_own = {
        *("cluster/objects.py", "cluster/documents.py", "scenario/services.py", "scenario/validity.py"),
        "scenario/targets.py",
        "features/import_/probes.py",
    }
    knowing = {
        str(path.relative_to(PACKAGE))
        for path in PACKAGE.rglob("*.py")
        if path.relative_to(PACKAGE).parts[0] not in ("engines", "mutate", "report")
        and re.search(r"\bexternal_ips\b", path.read_text(encoding="utf-8"))
    }
    assert knowing == its_own
