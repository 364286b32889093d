"""What a node does with a packet that meets its rules: lead it to a Service's port, refuse it, or leave it alone."""

from collections.abc import Sequence
from typing import Final

from msgspec import Struct

from proxylab.addresses import Family, IPAddress, Protocol, Transport
from proxylab.oracle.moment import HOST_PORT_FIRST, HOST_PORT_ORDER, Moment, ServedPort
from proxylab.oracle.setting import ProxySetting
from proxylab.plan.host_ports import HostPort
from proxylab.scenario.words import Frontend, Outcome

_HOST_PORT: Final = "host-port-leads-to-pod"
_OUTCOMES: Final = {"rejected": Outcome.REJECTED, "dropped": Outcome.DROPPED, "untranslated": None}


class Meeting(Struct, frozen=True, kw_only=True):
    """What the rules of a node make of a packet.

    Attributes:
        served: the Service's port that the node leads it to.
        host_port: the host port by which the node's network plugin leads it to a pod. With ``served`` the proxy has
            marked it for masquerading before, if it would masquerade a packet to that port.
        outcome: what the node does to it at once; with neither of these the packet goes on unchanged.
        rows: why, by the ids of rows.
        undecided: why no row decides; empty if the rows do.
    """

    served: ServedPort | None = None
    host_port: HostPort | None = None
    outcome: Outcome | None = None
    rows: tuple[str, ...] = ()
    undecided: str = ""


class Opening(Struct, frozen=True):
    """Whether a node opens its ports at an address, and the row that says so; without a row it is not decided."""

    is_open: bool
    row: str


def meet(moment: Moment, node: str, destination: IPAddress, port: int, protocol: Transport) -> Meeting:
    """What the rules of ``node`` make of a packet for that address and port."""
    served = protocol.served
    if served is None:
        if destination in moment.cluster_ips:
            return _difference(moment.setting_of(node), "echo-request")
        return _unassigned(moment, node, destination)
    if undecided := moment.undecided_at(node, destination):
        return Meeting(undecided=undecided)
    if (led := _led_before_frontends(moment, node, destination, port, served)) is not None:
        return led
    claimed = moment.at_address(destination, port, served)
    allowed = moment.setting_of(node).allows_external_ips
    found = [each for each in claimed if allowed or each.via is not Frontend.EXTERNAL_IP]
    if found:
        return _only(found, (f"frontend-{found[0].via}",))
    if moment.has(node, destination) and (own := _at_own_address(moment, node, destination, port, served)) is not None:
        return own
    return Meeting(rows=("external-ips-off",)) if claimed else _at_no_frontend(moment, node, destination)


def _at_no_frontend(moment: Moment, node: str, destination: IPAddress) -> Meeting:
    if destination in moment.cluster_ips:
        return _difference(moment.setting_of(node), "unused-port")
    return _unassigned(moment, node, destination)


def _at_own_address(moment: Moment, node: str, destination: IPAddress, port: int, protocol: Protocol) -> Meeting | None:
    """What the node does with a port of its own that is a node port, or a host port; ``None`` if it is neither."""
    behind = moment.at_node_port(Family.of(destination), port, protocol)
    if behind:
        return _at_node_port(moment, node, destination, behind)
    led = moment.host_port(node, destination, port, protocol)
    return None if led is None else Meeting(host_port=led, rows=(_HOST_PORT,))


def _led_before_frontends(
    moment: Moment, node: str, destination: IPAddress, port: int, protocol: Protocol
) -> Meeting | None:
    """The host port that comes before what the proxy serves at that port; ``None`` where there is none."""
    row, led = moment.setting_of(node).row(HOST_PORT_ORDER), moment.host_port(node, destination, port, protocol)
    if led is None or row is None or row.then != HOST_PORT_FIRST or moment.at_address(destination, port, protocol):
        return None
    behind = moment.at_node_port(Family.of(destination), port, protocol)
    return Meeting(host_port=led, served=behind[0] if len(behind) == 1 else None, rows=(_HOST_PORT, row.id))


def _unassigned(moment: Moment, node: str, destination: IPAddress) -> Meeting:
    """What the node does with any packet for an address of a ServiceCIDR that no Service and no machine has."""
    if any(destination in network for network in moment.service_networks) and not moment.owners(destination):
        return _difference(moment.setting_of(node), "unassigned-address")
    return Meeting()


def _only(found: Sequence[ServedPort], why: tuple[str, ...]) -> Meeting:
    services = {(each.service.namespace, each.service.name) for each in found}
    if len(services) > 1:
        names = " and ".join(f"{namespace}/{name}" for namespace, name in sorted(services))
        return Meeting(undecided=f"the Services {names} claim the same address and port")
    return Meeting(served=found[0], rows=why)


def _difference(setting: ProxySetting, subject: str) -> Meeting:
    """What the row of this proxy's mode says."""
    row = setting.row(subject)
    if row is None:
        return Meeting(undecided=f"no document says what mode {setting.mode} does with an {subject.replace('-', ' ')}")
    return Meeting(outcome=_OUTCOMES[row.then], rows=(row.id,))


def _at_node_port(moment: Moment, node: str, destination: IPAddress, behind: Sequence[ServedPort]) -> Meeting:
    """Whether the node serves node ports at that address of its own."""
    if destination.is_loopback:
        return _at_localhost(moment.setting_of(node), destination, behind)
    opening = node_port_address(moment, node, destination)
    if not opening.row:
        mode = moment.setting_of(node).mode
        return Meeting(undecided=f"no row says at which addresses mode {mode} serves node ports")
    return _only(behind, ("frontend-nodePort", opening.row)) if opening.is_open else Meeting(rows=(opening.row,))


def node_port_address(moment: Moment, node: str, address: IPAddress) -> Opening:
    """Whether node ports are open at an address of the node, by ``nodePortAddresses``."""
    setting = moment.setting_of(node)
    configuration = setting.configuration
    networks = [each for each in configuration.node_port_addresses if each.version == address.version]
    is_primary = address == moment.primary_address(node, Family.of(address))
    if networks or configuration.node_port_primary:
        is_open = (configuration.node_port_primary and is_primary) or any(address in network for network in networks)
        return Opening(is_open, "node-port-addresses-within" if is_open else "node-port-addresses-outside")
    if configuration.node_port_addresses:
        return Opening(True, "node-port-addresses-other-family")
    default = setting.row("node-port-addresses-default")
    if default is None:
        return Opening(False, "")
    return Opening(default.then == "all" or is_primary, default.id)


def _at_localhost(setting: ProxySetting, destination: IPAddress, behind: Sequence[ServedPort]) -> Meeting:
    """Whether the node serves node ports at a loopback address."""
    configuration = setting.configuration
    if configuration.node_port_localhost:
        return Meeting(undecided="a process serves node ports on localhost, and no row states what it does (KEP-6032)")
    row = setting.row("node-port-on-localhost")
    if row is None:
        return Meeting(undecided=f"no row says whether mode {setting.mode} serves node ports on localhost")
    if destination.version == 6:
        return Meeting(rows=("node-port-on-localhost-ipv6",))
    networks = [each for each in configuration.node_port_addresses if each.version == 4]
    covered = any(destination in each for each in networks) if networks else not configuration.node_port_primary
    if row.then == "served" and configuration.localhost_node_ports and covered:
        return _only(behind, ("frontend-nodePort", row.id))
    why = row.id if row.then != "served" else "node-port-off-localhost" if covered else "node-port-addresses-outside"
    return Meeting(rows=(why,))
