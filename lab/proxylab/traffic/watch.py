"""All taps of a lab, read together.

``Watch`` decides which devices have taps, and reads all frames that are ready. It knows no flows.

Closing a packet socket waits until no processor can be in the middle of handing it a packet (``packet_release`` calls
``synchronize_net``). A process that ends closes its sockets one after another; threads share one grace period. Measured
on Linux 6.18 with two busy processors, for 2,000 sockets that listen: one after another 11 ms each, by 16 threads 0.25
ms, by 64 threads 0.19 ms. A lab of 1,000 pods that has sent a probe holds 5,120 packet sockets; its end took longer
than 20 s, and takes 2 s with 64 threads. One socket for all devices of a namespace would not help: a pod has one
device, and before Linux 6.16 every such socket looks at the packets of all namespaces of the machine.
"""

import select
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from typing import Final

from proxylab.errors import InternalError
from proxylab.evidence.evidence import TapLoss
from proxylab.kernel.capture.batches import Frame, FrameReader
from proxylab.kernel.capture.stack import StackTap
from proxylab.kernel.capture.taps import Tap, open_tap
from proxylab.kernel.sandbox.netns import NetNs
from proxylab.plan.model import Device, Plan, Role, Veth
from proxylab.plan.resolved import STACK
from proxylab.traffic.tap_filters import FLOW_FRAMES, NOTHING, SEGMENTS, STREAM_FRAMES

AnyTap = Tap | StackTap
"""A tap sees packets on a device, or between a node's programs and its rules."""

_TAPPED: Final = frozenset({Role.POD, Role.HOST})

# The most that one small frame costs in a receive buffer (skb->truesize): a 2 KiB block, its end and its sk_buff.
_TRUESIZE: Final = 2304 + 320

_CLOSERS: Final = 64


class Watch:
    """A tap on every device of every pod and every outside host, for the lab's whole life.

    The devices of the nodes get taps with the first run, which follow packets through the nodes. A node's programs get
    a tap when the first probe starts or may end at them: most labs never need it.
    """

    def __init__(self, netns_by_name: Mapping[str, NetNs], plan: Plan) -> None:
        """Open all taps.

        Raises:
            InternalError: naming the device that could not be tapped; taps opened so far are closed again.
        """
        self._netns_by_name = netns_by_name
        self._plan = plan
        self._on_nodes: tuple[Tap, ...] = ()
        self._further: list[tuple[str, str]] = []
        self._following = False
        self._keeping = False
        self._taps: dict[tuple[str, str], Tap] = {}
        self._stacks: dict[str, StackTap] = {}
        self._by_fd: dict[int, AnyTap] = {}
        self._reader = FrameReader()
        self._closers: ThreadPoolExecutor | None = None
        with ExitStack() as opened:
            self._epoll = opened.enter_context(select.epoll())
            for namespace in plan.namespaces:
                if namespace.role not in _TAPPED:
                    continue
                for end in (end for link in plan.links for end in link.ends if end.namespace == namespace.name):
                    netns = netns_by_name[namespace.name]
                    opened.callback(self._tap_on(namespace.name, end.device, netns).close)
            opened.pop_all()

    def add(self, link: Veth, on_node: NetNs, in_pod: NetNs) -> None:
        """Tap the link of a pod that has come after the plan. Raises ``InternalError``.

        ``link`` begins on the node.
        """
        node, pod = link.ends
        self._tap_on(pod.namespace, pod.device, in_pod).attend(STREAM_FRAMES if self._keeping else FLOW_FRAMES)
        self._further.append((node.namespace, node.device))
        if self._on_nodes:
            tap = self._tap_on(node.namespace, node.device, on_node)
            tap.attend(FLOW_FRAMES if self._following else NOTHING)
            self._on_nodes = (*self._on_nodes, tap)

    def remove(self, link: Veth) -> None:
        """Tap the link of such a pod no longer. A thread closes the taps."""
        node = link.first
        self._further.remove((node.namespace, node.device))
        gone = [tap for each in link.ends if (tap := self._taps.pop((each.namespace, each.device), None))]
        self._on_nodes = tuple(each for each in self._on_nodes if each not in gone)
        for tap in gone:
            del self._by_fd[tap.fileno()]
            self._epoll.unregister(tap.fileno())
            self._close_in_thread(tap)

    def tap(self, namespace: str, device: str) -> AnyTap:
        """The tap on that device, or on that node's programs (``STACK``).

        Raises:
            InternalError: where there is none.
            CapabilityError: the kernel cannot show the packets of a node's programs.
        """
        if device == STACK:
            return self._stack(namespace)
        try:
            return self._taps[namespace, device]
        except KeyError:
            raise InternalError(
                f"there is no tap on {device} in {namespace}; a probe's sender must be a pod, an outside host or a node"
            ) from None

    def follow(self, wanted: bool) -> None:
        """Capture packets at every device of the nodes from now on, or at none. Raises ``InternalError``."""
        if wanted and not self._on_nodes:
            devices = (*_devices_of_nodes(self._plan), *self._further)
            self._on_nodes = tuple(self._tap_on(*each, self._netns_by_name[each[0]]) for each in devices)
        elif wanted is not self._following:
            for tap in self._on_nodes:
                tap.attend(FLOW_FRAMES if wanted else NOTHING)
        self._following = wanted

    def keep_data(self, wanted: bool) -> None:
        """Capture TCP segments with a token at pods and outside hosts from now on, or no more."""
        if wanted is not self._keeping:
            on_nodes = {id(tap) for tap in self._on_nodes}
            for tap in (each for each in self._taps.values() if id(each) not in on_nodes):
                tap.attend(STREAM_FRAMES if wanted else FLOW_FRAMES)
        self._keeping = wanted

    @contextmanager
    def every_segment(self) -> Iterator[None]:
        """Capture all TCP at every device for the length of the block. Taps on nodes follow flows afterwards, too."""
        self.follow(True)
        try:
            for tap in self._taps.values():
                tap.attend(SEGMENTS)
            yield
        finally:
            for tap in self._taps.values():
                tap.attend(FLOW_FRAMES)

    def room(self, frame_bytes: int) -> int:
        """How many frames of that length fit into every tap's buffer at least."""
        smallest = min((tap.buffer_bytes for tap in self._by_fd.values()), default=0)
        return smallest // (_TRUESIZE + frame_bytes)

    def collect(self) -> list[tuple[AnyTap, list[Frame]]]:
        """The frames that are ready at each tap. Never waits."""
        ready = self._epoll.poll(0, max(1, len(self._by_fd)))
        batches = [(tap, tap.drain()) for tap in (self._by_fd[fd] for fd, _event in ready)]
        for stack in self._stacks.values():
            stack.settle()
        return batches

    def discard(self) -> None:
        """Forget all frames and losses so far: they belong to no run."""
        self.collect()
        for stack in self._stacks.values():
            stack.forget()
        self.take_losses()

    def take_losses(self) -> tuple[TapLoss, ...]:
        """How many frames each tap could not keep since the last call. The count begins at zero again."""
        return tuple(
            TapLoss(tap.netns_name, tap.device, frames) for tap in self._by_fd.values() if (frames := tap.take_lost())
        )

    def close(self) -> None:
        """Close all taps in threads, without waiting for them."""
        self._epoll.close()
        self._by_fd.clear()
        for stack in self._stacks.values():
            stack.close()
        for tap in self._taps.values():
            self._close_in_thread(tap)
        self._taps.clear()
        if self._closers is not None:
            self._closers.shutdown(wait=False)

    def _close_in_thread(self, tap: Tap) -> None:
        if self._closers is None:
            self._closers = ThreadPoolExecutor(_CLOSERS)  # which starts no more threads than it has taps to close
        self._closers.submit(tap.close)

    def _tap_on(self, namespace: str, device: str, netns: NetNs) -> Tap:
        tap = self._taps[namespace, device] = _open(netns, device, self._reader)
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
        return open_tap(netns, netns.name, device, FLOW_FRAMES, reader)
    except OSError as error:
        raise InternalError(
            f"cannot tap {device} in namespace {netns.name}: {error}; the device must exist and the lab must hold "
            f"CAP_NET_RAW over it"
        ) from error
