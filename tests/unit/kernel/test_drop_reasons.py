"""The parser reads the kernel's records of dropped packets by the kernel's own format description."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxylab.kernel.capture.drop_reasons import Drop, DropRecord, RecordLayout, records

SAMPLE, LOST = 9, 2

# events/skb/kfree_skb/format, shortened: of Linux 6.1, and of 6.18, which has a socket too, and other numbers.
OLDER = """\
name: kfree_skb
format:
\tfield:int common_pid;\toffset:4;\tsize:4;\tsigned:1;

\tfield:void * skbaddr;\toffset:8;\tsize:8;\tsigned:0;
\tfield:void * location;\toffset:16;\tsize:8;\tsigned:0;
\tfield:unsigned short protocol;\toffset:24;\tsize:2;\tsigned:0;
\tfield:enum skb_drop_reason reason;\toffset:28;\tsize:4;\tsigned:0;

print fmt: "reason: %s", __print_symbolic(REC->reason, { 2, "NOT_SPECIFIED" }, { 14, "IP_RPFILTER" })
"""
NEWER = """\
name: kfree_skb
format:
\tfield:int common_pid;\toffset:4;\tsize:4;\tsigned:1;

\tfield:void * skbaddr;\toffset:8;\tsize:8;\tsigned:0;
\tfield:void * location;\toffset:16;\tsize:8;\tsigned:0;
\tfield:void * rx_sk;\toffset:24;\tsize:8;\tsigned:0;
\tfield:unsigned short protocol;\toffset:32;\tsize:2;\tsigned:0;
\tfield:enum skb_drop_reason reason;\toffset:36;\tsize:4;\tsigned:0;

print fmt: "reason: %s", __print_symbolic(REC->reason, { 2, "NOT_SPECIFIED" }, { 16, "IP_RPFILTER" })
"""
EACH = pytest.mark.parametrize(
    ("text", "form", "number"), [(OLDER, "=24xH2xI", 14), (NEWER, "=32xH2xI4x", 16)], ids=["6.1", "6.18"]
)


@EACH
def test_a_reason_has_this_kernel_s_name_for_its_number(text: str, form: str, number: int) -> None:
    layout = RecordLayout.read(text)
    recorded = [DropRecord(7, struct.pack(form, 0x0800, number)), DropRecord(8, struct.pack(form, 0x86DD, 99))]
    assert list(layout.drops(recorded)) == [Drop(0x0800, "IP_RPFILTER", 7), Drop(0x86DD, "99", 8)]


@EACH
def test_a_drop_without_a_reason_is_omitted(text: str, form: str, number: int) -> None:
    recorded = [DropRecord(7, struct.pack(form, 0x0800, each)) for each in (2, number)]
    assert [drop.at_ns for drop in RecordLayout.read(text).drops(recorded)] == [7]
    assert [drop.reason for drop in RecordLayout.read(text).drops(recorded)] == ["IP_RPFILTER"]


def test_a_format_without_reasons_is_refused() -> None:
    with pytest.raises(ValueError, match="skb:kfree_skb records no reason"):
        RecordLayout.read("".join(line for line in OLDER.splitlines(keepends=True) if "field:enum" not in line))


@given(st.lists(st.tuples(st.sampled_from([SAMPLE, LOST]), st.integers(0, 2**64 - 1), st.binary(max_size=80))))
def test_samples_are_read_and_other_records_skipped(written: list[tuple[int, int, bytes]]) -> None:
    ring = b""
    for kind, at, data in written:
        whole = data + bytes(-(4 + len(data)) % 8)
        body = struct.pack("=QI", at, len(whole)) + whole if kind == SAMPLE else data + bytes(-len(data) % 8)
        ring += struct.pack("=IHH", kind, 0, 8 + len(body)) + body
    read = list(records(ring))
    assert [(at, data.rstrip(b"\0")) for at, data in read] == [
        (at, data.rstrip(b"\0")) for kind, at, data in written if kind == SAMPLE
    ]
    assert list(records(ring[:-1])) == (read[:-1] if written and written[-1][0] == SAMPLE else read)
