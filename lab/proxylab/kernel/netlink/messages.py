"""Netlink messages, which pyroute2 encodes and decodes. No other module of proxylab imports pyroute2.

pyroute2 has no type hints, so this module gives a type to all that leaves it. Attributes have the names of the kernel's
headers (``IFLA_MTU``), and fields of a message's structure have pyroute2's names (``prefixlen`` of ``ifaddrmsg``).
``kernel.netlink.socket`` sends messages. It does not use the sockets of pyroute2: the synchronous ones refuse to work
within an event loop, and both kinds wait for the answer to one request before they send the next.
"""

import struct
from collections.abc import Iterator, Mapping, Sequence
from enum import Enum
from typing import Any, Final, TypeVar

from msgspec import Struct

from proxylab.kernel.netlink.partial_import import without_init

with without_init("pyroute2"):  # it would import a hundred modules that no lab uses
    from pyroute2.netlink import NLA_F_NESTED, NLM_F_REQUEST, NLMSG_DONE, NLMSG_ERROR, ctrlmsg, nlmsgerr
    from pyroute2.netlink.diag import SOCK_DESTROY, SOCK_DIAG_BY_FAMILY, inet_diag_msg, inet_diag_req
    from pyroute2.netlink.generic.ipvs import ipvsmsg
    from pyroute2.netlink.nfnetlink.ipset import ipset_msg
    from pyroute2.netlink.nfnetlink.nfctsocket import nfct_msg, nfct_stats
    from pyroute2.netlink.rtnl.fibmsg import fibmsg
    from pyroute2.netlink.rtnl.ifaddrmsg import ifaddrmsg
    from pyroute2.netlink.rtnl.ifinfmsg import ifinfmsg
    from pyroute2.netlink.rtnl.ndmsg import ndmsg
    from pyroute2.netlink.rtnl.ndtmsg import ndtmsg
    from pyroute2.netlink.rtnl.nsidmsg import nsidmsg
    from pyroute2.netlink.rtnl.rtmsg import rtmsg
    from pyroute2.netlink.rtnl.tcmsg import tcmsg

_HEADER: Final = struct.Struct("=IHHI4x")  # struct nlmsghdr: length, type, flags, sequence number
_CONNTRACK: Final = 1 << 8  # NFNL_SUBSYS_CTNETLINK
_IPSET: Final = 6 << 8  # NFNL_SUBSYS_IPSET

Value = int | str | None | tuple[int, ...] | Mapping[str, "Value"] | Sequence[Mapping[str, "Value"]]
Content = Mapping[str, Value]
"""What a message says, by name: fields of its structure (``prefixlen``) and attributes (``IFLA_MTU``).

Addresses are text. An attribute that is ``None`` is left out. One with attributes of its own is a ``Content`` again,
and an array is a list of these.
"""

T = TypeVar("T")


class _Ipvs(ipvsmsg):  # type: ignore[misc]
    """pyroute2's message, which leaves the timeouts as hexadecimal text."""

    nla_map = tuple((name, "uint32" if "TIMEOUT" in name else kind) for name, kind in ipvsmsg.nla_map)


class Kind(Enum):
    """A kind of request: its number, pyroute2's class for it, and the class for the kernel's answer.

    A generic family has no number here: each kernel gives it one (``NetlinkRequest.number``).
    """

    NEW_LINK = 16, ifinfmsg, ifinfmsg
    DELETE_LINK = 17, ifinfmsg, ifinfmsg
    GET_LINK = 18, ifinfmsg, ifinfmsg
    SET_LINK = 19, ifinfmsg, ifinfmsg
    NEW_ADDRESS = 20, ifaddrmsg, ifaddrmsg
    DELETE_ADDRESS = 21, ifaddrmsg, ifaddrmsg
    GET_ADDRESS = 22, ifaddrmsg, ifaddrmsg
    NEW_ROUTE = 24, rtmsg, rtmsg
    DELETE_ROUTE = 25, rtmsg, rtmsg
    GET_ROUTE = 26, rtmsg, rtmsg
    NEW_NEIGHBOUR = 28, ndmsg, ndmsg
    GET_NEIGHBOUR = 30, ndmsg, ndmsg
    NEW_RULE = 32, fibmsg, fibmsg
    DELETE_RULE = 33, fibmsg, fibmsg
    GET_RULE = 34, fibmsg, fibmsg
    SET_NEIGHBOUR_TABLE = 67, ndtmsg, ndtmsg
    NEW_QUEUE = 36, tcmsg, tcmsg
    GET_QUEUE = 38, tcmsg, tcmsg
    NEW_NAMESPACE_ID = 88, nsidmsg, nsidmsg
    GET_NAMESPACE_ID = 90, nsidmsg, nsidmsg
    NEW_CONNECTION = _CONNTRACK, nfct_msg, nfct_msg
    GET_CONNECTION = _CONNTRACK | 1, nfct_msg, nfct_msg
    DELETE_CONNECTION = _CONNTRACK | 2, nfct_msg, nfct_msg
    COUNT_CONNECTIONS = _CONNTRACK | 5, nfct_msg, nfct_stats
    GET_SOCKETS = SOCK_DIAG_BY_FAMILY, inet_diag_req, inet_diag_msg
    DESTROY_SOCKET = SOCK_DESTROY, inet_diag_req, inet_diag_msg
    GET_GENERIC_FAMILY = 16, ctrlmsg, ctrlmsg
    CREATE_SET = _IPSET | 2, ipset_msg, ipset_msg
    DESTROY_SET = _IPSET | 3, ipset_msg, ipset_msg
    LIST_SETS = _IPSET | 7, ipset_msg, ipset_msg
    ADD_MEMBER = _IPSET | 9, ipset_msg, ipset_msg
    DELETE_MEMBER = _IPSET | 10, ipset_msg, ipset_msg
    GET_SET_TYPE = _IPSET | 13, ipset_msg, ipset_msg
    IPVS = 0, _Ipvs, _Ipvs


class NetlinkRequest(Struct, frozen=True):
    """One request to the kernel.

    Attributes:
        what: the request in words, for an error message.
        flags: NLM_F_*, without NLM_F_REQUEST.
        content: absent fields are zero.
        needs: what a kernel may lack, and the cure: EOPNOTSUPP is then the machine's fault and not the plan's.
        number: of the request's generic family, as the kernel told it.
    """

    what: str
    kind: Kind
    flags: int
    content: Content
    needs: tuple[str, str] | None = None
    number: int = 0

    def encode(self, sequence: int) -> bytes:
        """The request as bytes, with its header and a sequence number."""
        number, layout, _ = self.kind.value
        encoded = layout()
        encoded.update(dict.fromkeys((name for name, _ in layout.fields), 0))
        encoded.update(_arranged(self.content))
        encoded["header"] = {
            "type": number or self.number,
            "flags": self.flags | NLM_F_REQUEST,
            "sequence_number": sequence,
        }
        encoded.encode()
        return bytes(encoded.data)


def _arranged(content: Content) -> dict[str, Any]:
    """Content as pyroute2 takes it: fields, and a list of attributes with their flags."""
    arranged: dict[str, Any] = {name: value for name, value in content.items() if name.islower()}
    arranged["attrs"] = [
        (name, *_value(value)) for name, value in content.items() if name.isupper() and value is not None
    ]
    return arranged


def _value(value: object) -> tuple[object, int]:
    """The value of an attribute, and its flags. Without NLA_F_NESTED, ``br_setlink`` takes a number for the state."""
    if isinstance(value, Mapping):
        return _arranged(value), NLA_F_NESTED
    return [_arranged(each) for each in value] if isinstance(value, list) else value, 0


class Decoded:
    """An object of the kernel as pyroute2 decodes it: fields of its structure, and attributes."""

    def __init__(self, found: Any) -> None:
        self._found = found

    def find(self, of: type[T], *path: str) -> T | None:
        """A field, or an attribute by its way through nested ones; ``None`` where the object lacks it.

        Raises:
            TypeError: the value is not ``of`` this type; pyroute2 leaves bytes that it cannot decode.
        """
        value = self._found.get(path)
        if value is None or isinstance(value, of):
            return value
        raise TypeError(f"{'/'.join(path)} is {value!r} instead of a value of type {of.__name__}")

    def need(self, of: type[T], *path: str) -> T:
        """``find`` for what every such object has. Raises ``KeyError`` where this one lacks it."""
        value = self.find(of, *path)
        if value is None:
            raise KeyError("/".join(path))
        return value

    def part(self, attribute: str) -> "Decoded":
        """An attribute that has attributes. Raises ``KeyError`` where the object lacks it."""
        return Decoded(self.need(dict, attribute))

    def parts(self, attribute: str) -> Iterator["Decoded"]:
        """Each attribute of that name, where the object repeats it."""
        return map(Decoded, self._found.get_attrs(attribute))

    def each(self, attribute: str) -> Iterator["Decoded"]:
        """The elements of an attribute that is an array; none where the object lacks it."""
        return map(Decoded, self._found.get(attribute, ()))


class NetlinkAnswer(Struct, frozen=True):
    """One message from the kernel. ``data`` is all of it, with its header."""

    kind: int
    flags: int
    sequence: int
    data: bytes

    @property
    def is_last(self) -> bool:
        """Whether the message ends a dump, or acknowledges or refuses a request."""
        return self.kind in (NLMSG_DONE, NLMSG_ERROR)

    def refusal(self) -> tuple[int, str]:
        """The errno of a message that ``is_last``, or 0, and the kernel's own words about it, or none."""
        error = nlmsgerr(self.data)
        error.decode()
        return -int(error["error"]), str(error.get_attr("NLMSGERR_ATTR_MSG", ""))

    def decode(self, kind: Kind) -> Decoded:
        """The object in the answer to a request of a kind."""
        found = kind.value[2](self.data)
        found.decode()
        return Decoded(found)


def answers(data: bytes) -> Iterator[NetlinkAnswer]:
    """Each message in the bytes of one recv(2)."""
    at = 0
    while at < len(data):
        length, kind, flags, sequence = _HEADER.unpack_from(data, at)
        yield NetlinkAnswer(kind, flags, sequence, data[at : at + length])
        at += length + (-length & 3)
