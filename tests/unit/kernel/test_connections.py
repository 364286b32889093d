"""Parsing a namespace's own statistics of what is left in it."""

from proxylab.kernel.netlink.connections import Left

SOCKSTAT = b"""sockets: used 9
TCP: inuse 2 orphan 1 tw 3 alloc 4 mem 0
UDP: inuse 1 mem 0
UDPLITE: inuse 0
RAW: inuse 7
FRAG: inuse 1 memory 768
TCP6: inuse 1
UDP6: inuse 0
FRAG6: inuse 2 memory 1536
"""
ASSOCIATIONS = b""" ASSOC     SOCK   STY SST ST HBKT ASSOC-ID TX_QUEUE RX_QUEUE UID INODE LPORT RPORT LADDRS <-> RADDRS
ffff8881 ffff8882 2   10  4  0       1        0        0       0 0     5000  5000  10.0.0.1 <-> *10.0.0.2
"""


def test_sockets_time_wait_fragments_and_associations_are_counted() -> None:
    assert Left.read(SOCKSTAT, ASSOCIATIONS) == (4, 3, 3, 1)


def test_missing_files_of_ipv6_and_sctp_count_nothing() -> None:
    assert not any(Left.read(b"TCP: inuse 0 orphan 0 tw 0 alloc 0 mem 0\nUDP: inuse 0 mem 0\n", b""))
