"""Parsing the kernel's counters from its files."""

from proxylab.kernel.capture.stack_counters import _one_line_each, _per_cpu, _two_lines


def test_snmp_has_a_line_of_names_above_a_line_of_numbers() -> None:
    text = "Ip: Forwarding InReceives\nIp: 1 17\nTcpExt: IPReversePathFilter\nTcpExt: 4\n"
    assert dict(_two_lines(text)) == {"IpForwarding": 1, "IpInReceives": 17, "TcpExtIPReversePathFilter": 4}


def test_a_counter_may_be_negative() -> None:
    assert dict(_two_lines("Tcp: MaxConn\nTcp: -1\n")) == {"TcpMaxConn": -1}


def test_snmp6_has_a_line_for_each_counter() -> None:
    assert dict(_one_line_each("Ip6InReceives \t5\nIp6InNoRoutes  0\n")) == {"Ip6InReceives": 5, "Ip6InNoRoutes": 0}


def test_conntrack_counts_for_each_cpu_in_hexadecimal() -> None:
    text = "entries  insert_failed drop\n00000002 00000001  0000000a\n00000002 0000000f  00000000\n"
    assert dict(_per_cpu(text)) == {"ConntrackEntries": 4, "ConntrackInsertFailed": 16, "ConntrackDrop": 10}
