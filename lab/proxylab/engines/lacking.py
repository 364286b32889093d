"""What a mode lacks of what a scenario asks for: the reason to skip that part, in place of a verdict on the proxy.

Owns ``lacking`` for a probe, ``lacking_of_step`` for the expectations of a step, and ``refuse`` for what a whole
scenario needs. Each asks the mode (``Lacks``) that the packets meet first. A proxy accepts settings that it does not
read in its mode: they are no reason to skip, and ``ignored_settings`` lists them for a warning.
"""

from collections.abc import Collection, Iterator, Mapping
from typing import Final

from proxylab.addresses import IPAddress, Transport
from proxylab.cluster.configuration import KEYS_OF_MODES, TERMINATING_MODES, ProxyConfiguration
from proxylab.engines.engine_names import mode_of, read_engine
from proxylab.engines.modes import MODES
from proxylab.errors import CapabilityError
from proxylab.plan.assembly import Assembly
from proxylab.plan.resolved import ResolvedProbe
from proxylab.scenario.model import Scenario
from proxylab.scenario.probes import Probe, ServiceTarget, Stream
from proxylab.scenario.steps import Step
from proxylab.scenario.words import Manner

_ANSWERS: Final = {
    "coredns": "questions about names alone; write via: dnsName",
    "nginx": "HTTP requests alone; write via: ingress",
}
_DEFAULT_CONFIGURATION: Final = ProxyConfiguration()


def refuse(engine: str, scenario: Scenario) -> None:
    """Refuse a scenario whose steps or nodes need what the engine lacks in its mode, or in one that a step gives it.

    Raises:
        CapabilityError: naming what it lacks.
    """
    changes = any(change.mode for step in scenario.steps for change in step.change.engines.values())
    for mode in (mode_of(engine), *sorted(scenario.named_modes)):
        for lack in MODES[mode].lacks.of_scenario(scenario, read_engine(engine).is_upstream, changes):
            raise CapabilityError(f"a mode of the proxy {lack}", f"choose another engine than one in mode {mode}")


def refuse_dialogue(modes: Collection[str]) -> None:
    """Refuse a dialogue of crafted segments where a proxy may end connections. Raises ``CapabilityError``."""
    for mode in TERMINATING_MODES.intersection(modes):
        lack = "a mode of the proxy that forwards packets: crafted segments open no connection to a program"
        raise CapabilityError(lack, f"choose another engine than one in mode {mode}")


def refuse_server(mode: str, scenario: Scenario, server: IPAddress) -> None:
    """Refuse a query to a server's cluster IP that the proxy does not serve. Raises ``CapabilityError``."""
    for lack in MODES[mode].lacks.of_server(scenario, server):
        raise CapabilityError(f"a mode of the proxy {lack}", f"choose another engine than one in mode {mode}")


def lacking(mode: str, assembly: Assembly, probe: Probe) -> str:
    """Why a proxy of that mode cannot show what the probe expects, as a clause; empty where it can.

    ``mode`` is the one that the user chooses. The scenario may give nodes another, and steps may change it.
    """
    resolved = assembly.resolved(probe)
    if reason := _no_answer(assembly, resolved):
        return reason
    met = _mode_on_the_way(mode, assembly, probe, assembly.scenario.steps_before(probe))
    return next(iter(MODES[met].lacks.of_probe(assembly, probe, resolved)), "")


def _mode_on_the_way(mode: str, assembly: Assembly, sent: Probe | Stream, made: int) -> str:
    """The mode of the proxy that a probe or stream meets first: its sender's node's, or the one at which it enters."""
    modes, name = assembly.scenario.modes_after(mode, made), sent.source.name
    home = next((pod.node for pod in assembly.plan.pods if pod.name == name), name)
    entry = sent.target.node if home not in modes and isinstance(sent.target, ServiceTarget) else home
    if entry is not None and entry in modes:
        return modes[entry]
    return next((each for each in modes.values() if each in TERMINATING_MODES), mode)


def _no_answer(assembly: Assembly, resolved: ResolvedProbe) -> str:
    """Why a real program in a pod does not answer the probe's packets, as a clause; empty where none gets them."""
    if resolved.question is not None or resolved.request is not None or resolved.protocol is Transport.ICMP:
        return ""
    dialled = {(each.address, each.port) for each in resolved.endpoints}
    by_packet = (resolved.protocol, resolved.manner) == (Transport.TCP, Manner.PACKET)
    for placed in assembly.plan.pods:
        if placed.commands and by_packet:
            continue  # the pod's kernel answers a SYN, whatever runs there
        for each in assembly.plan.namespace(placed.namespace).listeners:
            if each.program and each.name == placed.name and dialled & {(one, each.port) for one in placed.addresses}:
                if placed.commands:
                    return f"{each.program} in pod {each.name} is not the lab's own program; write as: packet, over TCP"
                return f"{each.program} in pod {each.name} answers {_ANSWERS[each.program]}"
    return ""


def lacking_of_step(mode: str, assembly: Assembly, step: Step) -> Mapping[str, str]:
    """What a proxy of that mode cannot show of a step's expectations: a clause for each, by its name in verdicts.

    The name of a stream alone stands for all that is expected of the stream.
    """
    return dict(_lacks_of_step(mode, assembly, step))


def _lacks_of_step(mode: str, assembly: Assembly, step: Step) -> Iterator[tuple[str, str]]:
    made = assembly.scenario.steps_before(step)
    for stream, resolved in zip(assembly.scenario.streams, assembly.streams, strict=True):
        # A step begins with a packet just before its change.
        met = (_mode_on_the_way(mode, assembly, stream, number) for number in (made, made - 1))
        for each in dict.fromkeys(met):
            yield from MODES[each].lacks.of_stream(assembly, step, stream, resolved)
    modes = assembly.scenario.modes_after(mode, made)
    for each in dict.fromkeys(modes.values()):
        nodes = [node for node, present in modes.items() if present == each]
        yield from MODES[each].lacks.of_step(assembly, step, nodes)


def ignored_settings(mode: str, configuration: ProxyConfiguration | None) -> Iterator[str]:
    """The keys with another value than the default that no proxy of the mode reads."""
    for name, key in KEYS_OF_MODES.items() if configuration is not None else ():
        if name not in MODES[mode].reads and getattr(configuration, name) != getattr(_DEFAULT_CONFIGURATION, name):
            yield key
