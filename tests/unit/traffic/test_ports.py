"""No two flows of a lab share a source port while conntrack remembers the first."""

import pytest

from proxylab.addresses import Family, Transport
from proxylab.scenario.probes import MOST_FLOWS
from proxylab.traffic.ports import PortAllocator

A, B = ("a", Family.IPV4), ("b", Family.IPV4)


def test_ports_are_distinct_within_and_across_errands_until_the_deck_is_used_up() -> None:
    dealer = PortAllocator(1, ())
    half = dealer.size // 2
    dealt = (dealer.deal(A, Transport.UDP, half) or ()) + (dealer.deal(A, Transport.UDP, half) or ())
    assert len(set(dealt)) == 2 * half


def test_no_port_comes_again_before_conntrack_is_flushed() -> None:
    dealer = PortAllocator(1, ())
    first = dealer.deal(A, Transport.UDP, 100)
    dealer.deal(A, Transport.UDP, dealer.size - 150)
    assert dealer.deal(A, Transport.UDP, 51) is None
    assert len(set(dealer.deal(A, Transport.UDP, 50) or ())) == 50
    assert dealer.deal(A, Transport.UDP, 1) is None
    dealer.restart()
    assert dealer.deal(A, Transport.UDP, 100) == first


def test_after_a_flush_other_ports_come_first() -> None:
    """A pod may still know a connection that its client has given up, and conntrack is not all that knows a flow."""
    dealer = PortAllocator(1, ())
    first = dealer.deal(A, Transport.TCP, 10) or ()
    dealer.restart()
    following = dealer.deal(A, Transport.TCP, dealer.size) or ()
    assert following[-10:] == first
    assert len(set(following)) == dealer.size


def test_a_port_that_an_author_chose_is_dealt_to_no_other_flow() -> None:
    dealer = PortAllocator(1, ())
    early = (dealer.deal(A, Transport.UDP, 10) or ())[3]
    assert not dealer.claim(A, Transport.UDP, early), "a flow has had it"
    assert dealer.claim(A, Transport.TCP, early)
    assert dealer.claim(B, Transport.UDP, early)
    late = (PortAllocator(1, ()).deal(A, Transport.UDP, 20) or ())[15]
    assert dealer.claim(A, Transport.UDP, late)
    assert not dealer.claim(A, Transport.UDP, late)
    following = dealer.deal(A, Transport.UDP, 20) or ()
    assert len(set(following)) == 20
    assert late not in following
    assert dealer.deal(A, Transport.UDP, dealer.size - 30) is None, "the claimed one is not left"
    assert len(dealer.deal(A, Transport.UDP, dealer.size - 31) or ()) == dealer.size - 31
    dealer.restart()
    assert dealer.claim(A, Transport.UDP, early)


def test_senders_and_protocols_have_decks_of_their_own() -> None:
    dealer = PortAllocator(1, ())
    dealer.deal(A, Transport.UDP, dealer.size - 1)
    assert (
        dealer.deal(B, Transport.UDP, 5)
        == dealer.deal(A, Transport.TCP, 5)
        == PortAllocator(1, ()).deal(A, Transport.TCP, 5)
    )


def test_ports_are_neither_privileged_nor_ephemeral_nor_listened_on() -> None:
    dealer = PortAllocator(1, (8080, 30080))
    dealt = set(dealer.deal(A, Transport.TCP, dealer.size) or ())
    assert min(dealt) >= 1024
    assert not dealt & {8080, 30080, *range(32768, 61000)}
    assert len(dealt) > 30_000


@pytest.mark.parametrize("listened_on", [0, 279, 280, 20_000])
def test_as_many_flows_as_a_scenario_may_ask_for_have_ports_however_many_are_listened_on(listened_on: int) -> None:
    taken = range(1024, 1024 + listened_on)
    dealt = PortAllocator(1, taken).deal(A, Transport.TCP, MOST_FLOWS) or ()
    assert len(set(dealt)) == MOST_FLOWS
    assert not set(dealt) & set(taken)


def test_the_seed_orders_ports() -> None:
    one, same, other = (PortAllocator(seed, ()).deal(A, Transport.TCP, 20) for seed in (1, 1, 2))
    assert one == same != other


def test_datagrams_go_on_from_a_port_that_an_author_chose_once_the_lab_has_changed() -> None:
    dealer = PortAllocator(0, ())
    assert dealer.claim(A, Transport.UDP, 12345)
    assert dealer.claim(A, Transport.TCP, 12345)
    assert not dealer.claim(A, Transport.UDP, 12345)
    dealer.continue_flows()
    assert dealer.claim(A, Transport.UDP, 12345)
    assert not dealer.claim(A, Transport.TCP, 12345)  # a connection ends; a second one is another flow
    dealer.restart()
    assert dealer.claim(A, Transport.UDP, 12345)
    assert not dealer.claim(A, Transport.UDP, 12345)


def test_a_port_of_one_family_is_free_in_the_other() -> None:
    dealer = PortAllocator(0, ())
    assert dealer.claim(A, Transport.UDP, 12345)
    assert dealer.claim(("a", Family.IPV6), Transport.UDP, 12345)
    assert not dealer.claim(A, Transport.UDP, 12345)
