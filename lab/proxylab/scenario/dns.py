"""``spec.dns``: the name server behind kube-dns."""

from enum import StrEnum
from typing import Annotated, Any

from proxylab.scenario.keys import Check, Declared, Key, Read, refused


class NameServer(StrEnum):
    """The programs that serve names."""

    EMBEDDED = "embedded"
    COREDNS = "coredns"


class Dns(Declared, frozen=True):
    """The name server of the lab."""

    server: Annotated[
        NameServer | None,
        Key(
            "The program that serves names: the lab's own, or a real CoreDNS on the lab's API server. By default the "
            "one of the option --name-server, which is the lab's own unless the user names another.",
            ["coredns"],
        ),
    ] = None
    corefile: Annotated[
        str,
        Key(
            "The configuration of CoreDNS. The lab adds its API server to the plugin kubernetes, unless the text has "
            "an endpoint. The lab has no upstream name server.",
            [".:53 {\n    kubernetes cluster.local\n    cache 30\n}\n"],
        ),
    ] = ""


def _of_switch(value: Any) -> Any:
    """``true`` is a name server with all defaults, ``false`` none."""
    return ({} if value else None) if isinstance(value, bool) else value


def _of_coredns(dns: Dns | None) -> Dns | None:
    """Refuse a Corefile for another server than CoreDNS."""
    if dns is not None and dns.corefile and dns.server is not NameServer.COREDNS:
        raise refused("has a corefile, which only CoreDNS reads", allowed="write server: coredns beside it")
    return dns


AnyDns = Annotated[Dns | None, Read(_of_switch, bool | Dns), Check(_of_coredns)]
