"""Entries of an x_tables table, in the kernel's layout."""

import struct

import pytest

from proxylab.addresses import Family
from proxylab.kernel.netfilter.iptables_legacy_tables import Snapshot

HEAD = {Family.IPV4: 112, Family.IPV6: 168}  # sizeof struct ipt_entry and ip6t_entry
OFFSETS = {Family.IPV4: 88, Family.IPV6: 140}
COUNTERS = {Family.IPV4: 96, Family.IPV6: 152}
ACCEPT, DROP, RETURN = -2, -1, -5  # -NF_ACCEPT - 1, -NF_DROP - 1, XT_RETURN

BOTH = pytest.mark.parametrize("family", [Family.IPV4, Family.IPV6])


def entry(family: Family, target: bytes, *, matches: bytes = b"", packets: int = 0) -> bytes:
    head = bytearray(HEAD[family])
    to_target = len(head) + len(matches)
    struct.pack_into("=HH", head, OFFSETS[family], to_target, to_target + len(target))
    struct.pack_into("=QQ", head, COUNTERS[family], packets, packets * 60)
    return bytes(head) + matches + target


def verdict(code: int) -> bytes:
    return struct.pack("=H29sBi4x", 40, b"", 0, code)


def error(name: str) -> bytes:
    return struct.pack("=H29sB30s2x", 64, b"ERROR", 0, name.encode())


def snapshot(
    family: Family, entries: bytes, hooks: dict[int, str] | None = None, ends: dict[int, str] | None = None
) -> Snapshot:
    return Snapshot(family, hooks or {}, ends or {}, entries)
