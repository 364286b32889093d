"""All taps of a lab, read together.

Owns: which devices are tapped, and the reading of whatever waits at any of them.
Must not: know flows.

Closing a packet socket waits until no processor can be in the middle of handing it a packet (``packet_release`` calls
``synchronize_net``). A process that ends closes its sockets one after another. Threads wait for the same grace period.
Measured on Linux 6.18 with two busy processors, for 2,000 sockets that listen: one after another 11 ms each, by 16
threads 0.25 ms, by 64 threads 0.19 ms. A lab of 1,000 pods that has sent a probe holds 5,120 packet sockets; its end
took longer than 20 s, and takes 2 s with 64 threads. One socket for all devices of a namespace would be no cure: a pod
has one device, and before Linux 6.16 every such socket looks at the packets of all namespaces of the machine.
"""

import select
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from typing import Final

from proxylab.errors import InternalError
from proxylab.evidence.evidence import TapLoss
from proxylab.kernel.capture.batches import Frame, FrameReader, Slots
from proxylab.kernel.capture.stack import StackTap
from proxylab.kernel.capture.taps import Tap, open_tap
from proxylab.kernel.sandbox.netns import NetNs
from proxylab.plan.model import Device, Plan, Role
from proxylab.plan.resolved import STACK
from proxylab.traffic.interest import INTEREST, NOTHING, SEGMENTS

__all__ = ["AnyTap", "Watch"]

AnyTap = Tap | StackTap
"""What sees packets: on a device, or between a node's programs and its rules."""

_TAPPED: Final = frozenset({Role.POD, Role.HOST})

# What one small frame costs in a receive buffer (skb->truesize) at most: a 2 KiB block, its end and its sk_buff.
_TRUESIZE: Final = 2304 + 320

_CLOSERS: Final = 64


class Watch:
    """A tap on every device of every pod and every outside host, for as long as the lab lives.

    Every device of the nodes has one from the first run on, so that packets are followed through them. The programs of
    a node are tapped from the first time on that an errand starts or may end at one of them: most labs never need it.
    """

    def __init__(self, netns_by_name: Mapping[str, NetNs], plan: Plan) -> None:
        """Open all taps.

        Raises:
            InternalError: naming the device that could not be tapped; taps that were opened are closed again.
        """
        self._netns_by_name = netns_by_name
        self._plan = plan
        self._on_nodes: tuple[Tap, ...] = ()
        self._following = False
        self._taps: dict[tuple[str, str], Tap] = {}
        self._stacks: dict[str, StackTap] = {}
        self._by_fd: dict[int, AnyTap] = {}
        self._reader = FrameReader()
        with ExitStack() as opened:
            self._epoll = opened.enter_context(select.epoll())
            for namespace in plan.namespaces:
                if namespace.role not in _TAPPED:
                    continue
                for end in (end for link in plan.links for end in link.ends if end.namespace == namespace.name):
                    opened.callback(self._tap_on(namespace.name, end.device).close)
            opened.pop_all()

    def tap(self, namespace: str, device: str) -> AnyTap:
        """The tap on that device, or on that node's programs (``STACK``).

        Raises:
            InternalError: where there is none.
            CapabilityError: the kernel cannot show what a node's programs send and get.
        """
        if device == STACK:
            return self._stack(namespace)
        try:
            return self._taps[namespace, device]
        except KeyError:
            raise InternalError(
                f"no tap stands on {device} in {namespace}; pods and outside hosts are tapped, and an errand's sender "
                f"must be one of them"
            ) from None

    def follow(self, wanted: bool) -> None:
        """See packets at every device of the nodes from now on, or at none.

        Raises:
            InternalError: naming the device that could not be tapped.
        """
        if wanted and not self._on_nodes:
            self._on_nodes = tuple(self._tap_on(*device) for device in _devices_of_nodes(self._plan))
        elif wanted is not self._following:
            for tap in self._on_nodes:
                tap.attend(INTEREST if wanted else NOTHING)
        self._following = wanted

    @contextmanager
    def every_segment(self) -> Iterator[None]:
        """For the length of the block, see all TCP at every device, that of the nodes included."""
        self.follow(True)
        try:
            for tap in self._taps.values():
                tap.attend(SEGMENTS)
            yield
        finally:
            for tap in self._taps.values():
                tap.attend(INTEREST)

    def room(self, frame_bytes: int) -> int:
        """How many frames of that length fit into every tap's buffer at least."""
        smallest = min((tap.buffer_bytes for tap in self._by_fd.values()), default=0)
        return smallest // (_TRUESIZE + frame_bytes)

    def collect(self, *, ends: bool = False) -> list[tuple[AnyTap, list[Frame]]]:
        """What waits at each tap at which anything waits. Never waits itself.

        With ``ends`` the devices of nodes are left out: what waits there is for ``passing``.
        """
        ready = self._epoll.poll(0, max(1, len(self._by_fd)))
        left = {tap.fileno() for tap in self._on_nodes} if ends else frozenset[int]()
        batches = [(tap, tap.drain()) for tap in (self._by_fd[fd] for fd, _event in ready if fd not in left)]
        for stack in self._stacks.values():
            stack.settle()
        return batches

    def passing(self) -> Iterator[tuple[Tap, Slots]]:
        """What waits at the devices of nodes, in batches; each must be done with before the next is asked for."""
        for tap in self._on_nodes:
            for batch in tap.slots():
                yield tap, batch

    def discard(self) -> None:
        """Forget what was seen and lost so far: it belongs to no run."""
        self.collect()
        self.losses()

    def losses(self) -> tuple[TapLoss, ...]:
        """What each tap could not keep since this was last asked."""
        return tuple(
            TapLoss(tap.netns_name, tap.device, frames) for tap in self._by_fd.values() if (frames := tap.lost())
        )

    def close(self) -> None:
        """Close all taps in threads, for which nobody waits here."""
        self._epoll.close()
        self._by_fd.clear()
        for stack in self._stacks.values():
            stack.close()
        if self._taps:
            closers = ThreadPoolExecutor(min(_CLOSERS, len(self._taps)))
            for tap in self._taps.values():
                closers.submit(tap.close)
            closers.shutdown(wait=False)
            self._taps.clear()

    def _tap_on(self, namespace: str, device: str) -> Tap:
        tap = self._taps[namespace, device] = _open(self._netns_by_name[namespace], device, self._reader)
        self._by_fd[tap.fileno()] = tap
        self._epoll.register(tap.fileno(), select.EPOLLIN)
        return tap

    def _stack(self, node: str) -> StackTap:
        if node not in self._stacks:
            stack = self._stacks[node] = StackTap(self._netns_by_name[node], node, STACK)
            self._by_fd[stack.fileno()] = stack
            self._epoll.register(stack.fileno(), select.EPOLLIN)
        return self._stacks[node]


def _devices_of_nodes(plan: Plan) -> Iterator[tuple[str, str]]:
    for namespace in plan.namespaces:
        if namespace.role is Role.NODE:
            ends = (end for link in plan.links for end in link.ends if end.namespace == namespace.name)
            devices: tuple[Device, ...] = (*ends, *namespace.bridges, *namespace.vxlans)
            for device in devices:
                yield namespace.name, device.device


def _open(netns: NetNs, device: str, reader: FrameReader) -> Tap:
    try:
        return open_tap(netns, netns.name, device, INTEREST, reader)
    except OSError as error:
        raise InternalError(
            f"cannot tap {device} in namespace {netns.name}: {error}; the device must exist and the lab must hold "
            f"CAP_NET_RAW over it"
        ) from error
