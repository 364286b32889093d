"""What kube-proxy's log says of its progress, in the modes whose rules do not say it."""

import pytest

from proxylab.addresses import Family
from proxylab.engines.barrier import BARRIER
from proxylab.engines.kubeproxy.log import BalancerLog, SyncLog, is_error, last_error

FOUR, SIX = Family.IPV4, Family.IPV6
FRONTEND = {FOUR: "192.0.0.8:1", SIX: "[100::8]:1"}
BACKEND = {FOUR: "192.0.0.9:1", SIX: "[100::9]:1"}

NEW = f'"Adding new service" servicePortName="{BARRIER}:b000018"'
OTHER = '"LoadBalancerRR: Setting endpoints for service" servicePortName="default/echo" endpoints=[10.42.0.10:8080]'
OWN = f'"LoadBalancerRR: Setting endpoints for service" servicePortName="{BARRIER}:b000017" endpoints=[192.0.0.9:1]'


@pytest.mark.parametrize(("line", "number"), [(OWN, 17), (NEW, 0), (OTHER, 0)])
def test_the_log_of_mode_userspace_shows_what_the_balancer_has(line: str, number: int) -> None:
    log = BalancerLog()
    log.hear(line)
    assert log.reached(FOUR) == number
    log.restart()
    assert log.reached(FOUR) == 0


DISCARDS = 'E1127 04:24:57 proxysocket.go:98] "Couldn\'t find an endpoint for service" err="{}" service="{}"'


def test_the_log_of_mode_userspace_counts_what_the_process_discards() -> None:
    log = BalancerLog()
    for line in (
        OTHER,
        DISCARDS.format("missing endpoints", "default/dns:udp"),
        DISCARDS.format("missing service entry", "default/dns:udp"),
        DISCARDS.format("missing endpoints", "default/empty"),
    ):
        log.hear(line)
    assert log.discarded == {"default/dns:udp/UDP": 2, "default/empty/UDP": 1}
    log.restart()
    assert log.discarded == {}


def port(number: int, family: Family = FOUR) -> str:
    name = f"{BARRIER}:b{number:06}"
    return (
        f'servicechangetracker.go:202] "Adding new service port" portName="{name}" servicePort="{FRONTEND[family]}/TCP"'
    )


def endpoints(number: int, family: Family = FOUR) -> str:
    name = f"{BARRIER}:b{number:06}"
    return f'"Adding new service endpoints" portName="{name}" endpoints=["{BACKEND[family]}"]'


def endpoints_of_1_23(number: int, family: Family = FOUR) -> str:
    name = f"{BARRIER}:b{number:06}"
    return f'"Setting endpoints for service port name" portName="{name}" endpoints=[{BACKEND[family]}]'


def gone(number: int) -> str:
    return f'"Removing service endpoints" portName="{BARRIER}:b{number:06}"'


BEGINS = '"Syncing ipvs proxier rules" ipFamily="IPv4"'
ENDS = '"syncProxyRules complete" ipFamily="IPv4" elapsed="1.1s"'
FAILS = '"Failed to execute iptables-restore" err="exit status 2" ipFamily="IPv4"'
MOVES = '"Updated proxier node topology labels" ipFamily="IPv4" labels={"topology.kubernetes.io/zone":"b"}'


def heard(*lines: str) -> SyncLog:
    log = SyncLog()
    for line in lines:
        log.hear(line)
    return log


@pytest.mark.parametrize(
    ("lines", "number"),
    [
        ((port(2), endpoints(2), BEGINS), 0),
        ((port(2), endpoints(2), BEGINS, ENDS), 2),
        ((port(2), endpoints_of_1_23(2), BEGINS, ENDS), 2),
        ((port(2), BEGINS, ENDS), 0),
        ((port(2), BEGINS, ENDS, endpoints(2), BEGINS), 0),
        ((port(2), BEGINS, ENDS, endpoints(2), BEGINS, ENDS), 2),
        ((port(2), endpoints(2), BEGINS, FAILS, ENDS), 0),
        ((port(2), endpoints(2), BEGINS, FAILS, ENDS, BEGINS, ENDS), 2),
        ((port(2), endpoints(2), BEGINS, ENDS, port(3), gone(2), endpoints(3), BEGINS), 2),
        ((port(2), endpoints(2), BEGINS, port(3), endpoints(3), ENDS), 2),
    ],
    ids=[
        "begun",
        "over",
        "over in 1.23",
        "without endpoints",
        "endpoints in the next",
        "both over",
        "refused",
        "retried",
        "next begun",
        "next waits",
    ],
)
def test_a_number_counts_once_a_sync_with_port_and_endpoints_is_over(lines: tuple[str, ...], number: int) -> None:
    assert heard(*lines).reached(FOUR) == number


def of(family: Family, line: str) -> str:
    return line.replace("IPv4", family)


def test_a_family_is_over_while_the_other_one_syncs() -> None:
    lines = (port(2), endpoints(2), BEGINS, port(2, SIX), endpoints(2, SIX), of(SIX, BEGINS), ENDS)
    log = heard(*lines)
    assert (log.reached(FOUR), log.reached(SIX)) == (2, 0)
    log = heard(*lines, FAILS.partition(" ipFamily")[0], of(SIX, ENDS))
    assert (log.reached(FOUR), log.reached(SIX)) == (2, 0)
    log = heard(*lines, of(SIX, FAILS), of(SIX, ENDS))
    assert (log.reached(FOUR), log.reached(SIX)) == (2, 0)
    log = heard(*lines, of(SIX, ENDS))
    assert (log.reached(FOUR), log.reached(SIX)) == (2, 2)


def test_none_is_over_while_any_syncs_where_the_log_does_not_say_which() -> None:
    """As before contextual logging."""
    begins, ends = BEGINS.partition(" ipFamily")[0], '"syncProxyRules complete" elapsed="1.1s"'
    lines = (port(2), endpoints_of_1_23(2), begins, port(2, SIX), endpoints_of_1_23(2, SIX), begins, ends)
    log = heard(*lines)
    assert (log.reached(FOUR), log.reached(SIX)) == (0, 0)
    log = heard(*lines, ends)
    assert (log.reached(FOUR), log.reached(SIX)) == (2, 2)


def test_a_new_process_has_done_nothing() -> None:
    log = heard(port(2), endpoints(2), BEGINS, ENDS)
    log.restart()
    assert log.reached(FOUR) == 0


def test_a_move_to_another_zone_counts_once_a_sync_that_began_after_it_is_over() -> None:
    assert heard(BEGINS, MOVES, ENDS).moves == 0
    assert heard(BEGINS, MOVES, ENDS, BEGINS, ENDS).moves == 1
    assert heard(MOVES, BEGINS, ENDS, BEGINS, ENDS).moves == 1


def test_a_zone_is_taken_up_once_the_syncs_of_all_families_that_began_with_it_are_over() -> None:
    """Counts alone mistake the sync with the zone of the start for the one with a later zone."""
    none = MOVES.replace('"topology.kubernetes.io/zone":"b"', '"kubernetes.io/os":"linux"')
    assert heard(MOVES, BEGINS, none, ENDS).took_up("b")
    log = heard(MOVES, BEGINS, none, ENDS, BEGINS, MOVES, ENDS)
    assert log.moves == 2
    assert not log.took_up("b")
    assert log.took_up("")
    synced = (none, BEGINS, ENDS, MOVES, BEGINS, ENDS)
    assert heard(*synced).took_up("b")
    six = [line.replace("IPv4", "IPv6") for line in synced]
    assert not heard(*synced, *six[:3]).took_up("b")
    assert heard(*synced, *six).took_up("b")
    of_1_23 = '"Updated proxier node labels" labels=map[kubernetes.io/os:linux topology.kubernetes.io/zone:b]'
    assert heard(of_1_23, BEGINS.partition(" ipFamily")[0], ENDS.partition(" ipFamily")[0]).took_up("b")


@pytest.mark.parametrize(
    ("log", "error"),
    [
        ('I1128 04:48:11 2 a.go:1] "Syncing"', ""),
        (
            (
                'E1128 04:48:11.5 2 p.go:1874] "nftables sync failed" err=<\n'
                "\tnft: netlink_linearize.c:799: netlink_gen_expr: Assertion `dreg < ctx->reg_low' failed.\n"
                ' > ipFamily="IPv6"\nI1128 04:48:11.6 2 p.go:1211] "Sync failed" ipFamily="IPv6"'
            ),
            "nft: netlink_linearize.c:799: netlink_gen_expr: Assertion `dreg < ctx->reg_low' failed.",
        ),
        (
            (
                'E1128 04:48:11.5 2 p.go:1] "Failed to list existing sets" err="no such file"\n'
                'E1128 04:48:11.6 2 p.go:2] "Failed to execute iptables-restore" err="exit status 2: \\"x\\" is wrong"'
            ),
            'exit status 2: "x" is wrong',
        ),
        ('F1128 04:48:11.7 2 server.go:9] "Run failed" err="no kernel support"', "no kernel support"),
        (
            (
                'E1128 04:48:11.5 2 p.go:1] "Failed to list sets" err="no such file"\n'
                "E1128 04:48:11.6 2 reflector.go:9] cannot list Services"
            ),
            "no such file",
        ),
    ],
)
def test_the_last_error_is_told_by_its_first_line(log: str, error: str) -> None:
    assert last_error(log) == error
    assert [line for line in log.splitlines() if is_error(line)] == [
        line for line in log.splitlines() if line[0] in "EF"
    ]
