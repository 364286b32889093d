"""Values with a syntax of their own: names, labels, ports, addresses, networks, sysctls.

Owns: their annotated types, to be used in the shapes.
Must not: know where they are used.
"""

import re
from collections.abc import Callable
from ipaddress import (
    AddressValueError,
    IPv4Address,
    IPv4Network,
    IPv6Address,
    NetmaskValueError,
    ip_address,
    ip_network,
)
from typing import Annotated

from pydantic import AfterValidator, BeforeValidator

from lab.scenario.problems import describe, shown
from lab.scenario.schema.base import Between, not_yet, refused

__all__ = [
    "Address",
    "Labels",
    "Name",
    "Network4",
    "PortName",
    "PortNumber",
    "PortReference",
    "Sysctls",
    "is_address",
    "is_dns1035_label",
    "is_label",
    "is_port_name",
    "is_subdomain",
    "label_key_fault",
    "label_value_fault",
]

_DNS_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_PORT_NAME = re.compile(r"(?=.*[a-z])(?!.*--)[a-z0-9]([-a-z0-9]{0,13}[a-z0-9])?")
_LABEL_NAME = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")
_LABEL_RULE = "has 63 letters, digits, '-', '_' and '.' at most, a letter or digit at both ends"
_SYSCTL = re.compile(r"net(\.[A-Za-z0-9_/-]+)+")


def is_label(text: str) -> bool:
    """Whether this is a DNS label as Kubernetes wants it (RFC 1123, lower case, 63 characters at most)."""
    return _DNS_LABEL.fullmatch(text) is not None


def is_dns1035_label(text: str) -> bool:
    """Whether this is a DNS label that begins with a letter (RFC 1035), as the name of a Service must be."""
    return is_label(text) and not text[0].isdigit()


def is_subdomain(text: str) -> bool:
    """Whether this is a lower-case DNS subdomain: labels with dots between them, 253 characters at most."""
    return len(text) <= 253 and all(map(is_label, text.split(".")))


def is_port_name(text: str) -> bool:
    """Whether this is a service name of RFC 6335, in lower case: 15 characters at most, one letter at least."""
    return _PORT_NAME.fullmatch(text) is not None


def is_address(text: str) -> bool:
    """Whether this is an IP address, of whichever family."""
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


def _port_name(text: str) -> str:
    if not is_port_name(text):
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


def _port_reference(value: object) -> object:
    """A port's number or name: the name's syntax is left to the look-up, which can say what was meant."""
    if isinstance(value, bool) or not isinstance(value, int | str):
        raise refused(f"must be a port's number or name, is {describe(value)}")
    if isinstance(value, int) and not 1 <= value <= 65535:
        raise refused(f"{value} is out of range", allowed="allowed: 1 to 65535")
    return value


def _address(value: object) -> IPv4Address:
    if not isinstance(value, str):
        raise refused(f"must be an IP address, is {describe(value)}")
    try:
        address = ip_address(value)
    except ValueError:
        raise refused(f"{shown(value)} is not an IP address") from None
    if isinstance(address, IPv6Address):
        raise not_yet("IPv6")
    return address


def _network(value: object) -> IPv4Network:
    if not isinstance(value, str):
        raise refused(f"must be a network such as 10.0.0.0/16, is {describe(value)}")
    try:
        network = ip_network(value, strict=False)
    except (AddressValueError, NetmaskValueError, ValueError):
        raise refused(f"{shown(value)} is not a network", allowed="write it as 10.0.0.0/16") from None
    if not isinstance(network, IPv4Network):
        raise not_yet("IPv6")
    if value != str(network):
        raise refused(f"{shown(value)} is not written as a network", allowed=f"write it as {network}")
    if network.is_loopback or network.is_multicast or network.is_link_local or network.is_unspecified:
        raise refused(f"{network} is reserved", allowed="use private or documentation addresses (RFC 1918, RFC 5737)")
    return network


def _sysctl_name(text: str) -> str:
    if not _SYSCTL.fullmatch(text):
        raise refused(
            f"{shown(text)} is not a sysctl of a network namespace",
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


Name = Annotated[str, AfterValidator(_name)]
PortName = Annotated[str, AfterValidator(_port_name)]
PortNumber = Annotated[int, Between(1, 65535)]
PortReference = Annotated[int | str, BeforeValidator(_port_reference)]
Address = Annotated[IPv4Address, BeforeValidator(_address)]
Network4 = Annotated[IPv4Network, BeforeValidator(_network)]
Labels = dict[
    Annotated[str, AfterValidator(_checked(label_key_fault))],
    Annotated[str, AfterValidator(_checked(label_value_fault))],
]
Sysctls = dict[Annotated[str, AfterValidator(_sysctl_name)], Annotated[str, BeforeValidator(_sysctl_value)]]
