"""The way from this machine to the real control plane of a lab: a socket that the lab serves, and a kubeconfig."""

import json
import socket
from typing import Any, Final

from proxylab.client.connection import Connection, ControlConnection
from proxylab.errors import InternalError
from proxylab.protocol.standing_labs import Ended, Greet, Kubeconfig, Lines
from proxylab.timing import Deadline

_ANSWER_SECONDS: Final = 10.0
_BACKLOG: Final = 128


def open_api(connection: Connection, name: str) -> None:
    """Hand the lab a socket that listens on a free loopback port of this machine, on which it serves its API.

    The socket is of this process's network, but belongs to the lab process from then on and ends with it.
    """
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as listening:
        listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # also of the connections that it accepts
        listening.bind(("127.0.0.1", 0))
        listening.listen(_BACKLOG)
        _ask(connection, name, listening.fileno())


def kubeconfig_of(connection: ControlConnection) -> dict[str, Any]:
    """A kubeconfig of a standing lab, whose context has the lab's name.

    Raises:
        ScenarioError: the lab has no real control plane.
    """
    return _ask(connection, connection.request(Greet(), Deadline.after(_ANSWER_SECONDS)).name)


def _ask(connection: Connection, name: str, *descriptors: int) -> dict[str, Any]:
    deadline = Deadline.after(_ANSWER_SECONDS)
    connection.begin_feed(Kubeconfig(name), deadline, descriptors)
    match connection.next_answer(deadline), connection.next_answer(deadline):
        case Lines((text,)), Ended():
            document: dict[str, Any] = json.loads(text)
            return document
        case other:
            raise InternalError(f"a lab must answer with a kubeconfig, not {other}")
