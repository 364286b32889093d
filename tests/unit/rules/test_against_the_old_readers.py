"""What the readers by patterns said of each rule, and what the model says: each difference is named, and wanted."""

import runpy
from pathlib import Path

from proxylab.rules.texts import excludes, read_rule
from proxylab.verdict.counted_rules import target_of
from proxylab.verdict.nft_rules import read_nft
from proxylab.verdict.rule_matches import excludes as old_excludes

HERE = Path(__file__).parent
PACKETS = runpy.run_path(str(HERE / "test_packets.py"))
TEXTS = runpy.run_path(str(HERE / "test_rule_texts.py"))
YES, NO, MAY, SENT = (PACKETS[name] for name in ("YES", "NO", "MAY", "SENT"))
DOES, IPTABLES, NFT, GOLDEN_LINES = (TEXTS[name] for name in ("DOES", "IPTABLES", "NFT", "golden_lines"))

OLD = {
    "-p": SENT.protocols,
    "-s": SENT.sources,
    "-d": SENT.destinations,
    "--sport": SENT.source_ports,
    "--dport": SENT.destination_ports,
}
MISREAD = {
    "-A C -p 6 -m tcp --sport 1024: -j DROP": "an open range read as its first port",
    '-A C -j LOG --log-prefix "dropped -p udp here"': "a prefix read as matches",
    'log prefix "a udp dport 81 here" drop': "a prefix read as matches",
}
"""Rules that the old reader took for ones that exclude the packets."""


def test_the_model_excludes_what_the_patterns_excluded_but_for_texts_in_quotes() -> None:
    texts = dict.fromkeys((*GOLDEN_LINES(), *IPTABLES, *NFT, *YES, *NO, *MAY, *DOES, *MISREAD))
    assert {each for each in texts if old_excludes(each, OLD) and not excludes(each, SENT)} == set(MISREAD)
    assert MISREAD.keys().isdisjoint(NO)
    assert not {each for each in YES if excludes(each, SENT)}


MISREAD_TARGETS = (
    "ct status & (snat | dnat) != 0 accept",
    'xt match "owner" counter packets 1 bytes 2 xt target "MASQUERADE"',
    "udp dport vmap { 53 : accept, 80 : jump drop }",
    'counter name "drop" accept',
    "jhash ip saddr mod 2 seed 0x1 vmap { 0 : drop }",
)
"""Rules whose target the old reader took from a match, a name or a map."""


def test_a_rule_of_the_engine_has_the_target_that_the_patterns_read() -> None:
    for text in NFT:
        rule = read_rule(text)
        assert rule is not None
        target, options = read_nft(text)
        if text not in MISREAD_TARGETS:
            assert target_of(rule) == target, text
        assert rule.comment == next((values[0] for name, values, _ in options if name == "--comment"), "")
