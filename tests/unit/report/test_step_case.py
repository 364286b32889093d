"""What the script of a step does: where streams were, what the proxy made nodes forget, and which rules it loads."""

from dataclasses import replace
from ipaddress import ip_address

import pytest
from made_steps import CLIENT, OLD, ZERO, entry, entry_remains, judged, lost, record, step, torn_connection
from scenario_cases import front, probe, two_nodes

from lab.assembly import assemble
from lab.ip import Protocol, Transport
from lab.plan.model import Listener
from lab.plan.reach import Absences, Links
from lab.report.reproduction import reconstruction
from lab.report.reproduction.step import step_case
from lab.report.reproduction.wire import rerouted
from lab.verdict.evidence import TableEntry
from lab.verdict.model import StepVerdict

DRAWN = assemble(two_nodes(probe("p", "sender", front()))).plan
SERVES = replace(DRAWN.namespaces[0], listeners=(Listener("old", Protocol.UDP, 5353, OLD),))
PLAN = replace(DRAWN, namespaces=(SERVES, *DRAWN.namespaces[1:]))
NFT = "table ip kube-proxy {{\n\tset {name} {{ }}\n}}\n"


def case_of(verdict: StepVerdict) -> dict[str, object]:
    return step_case(verdict, PLAN, Absences(), Absences())


def test_a_stream_is_brought_to_where_it_was_and_goes_on_as_it_is_remembered() -> None:
    (stream,) = case_of(entry_remains())["streams"]
    assert (stream["binds"], stream["forgotten"], stream["port"]) == ("old", False, 12345)
    assert stream["bound to"] == (str(OLD), 5353)
    assert stream["remembered"][0]["answers"] == (str(OLD), 5353)
    assert stream["expect"]["backend"] == "new"
    assert stream["expect"]["lost"] == (0, 0)


def test_what_no_node_remembers_any_more_the_proxy_has_deleted() -> None:
    (stream,) = case_of(torn_connection())["streams"]
    assert stream["binds"] == "old"
    assert stream["forgotten"], "old answered first, and the table has an entry of new"
    assert stream["remembered"] == []


def test_a_stream_that_nobody_answered_is_bound_to_nobody_and_is_remembered_as_it_was() -> None:
    tracked = entry_remains().evidence.streams[0].tracked
    (stream,) = case_of(judged(step(lost=ZERO), replace(record(lost(9, 0.2)), tracked=tracked)))["streams"]
    assert (stream["binds"], stream["forgotten"]) == ("", False)
    assert [each["answers"] for each in stream["remembered"]] == [(str(OLD), 5353)]


def test_entries_of_strangers_were_there_before_and_the_streams_own_are_not_put_back() -> None:
    stranger = TableEntry(
        "node-a", Transport.UDP, CLIENT, 40000, ip_address("10.96.0.54"), 53, OLD, 5353, CLIENT, 40000
    )
    asked = replace(stranger, protocol=Transport.ICMP)
    verdict = judged(step(conntrack=True), record(lost(9, 0.2)), entries=(entry(OLD), stranger, stranger, asked))
    (kept,) = case_of(verdict)["remembered"]
    assert (kept["from"], kept["protocol"]) == ((str(CLIENT), 40000), 17)


def script(before: str, after: str, *absences: Absences) -> str:
    rules = {"node-a": (before, after), "node-b": (before, before)}
    return reconstruction(entry_remains(), PLAN, rules, "legacy", absences or (Absences(), Absences()))


def test_rules_of_nftables_are_taken_away_before_others_are_loaded_in_their_place() -> None:
    text = script(NFT.format(name="one"), NFT.format(name="two"))
    change = text.partition("cat > /run/case/change.sh")[2]
    assert "inside node-a nft -f - << 'END'\ndelete table ip kube-proxy\ntable ip kube-proxy {\n\tset two" in change
    assert "inside node-b nft" not in change, "its rules are the same"
    gone = script(NFT.format(name="one"), "").partition("cat > /run/case/change.sh")[2]
    assert "inside node-a nft -f - << 'END'\ndelete table ip kube-proxy\nEND" in gone


@pytest.mark.parametrize("back", [False, True])
def test_a_step_cuts_and_mends_links_at_once_and_silences_pods_behind_its_wait(back: bool) -> None:
    there, away = Absences(), Absences(frozenset({"echo-2"}), Links(frozenset({("echo-1", "eth0")})))
    text = script("", "", *((away, there) if back else (there, away)))
    before, change, settle = (
        text.partition(f"cat > /run/case/{name}.sh")[2].partition("\nSCRIPT\n")[0]
        for name in ("before", "change", "settle")
    )
    cut, mute = "inside echo-1 ip link set dev eth0 down", "inside echo-2 ip -4 rule add from all blackhole priority 1"
    if back:
        assert cut in before
        assert mute in before
        assert "inside echo-1 ip link set dev eth0 up\ninside echo-1 ip address replace 10." in change
        assert "inside echo-1 ip route replace " in change
        assert mute.replace(" add ", " del ") in change
        assert "inside echo" not in settle
    else:
        assert "inside echo" not in before
        assert cut in change
        assert mute in settle


def test_routes_that_balancers_have_made_since_follow_the_rules() -> None:
    router = PLAN.namespace("router")
    old, new = router.routes[0], replace(router.routes[0], table=77)
    assert list(rerouted(PLAN, PLAN)) == []
    after = PLAN.with_routes("router", (new,))
    assert [(name, command.split()[2], command.endswith("table 77")) for name, command in rerouted(PLAN, after)] == [
        ("router", "replace", True)
    ]
    assert [command.split()[2] for _, command in rerouted(after, PLAN)] == ["del"]
    assert old in after.namespace("router").routes
