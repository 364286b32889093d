"""A command of one line has the same words when it is printed again."""

import pytest

from proxylab.rules.nft_commands import NftCommand, print_command, read_command


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (
            "add rule inet guard input tcp dport { 80, 443 } drop",
            NftCommand("add", "rule", "inet guard", "input", "tcp dport { 80, 443 } drop"),
        ),
        (
            'add element ip kube-proxy service-ips { 10.96.0.1 . tcp . 80 comment "a  b" : goto c }',
            NftCommand(
                "add",
                "element",
                "ip kube-proxy",
                "service-ips",
                '{ 10.96.0.1 . tcp . 80 comment "a  b" : goto c }',
            ),
        ),
        ("flush chain ip6 kube-proxy services", NftCommand("flush", "chain", "ip6 kube-proxy", "services")),
    ],
)
def test_a_command_is_printed_as_it_was_read(line: str, expected: NftCommand) -> None:
    assert read_command(line) == expected
    assert print_command(expected) == line


@pytest.mark.parametrize("line", ["", "flush ruleset", "add table ip kube-proxy"])
def test_a_command_about_a_whole_table_has_no_object(line: str) -> None:
    assert read_command(line) is None
