"""Why the kernel drops a packet, by the tracepoint skb:kfree_skb (include/trace/events/skb.h).

The kernel gives a reason since Linux 5.17 (enum skb_drop_reason, include/net/dropreason-core.h). Each release adds
reasons and renumbers them, so the module reads names and numbers from the running kernel's own list. The record does
not identify the packet.
"""

import os
import re
import struct
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple, Self

from proxylab.errors import CapabilityError
from proxylab.kernel.capture.tracepoint import Record, Tracepoint
from proxylab.kernel.netlink.links_carry import kernel_release

__all__ = ["Drop", "DropReasons", "Layout"]

_SINCE: Final = (5, 17)
_FIELD: Final = re.compile(r"\tfield:[^;]*?(\w+);\toffset:(\d+);\tsize:(\d+);")
_REASON: Final = re.compile(r'\{ (\d+), "(\w+)" \}')
_NUMBERS: Final = {2: "=H", 4: "=I"}
_PREFIX: Final = "SKB_DROP_REASON_"
_NONE_GIVEN: Final = "NOT_SPECIFIED"
_FIELDS: Final = ("protocol", "reason")


class Drop(NamedTuple):
    """One dropped packet: its protocol (an EtherType), the kernel's reason, and the time (CLOCK_REALTIME)."""

    protocol: int
    reason: str
    at_ns: int


class Layout(NamedTuple):
    """Where a record has its fields, and the names of reasons by number."""

    protocol: tuple[struct.Struct, int]
    reason: tuple[struct.Struct, int]
    names: dict[int, str]

    @classmethod
    def read(cls, text: str) -> Self:
        """The layout that the kernel's ``format`` describes. Raises ``ValueError`` where it has no reasons."""
        offsets = {name: (int(offset), int(size)) for name, offset, size in _FIELD.findall(text)}
        try:
            protocol, reason = ((struct.Struct(_NUMBERS[offsets[name][1]]), offsets[name][0]) for name in _FIELDS)
        except KeyError as error:
            raise ValueError(f"skb:kfree_skb records no {error.args[0]}") from error
        names = {int(number): name.removeprefix(_PREFIX) for number, name in _REASON.findall(text)}
        return cls(protocol, reason, names)

    def drops(self, records: Iterable[Record]) -> Iterator[Drop]:
        """The drops in records, without those for which the kernel gives no reason."""
        for at_ns, data in records:
            (protocol,), (number,) = (form.unpack_from(data, offset) for form, offset in (self.protocol, self.reason))
            reason = self.names.get(number, str(number))
            if reason != _NONE_GIVEN:
                yield Drop(protocol, reason, at_ns)


class DropReasons:
    """Records the packets that the kernel drops while this thread sends, between ``listen`` and ``heard``."""

    def __init__(self) -> None:
        """Read the kernel's list of reasons.

        Raises:
            CapabilityError: the kernel has no reasons, or this process may not read them.
        """
        # Older kernels have no reasons; there a second mount of tracefs could reset the options of the first.
        release = kernel_release()
        if release < _SINCE:
            raise _capability_error(f"kernel {os.uname().release}")
        try:
            self._tracepoint = Tracepoint("skb", "kfree_skb")
        except OSError as error:
            raise _capability_error(str(error)) from error
        try:
            self._layout = Layout.read(self._tracepoint.format)
        except ValueError as error:
            self._tracepoint.close()
            raise _capability_error(str(error)) from error

    @property
    def known(self) -> int:
        """How many reasons this kernel has."""
        return len(self._layout.names)

    def start(self) -> None:
        """Record every drop from now on."""
        self._tracepoint.start()

    def stop(self) -> tuple[Drop, ...]:
        """Stop recording, and return the drops."""
        return tuple(self._layout.drops(self._tracepoint.stop()))

    def close(self) -> None:
        """Close the tracepoint, without waiting for the kernel."""
        self._tracepoint.close()


def _capability_error(found: str) -> CapabilityError:
    return CapabilityError(
        f"the kernel's reasons for drops ({found})", "run as the machine's root, with kernel 5.17 or later and tracefs"
    )
