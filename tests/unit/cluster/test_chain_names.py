"""The hashes in the names of chains are kube-proxy's: they are compared with those of its own test tables."""

from ipaddress import ip_address

from proxylab.addresses import Family, Protocol
from proxylab.cluster.chain_names import chain_hashes
from proxylab.cluster.objects import Endpoint, EndpointPort, EndpointSlice, Service, ServicePort


def slice_of(service: str, address: str, port: EndpointPort) -> EndpointSlice:
    family = Family.of(ip_address(address))
    endpoints = (Endpoint(addresses=(ip_address(address),)),)
    return EndpointSlice(
        namespace=service, name=f"{service}-x", service=service.replace("ns", "svc"), address_type=family,
        ports=(port,), endpoints=endpoints,
    )  # fmt: skip


def test_a_service_port_and_its_endpoints_have_the_hashes_that_kube_proxy_gives_them() -> None:
    one = Service(namespace="ns1", name="svc1", ports=(ServicePort(name="p80", port=80, target_port=80),))
    four = Service(namespace="ns4", name="svc4", ports=(ServicePort(name="p80", port=80, target_port=80),))
    objects = (one, four, slice_of("ns4", "10.180.0.5", EndpointPort(name="p80", port=80)))
    hashes = set(chain_hashes(objects))
    assert {"XPGD46QRK7WJZT7O", "C6EBXVWJJZMIWKLZ"} <= hashes
    assert len(hashes) == 3


def test_protocol_family_and_a_nameless_port_change_the_hash() -> None:
    ports = tuple(ServicePort(protocol=each, port=53, target_port=53) for each in (Protocol.UDP, Protocol.TCP))
    service = Service(namespace="ns1", name="svc1", ports=ports)
    of_ports = set(chain_hashes([service]))
    assert len(of_ports) == 2
    slices = [slice_of("ns1", address, EndpointPort(port=53)) for address in ("10.0.0.1", "fd00::1")]
    assert len(set(chain_hashes([service, *slices])) - of_ports) == 2
    assert set(chain_hashes([slice_of("ns9", "10.0.0.1", EndpointPort(port=53))])) == set()
