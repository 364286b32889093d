"""The lab's memory of when each client last connected, and to which endpoint."""

from ipaddress import ip_address

from msgspec.structs import replace
from recorded import World

from proxylab.evidence.evidence import EarlierConnection, Evidence, Leg
from proxylab.plan.resolved import Destination, ResolvedProbe
from proxylab.traffic.client_memory import ClientMemory

OTHER_CLIENT = ip_address("10.244.1.9")
WORLD = World(flows=2, others=(OTHER_CLIENT,))
LATER = 10_000


def resolved_of(world: World, frontend: str = "10.96.0.10") -> ResolvedProbe:
    return replace(
        world.resolved,
        service_port="default/echo",
        affinity_timeout=10,
        destination=ip_address(frontend),
        endpoints=tuple(Destination(address=world.address(pod), port=8080) for pod in world.pods),
    )


def evidence_of(world: World, *pods: str, at: int = 0) -> Evidence:
    trips = [world.round_trip(flow, pod) for flow, pod in enumerate(pods)]
    return world.evidence([replace(each, at=each.at + at) for trip in trips for each in trip])


def earlier(world: World, client: str, pod: str, at: int) -> EarlierConnection:
    return EarlierConnection(
        world.address("debug") if client == "debug" else OTHER_CLIENT, world.address(pod), 8080, at
    )


def test_each_client_is_remembered_with_its_endpoint_and_the_time_of_its_last_connection() -> None:
    memory, resolved = ClientMemory(), resolved_of(WORLD)
    assert memory.note(resolved, evidence_of(WORLD, "echo-1", "echo-2")).earlier == ()
    told = memory.note(resolved, evidence_of(WORLD, "echo-1", at=LATER)).earlier
    assert told == (earlier(WORLD, "debug", "echo-1", 1000), earlier(WORLD, "other", "echo-2", 1010))
    told = memory.note(resolved, evidence_of(WORLD)).earlier
    assert told == (earlier(WORLD, "debug", "echo-1", 1000 + LATER), earlier(WORLD, "other", "echo-2", 1010))


def test_another_frontend_of_the_service_port_counts_where_the_client_did_not_dial_this_one() -> None:
    memory, first, second = ClientMemory(), resolved_of(WORLD), resolved_of(WORLD, "192.0.2.1")
    memory.note(first, evidence_of(WORLD, "echo-1"))
    assert memory.note(second, evidence_of(WORLD, "echo-1", at=LATER)).earlier[0].at == 1000
    assert memory.note(first, evidence_of(WORLD)).earlier[0].at == 1000
    assert memory.note(second, evidence_of(WORLD)).earlier[0].at == 1000 + LATER
    third = resolved_of(WORLD, "192.0.2.2")
    assert memory.note(third, evidence_of(WORLD)).earlier[0].at == 1000 + LATER


def test_an_endpoint_that_a_proxy_only_tried_is_not_remembered() -> None:
    memory, resolved = ClientMemory(), resolved_of(WORLD)
    tried = replace(WORLD.arrives(0, "echo-2"), leg=Leg.TRIED)
    memory.note(resolved, WORLD.evidence([*WORLD.round_trip(0, "echo-1"), tried]))
    assert [each.address for each in memory.note(resolved, evidence_of(WORLD)).earlier] == [WORLD.address("echo-1")]


def test_without_session_affinity_nothing_is_remembered() -> None:
    memory, resolved = ClientMemory(), replace(resolved_of(WORLD), affinity_timeout=None)
    memory.note(resolved, evidence_of(WORLD, "echo-1"))
    assert memory.note(resolved, evidence_of(WORLD, "echo-1")).earlier == ()
