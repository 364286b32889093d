"""Which probes go together: those that dial different Service ports over one family, and promise delivery."""

from collections.abc import Iterator
from ipaddress import ip_address

import pytest
from msgspec.structs import replace
from recorded import World

from proxylab.client.together import NumberedProbe, batches, may_go_with_others
from proxylab.plan.resolved import HttpRequest
from proxylab.scenario.words import Outcome

WORLD = World()


def asked(
    number: int, service: str, *, flows: int = 1, address: str = "10.96.0.10", outcome: Outcome = Outcome.DELIVERED
) -> NumberedProbe:
    probe = replace(WORLD.probe, name=f"probe {number}", expect=replace(WORLD.probe.expect, outcome=outcome))
    resolved = replace(WORLD.resolved, service_port=service, flows=flows, destination=ip_address(address))
    return NumberedProbe(number, probe, resolved)


def numbers(*probes: NumberedProbe, counts_divide: bool = True) -> list[list[int]]:
    return [[each.number for each in batch] for batch in batches(probes, counts_divide=counts_divide)]


def test_probes_of_different_service_ports_go_together() -> None:
    assert numbers(asked(0, "web"), asked(1, "web"), asked(2, "api"), asked(3, "api"), asked(4, "db")) == [
        [0, 2, 4],
        [1, 3],
    ]


def test_what_nothing_translates_goes_with_them_whatever_it_dials() -> None:
    beside = [asked(number, "", address=f"10.96.0.{number}", outcome=Outcome.UNTRANSLATED) for number in range(2)]
    assert numbers(asked(5, "web"), *beside, *beside) == [[5, 0, 1], [0, 1]]


def test_each_family_goes_by_itself() -> None:
    assert numbers(asked(0, "web"), asked(1, "api", address="fd00::1"), asked(2, "db")) == [[0, 2], [1]]


def test_none_go_together_where_counters_show_nothing_of_single_probes() -> None:
    assert numbers(asked(0, "web"), asked(1, "api"), counts_divide=False) == [[0], [1]]


def test_a_full_batch_comes_before_the_last_probe_is_known() -> None:
    def endless() -> Iterator[NumberedProbe]:
        number = 0
        while True:
            yield asked(number, f"service-{number}")
            number += 1

    first = next(batches(endless(), counts_divide=True))
    assert len(first) > 10


def test_many_flows_fill_a_batch() -> None:
    found = numbers(
        *(asked(number, f"service-{number}", flows=900) for number in range(5)), asked(5, "large", flows=9_000)
    )
    assert found == [[0, 1], [2, 3], [4], [5]]


@pytest.mark.parametrize(
    "alone",
    [
        asked(0, "web", outcome=Outcome.DROPPED),
        asked(0, "web", outcome=Outcome.REJECTED),
        asked(0, ""),
        asked(0, "web")._replace(resolved=replace(WORLD.resolved, service_port="web", tables=True)),
        asked(0, "web")._replace(resolved=replace(WORLD.resolved, service_port="web", http=True)),
        asked(0, "web")._replace(
            resolved=replace(WORLD.resolved, service_port="web", request=HttpRequest(host="a", path="/"))
        ),
        asked(0, "web")._replace(
            resolved=replace(WORLD.resolved, service_port="web", sender=replace(WORLD.resolved.sender, port=4000))
        ),
        asked(0, "web")._replace(
            probe=replace(WORLD.probe, expect=replace(WORLD.probe.expect, either=(WORLD.probe.expect,)))
        ),
    ],
)
def test_whose_result_counters_must_show_alone_goes_alone(alone: NumberedProbe) -> None:
    assert may_go_with_others(*asked(0, "web")[1:])
    assert not may_go_with_others(*alone[1:])
    assert numbers(alone, asked(1, "api"), asked(2, "db")) == [[0], [1, 2]]
