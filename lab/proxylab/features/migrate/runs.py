"""Switches all nodes of a lab to another engine while connections are open, and judges what becomes of them."""

from contextlib import closing

from proxylab.client.session import Session
from proxylab.engines.engine_names import KUBE_PROXY, mode_of
from proxylab.engines.protocol import EngineChoice
from proxylab.features.audit.findings import Audit
from proxylab.features.migrate.open_connections import (
    Switch,
    SwitchedConnection,
    connections_of,
    rounds,
    switched,
    with_switch,
)
from proxylab.scenario.model import Scenario


def switch(session: Session, scenario: Scenario, before: Audit, new: str) -> Switch:
    """Open connections that the audit of the old proxy found served, and let every node run the new one.

    A lab keeps a hundred open; for further ones the nodes of another lab change.

    Raises:
        LabError: the lab is gone.
        EngineError: a proxy did not start.
        CapabilityError: the new one is not in the cache, where a step looks for it.
    """
    found = connections_of(before.answers)
    if not found:
        return Switch(untried="no frontend of a Service delivers over TCP or UDP")
    told: list[SwitchedConnection] = []
    for opened in rounds(found):
        changing = with_switch(scenario, opened, new)
        with closing(session.open(changing)) as lab:
            first, second = (lab.conclude(step) for step in changing.steps)
        told += switched(opened, first, second).connections
    return Switch(connections=tuple(told), left_out=len(found) - len(told))


def words_of(old: EngineChoice, new: EngineChoice) -> str:
    """The engine to which a step changes nodes that run ``old``, in a scenario's words: the very binary of ``new``."""
    mode = mode_of(new.name)
    if new.upstream is None:
        return new.name
    same = old.upstream is not None and old.upstream.binary == new.upstream.binary
    return mode if same else f"{KUBE_PROXY}@{new.upstream.version}/{mode}"
