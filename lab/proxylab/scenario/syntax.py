"""Types for values with their own syntax: names, labels, ports, addresses, networks, sysctls."""

import re
from collections.abc import Callable, Mapping
from functools import partial
from ipaddress import ip_address, ip_interface, ip_network
from typing import Annotated, Any, Final, TypeVar

from proxylab.addresses import IPAddress, IPInterface, IPNetwork
from proxylab.cluster.objects import Taint
from proxylab.scenario.document import describe, shown
from proxylab.scenario.keys import Between, Check, Read, refused

T = TypeVar("T")

_DNS_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_PORT_NAME = re.compile(r"(?=.*[a-z])(?!.*--)[a-z0-9]([-a-z0-9]{0,13}[a-z0-9])?")
_LABEL_NAME = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")
_LABEL_RULE = "has 63 letters, digits, '-', '_' and '.' at most, a letter or digit at both ends"
_EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")
_DURATION = re.compile(r"([0-9]{1,6})(ms|s)")
_DEVICE = re.compile(r"[A-Za-z0-9_-]{1,15}")  # IFNAMSIZ of linux/if.h is 16 with its final null
_SYSCTL = re.compile(r"net(\.[A-Za-z0-9_/-]+)+")


def is_label(text: str) -> bool:
    """Whether this is a DNS label as Kubernetes requires (RFC 1123, lower case, 63 characters at most)."""
    return _DNS_LABEL.fullmatch(text) is not None


def is_dns1035_label(text: str) -> bool:
    """Whether this is a DNS label that begins with a letter (RFC 1035), as the name of a Service must be."""
    return is_label(text) and not text[0].isdigit()


def is_subdomain(text: str) -> bool:
    """Whether this is a lower-case DNS subdomain: labels with dots between them, 253 characters at most."""
    return len(text) <= 253 and all(map(is_label, text.split(".")))


def is_address(text: str) -> bool:
    """Whether this is an IP address of either family."""
    try:
        ip_address(text)
    except ValueError:
        return False
    return True


def label_key_fault(key: str) -> str:
    """What is wrong with the key of a label, or an empty string."""
    prefix, slash, name = key.rpartition("/")
    if slash and not is_subdomain(prefix):
        return "the part before / must be a DNS subdomain"
    if not _LABEL_NAME.fullmatch(name):
        return f"a label's name {_LABEL_RULE}"
    return ""


def label_value_fault(value: str) -> str:
    """What is wrong with the value of a label, or an empty string."""
    if value and not _LABEL_NAME.fullmatch(value):
        return f"a label's value {_LABEL_RULE}"
    return ""


def _name(text: str) -> str:
    if not is_label(text):
        raise refused(
            f"{shown(text)} is not a name",
            allowed="allowed: 63 lower-case letters, digits and '-' at most, a letter or digit at both ends (RFC 1123)",
        )
    return text


def port_name(text: str) -> str:
    """A service name of RFC 6335, in lower case."""
    if not _PORT_NAME.fullmatch(text):
        raise refused(
            f"{shown(text)} is not a port's name",
            allowed="allowed: 15 lower-case letters, digits and '-' at most, with a letter among them (RFC 6335)",
        )
    return text


def _checked(fault: Callable[[str], str]) -> Callable[[str], str]:
    def validate(text: str) -> str:
        if what := fault(text):
            raise refused(f"{shown(text)}: {what}")
        return text

    return validate


def _taint(text: str) -> str:
    taint = Taint.of(text)
    if fault := label_key_fault(taint.key) or label_value_fault(taint.value):
        raise refused(f"{shown(text)}: {fault}")
    if taint.effect not in _EFFECTS:
        what = f"{shown(taint.effect)} is no effect of a taint"
        raise refused(what, allowed=f"allowed: {', '.join(_EFFECTS)}", word=taint.effect, known=_EFFECTS)
    return text


def read_port_reference(value: object) -> object:
    """A port's number or name. The later look-up checks the name, since it can make a suggestion."""
    if isinstance(value, bool) or not isinstance(value, int | str):
        raise refused(f"must be a port's number or name, is {describe(value)}")
    if isinstance(value, int) and not 1 <= value <= 65535:
        raise refused(f"{value} is out of range", allowed="allowed: 1 to 65535")
    return value


def read_text(parse: Callable[[str], T], wanted: str, noun: str, allowed: str) -> Callable[[object], T]:
    """What reads a value that an author writes as text; ``parse`` makes it, or raises ``ValueError``.

    A refusal says that the author must write ``wanted``, or that the text is not ``noun``.
    """

    def read(value: object) -> T:
        if not isinstance(value, str):
            raise refused(f"must be {wanted}, is {describe(value)}")
        try:
            return parse(value)
        except ValueError:
            raise refused(f"{shown(value)} is not {noun}", allowed=allowed) from None

    return read


read_address: Final = read_text(ip_address, "an IP address", "an IP address", "write it as 10.0.0.1 or fd00::1")
_interface: Final = read_text(ip_interface, "an IP address", "an address", "write it as 192.0.2.1 or 192.0.2.1/24")
read_network: Final = read_text(
    lambda text: ip_network(text.strip(), strict=False),
    "a network such as 10.0.0.0/16",
    "a network",
    "write it as 10.0.0.0/16",
)
"""A network as the API server takes it: with spaces around it, and with host bits."""


def _network(value: object) -> IPNetwork:
    network = read_network(value)
    if value != str(network) and value != str(network.network_address):
        raise refused(f"{shown(value)} is not written as a network", allowed=f"write it as {network}")
    return network


def _usable(network: IPNetwork) -> IPNetwork:
    """A network from which machines can have addresses."""
    if network.is_loopback or network.is_multicast or network.is_link_local or network.is_unspecified:
        raise refused(f"{network} is reserved", allowed="use private or documentation addresses (RFC 1918, RFC 5737)")
    return network


def _destination(value: object) -> object:
    return value if value != "default" else "0.0.0.0/0"


def distinct(items: list[Any]) -> list[Any]:
    """Refuse a list in which an item appears twice."""
    for index, item in enumerate(items):
        if item in items[:index]:
            raise refused(f"{shown(item)} appears twice", allowed="remove one of the two")
    return items


def listed_if_single(value: object) -> object:
    """Read a single value as a list of one."""
    return value if isinstance(value, list) else [value]


def _duration(most: int, value: object) -> int:
    """Milliseconds, of so many seconds at most."""
    found = _DURATION.fullmatch(value) if isinstance(value, str) else None
    if found is None:
        raise refused(f"must be a time such as 20ms, is {describe(value)}", allowed="a whole number of ms or s")
    milliseconds = int(found[1]) * (1 if found[2] == "ms" else 1000)
    if not 1 <= milliseconds <= most * 1000:
        raise refused(f"{shown(value)} is out of range", allowed=f"allowed: 1ms to {most}s")
    return milliseconds


def _device_name(text: str) -> str:
    if not _DEVICE.fullmatch(text) or text in ("all", "default"):
        raise refused(f"{shown(text)} is not the name of a device", allowed="allowed: 15 letters, digits, '-', '_'")
    return text


def sysctl_fault(text: str) -> str:
    """What is wrong with the name of a sysctl, or an empty string."""
    return "" if _SYSCTL.fullmatch(text) else "is not a sysctl of a network namespace"


def _sysctl_name(text: str) -> str:
    if fault := sysctl_fault(text):
        raise refused(
            f"{shown(text)} {fault}",
            allowed="allowed: dotted names below net., with / for the dots of a device's name",
        )
    return text


def _sysctl_value(value: object) -> str:
    if isinstance(value, bool) or not isinstance(value, int | str):
        raise refused(f"must be a number or text, is {describe(value)}")
    text = str(value)
    if not text or len(text) > 200 or not text.isprintable():
        raise refused(f"{shown(text)} cannot be written to a sysctl", allowed="one line of text")
    return text


Name = Annotated[str, Check(_name)]
PortName = Annotated[str, Check(port_name)]
PortNumber = Annotated[int, Between(1, 65535)]
PortReference = Annotated[int | str, Read(read_port_reference, int | str)]
Address = Annotated[IPAddress, Read(read_address, str)]
Interface = Annotated[IPInterface, Read(_interface, str)]
Network = Annotated[IPNetwork, Check(_usable), Read(_network, str)]
Destination = Annotated[IPNetwork, Read(_network, str), Read(_destination)]
Duration = Annotated[int, Read(partial(_duration, 60), str)]
LongDuration = Annotated[int, Read(partial(_duration, 600), str)]
DeviceName = Annotated[str, Check(_device_name)]
Labels = Mapping[
    Annotated[str, Check(_checked(label_key_fault))],
    Annotated[str, Check(_checked(label_value_fault))],
]
TaintText = Annotated[str, Check(_taint)]
SysctlValue = Annotated[str, Read(_sysctl_value, int | str)]
Sysctls = Mapping[Annotated[str, Check(_sysctl_name)], SysctlValue]
