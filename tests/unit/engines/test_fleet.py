"""What a step may do to engines, by engines that only say what was done to them."""

import asyncio
from ipaddress import ip_address

import pytest
from msgspec.structs import replace

from proxylab.cluster.objects import Node
from proxylab.engines.engine_names import mode_of
from proxylab.engines.fleet import Fleet
from proxylab.engines.protocol import EngineChoice
from proxylab.errors import InternalError
from proxylab.scenario.node_engines import EngineAction, EngineChange
from proxylab.timing import Deadline

Journal = list[tuple[str, str]]

NFTABLES = EngineChange(engine="nftables")


def chosen(changes: dict[str, EngineChange]) -> dict[str, EngineChoice]:
    return {node: EngineChoice(f"embedded/{change.mode}") for node, change in changes.items() if change.mode}


class Recorder:
    """An engine that is a process of its own."""

    def __init__(self, node: str, journal: Journal, mode: str) -> None:
        self._node, self._journal, self._mode = node, journal, mode

    async def start(self) -> None:
        self._journal.append((self._node, f"start {self._mode}"))

    async def wait_synced(self, revision: int, deadline: Deadline) -> None:
        self._journal.append((self._node, f"synced {revision}"))

    async def dump(self) -> str:
        return ""

    def logs(self) -> tuple[str, ...]:
        return ()

    async def stop(self) -> None:
        self._journal.append((self._node, "stop"))

    async def pause(self) -> None:
        self._journal.append((self._node, "pause"))

    async def resume(self) -> None:
        self._journal.append((self._node, "resume"))

    async def kill(self) -> None:
        self._journal.append((self._node, "kill"))

    async def note(self, *, flush: bool) -> None:
        self._journal.append((self._node, "note a flush" if flush else "note"))


def recorded(*actions: dict[str, EngineChange]) -> Journal:
    journal: Journal = []

    async def flush(node: str, mode: str) -> None:
        journal.append((node, f"flush {mode}"))

    def make(node: str, choice: EngineChoice) -> Recorder:
        return Recorder(node, journal, mode_of(choice.name))

    async def main() -> None:
        fleet = Fleet(dict.fromkeys("ab", EngineChoice()), make, flush)
        await fleet.start(fleet.engines)
        journal.clear()
        for each in actions:
            await fleet.take_down(each)
            await fleet.bring_up(each, chosen(each))
        await fleet.wait_synced(7, Deadline.after(1))
        await fleet.stop()

    asyncio.run(main())
    return journal


@pytest.mark.parametrize(
    ("action", "done"),
    [
        (EngineChange(action=EngineAction.KILL), ["kill"]),
        (EngineChange(action=EngineAction.STOP), ["stop"]),
        (EngineChange(action=EngineAction.RESTART), ["stop", "start iptables", "synced 7", "stop"]),
        (EngineChange(action=EngineAction.FLUSH), ["note a flush", "flush iptables", "synced 7", "stop"]),
        (EngineChange(action=EngineAction.PAUSE), ["pause", "resume", "stop"]),
        (NFTABLES, ["stop", "start nftables", "synced 7", "stop"]),
    ],
)
def test_what_is_done_to_one_engine_leaves_the_other_alone(action: EngineChange, done: list[str]) -> None:
    journal = recorded({"a": action})
    assert [what for node, what in journal if node == "a"] == done
    assert [what for node, what in journal if node == "b"] == ["synced 7", "stop"]


def test_an_engine_that_was_killed_can_be_started() -> None:
    journal = recorded({"a": EngineChange(action=EngineAction.KILL)}, {"a": EngineChange(action=EngineAction.START)})
    assert [what for node, what in journal if node == "a"] == ["kill", "start iptables", "synced 7", "stop"]


@pytest.mark.parametrize(
    ("then", "done"),
    [
        ("resume", ["pause", "resume", "synced 7", "stop"]),
        ("kill", ["pause", "kill"]),
        ("stop", ["pause", "resume", "stop"]),
        ("restart", ["pause", "resume", "stop", "start iptables", "synced 7", "stop"]),
    ],
)
def test_nothing_waits_for_a_paused_engine_and_it_ends_like_any_other(then: str, done: list[str]) -> None:
    pause, after = EngineChange(action=EngineAction.PAUSE), EngineChange(action=EngineAction(then))
    assert [what for node, what in recorded({"a": pause}, {"a": after}) if node == "a"] == done


def test_an_engine_keeps_the_mode_that_a_step_gave_it() -> None:
    journal = recorded(
        {"a": NFTABLES},
        {"a": EngineChange(action=EngineAction.FLUSH)},
        {"a": EngineChange(action=EngineAction.RESTART)},
    )
    assert [what for node, what in journal if node == "a"][2:5] == ["note a flush", "flush nftables", "stop"]
    assert ("a", "start iptables") not in journal


def test_no_engine_is_started_twice() -> None:
    with pytest.raises(InternalError, match="runs already"):
        recorded({"a": EngineChange(action=EngineAction.START)})


def test_those_that_run_note_how_far_they_have_come() -> None:
    journal: Journal = []

    async def flush(node: str, mode: str) -> None:
        journal.append((node, f"flush {mode}"))

    def make(node: str, choice: EngineChoice) -> Recorder:
        return Recorder(node, journal, mode_of(choice.name))

    async def main() -> None:
        fleet = Fleet(dict.fromkeys("ab", EngineChoice()), make, flush)
        await fleet.start(fleet.engines)
        await fleet.take_down({"a": EngineChange(action=EngineAction.STOP)})
        journal.clear()
        await fleet.note()
        await fleet.take_down({"a": EngineChange(action=EngineAction.FLUSH)})
        assert journal == [("b", "note"), ("a", "flush iptables")]

    asyncio.run(main())


def test_an_engine_that_cannot_be_made_leaves_the_mode_of_the_one_before() -> None:
    journal: Journal = []

    def make(node: str, choice: EngineChoice) -> Recorder:
        if mode_of(choice.name) == "nftables":
            raise ValueError(choice.name)
        return Recorder(node, journal, mode_of(choice.name))

    async def main() -> str:
        fleet = Fleet({"a": EngineChoice()}, make, lambda node, mode: asyncio.sleep(0))
        await fleet.start(fleet.engines)
        await fleet.take_down({"a": NFTABLES})
        with pytest.raises(ValueError, match="nftables"):
            await fleet.bring_up({"a": NFTABLES}, chosen({"a": NFTABLES}))
        return fleet.mode("a")

    assert asyncio.run(main()) == "iptables"


def test_an_engine_that_fails_to_stop_does_not_keep_another_from_closing() -> None:
    journal: Journal = []

    class Slow(Recorder):
        async def stop(self) -> None:
            for _ in range(10):  # long enough for the failure of the other to come
                await asyncio.sleep(0)
            await super().stop()

    class Broken(Recorder):
        async def stop(self) -> None:
            raise InternalError("a bug of its loop")

    def make(node: str, choice: EngineChoice) -> Recorder:
        return (Broken if node == "a" else Slow)(node, journal, mode_of(choice.name))

    async def main() -> None:
        fleet = Fleet(dict.fromkeys("ab", EngineChoice()), make, lambda node, mode: asyncio.sleep(0))
        await fleet.start(fleet.engines)
        with pytest.raises(InternalError, match="a bug of its loop"):
            await fleet.stop()

    asyncio.run(main())
    assert ("b", "stop") in journal


class Bound(Recorder):
    """One that ends when its Node goes or gets other addresses."""

    ends_with_node = True
    has_given_up = False

    async def wait_ended(self, deadline: Deadline) -> None:
        self._journal.append((self._node, "ends"))


def followed(*nodes: Node | None, given_up: bool = False, paused: bool = False) -> list[str]:
    """What is done to the engine of node a, whose Node object is one of these after the other."""
    journal: Journal = []
    now: dict[str, Node] = {}

    def make(node: str, choice: EngineChoice) -> Bound:
        return Bound(node, journal, mode_of(choice.name))

    async def flush(node: str, mode: str) -> None:
        raise AssertionError

    async def main() -> None:
        fleet = Fleet({"a": EngineChoice()}, make, flush, nodes=lambda: now)
        for at, node in enumerate(nodes):
            now.clear()
            now.update({} if node is None else {"a": node})
            if at == 0:
                await fleet.start(["a"])
                journal.clear()
                if paused:
                    await fleet.take_down({"a": EngineChange(action=EngineAction.PAUSE)})
            else:
                Bound.has_given_up = given_up
                await fleet.follow_nodes()
        if paused:
            await fleet.bring_up({"a": EngineChange(action=EngineAction.RESUME)})
        await fleet.wait_synced(7, Deadline.after(1))

    asyncio.run(main())
    return [what for _, what in journal]


HERE = Node(name="a", addresses=(ip_address("172.18.0.2"),))
MOVED = replace(HERE, addresses=(ip_address("172.18.0.77"),))
LABELLED = replace(HERE, labels={"zone": "b"})
AGAIN = ["ends", "stop", "start iptables"]


@pytest.mark.parametrize(
    ("nodes", "done"),
    [
        ((HERE, LABELLED), ["synced 7"]),
        ((HERE, MOVED), [*AGAIN, "synced 7"]),
        ((HERE, MOVED, HERE), [*AGAIN, *AGAIN, "synced 7"]),
        ((HERE, None), AGAIN),
        ((HERE, None, HERE), [*AGAIN, "synced 7"]),
        ((HERE, None, MOVED), [*AGAIN, "synced 7"]),
    ],
)
def test_an_engine_that_ends_with_its_node_is_started_again_and_waits_for_one(
    nodes: tuple[Node | None, ...], done: list[str]
) -> None:
    assert followed(*nodes) == done


def test_an_engine_that_went_on_without_its_node_ends_when_there_is_one() -> None:
    assert followed(HERE, None, HERE, given_up=True) == [*AGAIN, *AGAIN, "synced 7"]


def test_a_paused_engine_ends_when_it_goes_on() -> None:
    assert followed(HERE, MOVED, paused=True) == ["pause", "resume", *AGAIN, "synced 7"]


class Retrying(Recorder):
    """One that retries loads."""

    async def forgive(self) -> None:
        self._journal.append((self._node, "forgives"))


@pytest.mark.parametrize(("paused", "done"), [(False, ["forgives"]), (True, ["pause"])])
def test_an_engine_that_follows_retries_when_loads_work_again(paused: bool, done: list[str]) -> None:
    journal: Journal = []

    async def flush(node: str, mode: str) -> None:
        raise AssertionError

    async def main() -> None:
        fleet = Fleet({"a": EngineChoice()}, lambda node, _: Retrying(node, journal, ""), flush)
        await fleet.start(["a"])
        journal.clear()
        if paused:
            await fleet.take_down({"a": EngineChange(action=EngineAction.PAUSE)})
        await fleet.forgive("a")

    asyncio.run(main())
    assert [what for _, what in journal] == done
