"""Batch reading returns the frames that crossed the device: whole, in order, none twice, with their time."""

import time
from itertools import pairwise
from typing import Any

from sandboxed import sandboxed
from traffic_plan import traffic_plan
from users import EITHER

from proxylab.kernel.capture.batches import Frame, FrameReader
from proxylab.kernel.capture.taps import Tap, open_tap
from proxylab.kernel.netlink.build import realise
from proxylab.kernel.sandbox.launcher import Launcher

MARK = b"\x88\xb5"  # an EtherType for experiments (IEEE Std 802), which no stack answers
SIZES = (60, 167, 168, 169, 1514, 64, 900)


def ours(tap: Tap) -> list[Frame]:
    """The waiting frames of a tap, without those that a stack sends by itself."""
    return [each for each in tap.drain() if each.data[12:14] == MARK]


async def read_back(_: Launcher) -> dict[str, Any]:
    sent = [bytes(12) + MARK + bytes([number % 251]) * (size - 14) for number, size in enumerate(SIZES * 30)]
    with realise(traffic_plan()) as wiring:
        reader = FrameReader()
        near, far = (
            open_tap(wiring.namespaces[netns_name], netns_name, device, b"", reader)
            for netns_name, device in (("client", "eth0"), ("node-a", "client"))
        )
        empty = ours(near)
        begin = time.time_ns()
        for frame in sent:
            near.send(frame)
        end = time.time_ns()
        out, into = map(ours, (near, far))
        found = {
            "empty": len(empty),
            "whole": [[each.data for each in seen] == sent for seen in (out, into)],
            "outgoing": [{*(each.outgoing for each in seen)} == {way} for seen, way in ((out, True), (into, False))],
            "in time": all(begin <= one.at_ns <= two.at_ns <= end for one, two in pairwise(out)),
            "again": len(ours(near)) + len(ours(far)),
        }
        near.close()
        far.close()
    return found


@EITHER
def test_every_frame_is_read_once_and_whole(ordinary: bool) -> None:
    found = sandboxed(read_back, ordinary=ordinary)
    assert found == {"empty": 0, "whole": [True] * 2, "outgoing": [True] * 2, "in time": True, "again": 0}
