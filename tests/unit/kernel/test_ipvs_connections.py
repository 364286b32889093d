"""Lines of /proc/net/ip_vs_conn, as kernel 7.2 printed them."""

from ipaddress import ip_address

from proxylab.addresses import Protocol
from proxylab.evidence.ipvs import IpvsConnection
from proxylab.kernel.netfilter.ipvs_connections import connection_in, fields_in, whole

HEAD = "Pro FromIP   FPrt ToIP     TPrt DestIP   DPrt State       Expires PEName PEData\n"
FOUR = "TCP 0AF4000C F532 0A600101 0050 0AF4010A 1F90 {state}       119\n"
SIX = (
    "UDP fd00:0010:0244:0000:0000:0000:0000:000a 6B2A fd00:0010:0096:0000:0000:0000:0000:0101 0035 "
    "fd00:0010:0244:0001:0000:0000:0000:000b 14E9 UDP             299\n"
)
TEMPLATE = "TCP 0AF4000C 0000 0A600101 0050 0AF4010A 1F90 ASSURED       10797\n"


def test_both_families_are_read() -> None:
    found = {connection_in(each) for each in fields_in(HEAD + FOUR.format(state="SYN_RECV") + SIX)}
    assert found == {
        IpvsConnection(
            protocol=Protocol.TCP,
            client=ip_address("10.244.0.12"),
            client_port=0xF532,
            server=ip_address("10.96.1.1"),
            port=80,
            destination=ip_address("10.244.1.10"),
            destination_port=8080,
        ),
        IpvsConnection(
            protocol=Protocol.UDP,
            client=ip_address("fd00:10:244::a"),
            client_port=0x6B2A,
            server=ip_address("fd00:10:96::101"),
            port=53,
            destination=ip_address("fd00:10:244:1::b"),
            destination_port=5353,
        ),
    }


def test_a_connection_stays_the_same_when_its_state_changes() -> None:
    assert fields_in(HEAD + FOUR.format(state="SYN_RECV")) == fields_in(HEAD + FOUR.format(state="TIME_WAIT"))


def test_the_template_of_a_client_is_no_connection() -> None:
    (fields,) = fields_in(HEAD + TEMPLATE)
    assert connection_in(fields) is None


def test_a_kernel_without_connections_has_the_headline_alone() -> None:
    assert fields_in(HEAD) == frozenset() == fields_in("")


def test_a_connection_that_one_read_misses_is_found_by_the_next() -> None:
    first, hidden = ("TCP", "first"), ("TCP", "hidden")
    reads = [frozenset({first}), frozenset({hidden}), frozenset({first, hidden})]
    assert whole(iter(reads).__next__) == {first, hidden}
