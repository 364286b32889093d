"""Grouping a mixed trace of log lines and reports by packet."""

from proxylab.kernel.netfilter.nflog import Logged
from proxylab.kernel.netfilter.nft_trace import NftEvent, _event
from proxylab.kernel.netfilter.packet_tracer import _passages


def line(prefix: str = "proxylab entry", mark: int = 0) -> Logged:
    return Logged(0, prefix, b"packet", mark, in_index=1, out_index=0, at_ns=1)


def event(identity: int, table: str, chain: str = "c", kind: str = "rule", handle: int = 1) -> NftEvent:
    return NftEvent(identity, 2, table, chain, kind, handle, "continue", 0, b"", 1, 0)


def test_lines_of_legacy_rules_follow_the_entry_of_their_packet() -> None:
    first, second = _passages([line(), line("TRACE: nat:A:rule:1 "), line(mark=7), line("TRACE: nat:B:policy:2 ")], [])
    assert [each.prefix for each in first.legacy] == ["TRACE: nat:A:rule:1 "]
    assert (second.entry.mark, len(second.legacy)) == (7, 1)


def test_a_log_line_of_a_rule_under_test_is_no_entry() -> None:
    (passage,) = _passages([line(), line("seen by me"), line("TRACE: nat:A:rule:1 ")], [])
    assert len(passage.legacy) == 1


def test_a_packet_made_by_a_rule_has_its_own_passage_inside_the_other() -> None:
    reports = [
        event(1, "proxylab-trace"),
        event(1, "proxylab-trace", kind="return", handle=0),
        event(1, "filter", "FORWARD"),
        event(2, "proxylab-trace"),
        event(2, "filter", "OUTPUT"),
        event(1, "filter", "REJECTS"),
    ]
    rejected, answer = _passages([line(), line(mark=2)], reports)
    assert [each.chain for each in rejected.events] == ["FORWARD", "REJECTS"]
    assert (answer.entry.mark, [each.chain for each in answer.events]) == (2, ["OUTPUT"])


def test_a_reused_identity_is_another_packet() -> None:
    reports = [event(1, "proxylab-trace"), event(1, "nat", "A"), event(1, "proxylab-trace"), event(1, "nat", "B")]
    assert [[each.chain for each in passage.events] for passage in _passages([line(), line()], reports)] == [
        ["A"],
        ["B"],
    ]


def test_reports_without_an_entry_are_ignored() -> None:
    (passage,) = _passages([line()], [event(9, "nat"), event(1, "proxylab-trace")])
    assert passage.events == []


def test_a_report_of_linux_6_18_is_parsed() -> None:
    """Bytes of Linux 6.18: a rule that continues, and the end of its chain, which has no handle."""
    rule = bytes.fromhex(
        "01006900 08000f00 00000002 08000400 00000003 08000600 7b424bf9 06000200 6f000000 07000100 74720000"
        "0c000300 0000000000000002 0c000580 08000100 fffffffd 08000c00 00000001 08000e00 00004000"
    )
    found = _event(rule)
    assert (found.family, found.table, found.chain, found.kind, found.handle) == (1, "tr", "o", "rule", 2)
    assert (found.identity, found.verdict, found.mark, found.out_index) == (0x7B424BF9, "jump", 0x4000, 1)
    end = _event(bytes.fromhex("01006900 08000400 00000003 0c000580 08000100 ffffffff"))
    assert (end.kind, end.handle, end.verdict) == ("return", 0, "continue")
    policy = _event(bytes.fromhex("01006900 08000400 00000001 08001000 00000000"))
    assert (policy.kind, policy.verdict) == ("policy", "drop")
