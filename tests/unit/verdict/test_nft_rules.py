"""Rules as nft prints them, in iptables' words: what each does, and what it leaves out."""

import pytest

from proxylab.verdict.nft_rules import Options, read_nft

NOTE = '"default/echo:http cluster IP drop"'


@pytest.mark.parametrize(
    ("text", "target", "options"),
    [
        ("meta l4proto tcp dnat to 10.244.2.3:8080", "DNAT", (("--to-destination", ("10.244.2.3:8080",), False),)),
        ("meta l4proto tcp dnat to [fd00::3]:8080", "DNAT", (("--to-destination", ("[fd00::3]:8080",), False),)),
        ("meta l4proto tcp dnat to 10.244.2.3", "DNAT", ()),
        ("tcp dport 80 redirect to :34000", "REDIRECT", ()),
        ("masquerade fully-random", "MASQUERADE", ()),
        ("ip saddr != 10.244.0.0/16 snat to 172.18.0.2", "SNAT", (("-s", ("10.244.0.0/16",), True),)),
        ("ip6 saddr != fd00::/64 drop", "DROP", (("-s", ("fd00::/64",), True),)),
        ('iifname != "cni0" reject', "REJECT", (("-i", ("cni0",), True),)),
        ("reject with icmpx port-unreachable", "REJECT", ()),
        (f"drop comment {NOTE}", "DROP", (("--comment", (NOTE.strip('"'),), False),)),
        (f"accept comment {NOTE}", "", (("--comment", (NOTE.strip('"'),), False),)),
        ("meta mark set meta mark | 0x00004000", "MARK", ()),
        ("ip daddr 10.96.0.10 tcp dport 80 goto service-ABCDEFGH-default/echo/tcp/http", "", ()),
    ],
)
def test_a_rule_is_read_by_what_it_does_and_what_it_leaves_out(text: str, target: str, options: Options) -> None:
    assert read_nft(text) == (target, options)
