"""Make the change of one step under its streams, and say whether what was expected came true.

Owns: the order of a step: streams are where they were, the change, what follows from it, and rest.
Must not: need anything but python3 and its standard library, or make what it runs in.

Usage: python3 step.py CASE BEFORE CHANGE SETTLE. CASE is a JSON file, the others are scripts of sh: what earlier steps
have taken away, what changes, and what is done when the step has waited. The namespaces are those of `ip netns`.
Exits 0 if what was expected came true, 1 if not, and 2 if the streams could not be brought to where they were.
"""

import collections
import contextlib
import functools
import json
import selectors
import subprocess
import sys
import time

from listeners import Listeners
from memory import forget, remember
from netns import enter
from packets import end
from stream import EACH, Stream
from tables import judge_tables

TRIES, PATIENCE, SILENCE, ENOUGH = 20, 0.5, 1.2, 5
NUMBERS = {"UDP": 17, "TCP": 6}


class Step:
    """One run of a step."""

    def __init__(self, case):
        self.case, self.waiting = case, selectors.DefaultSelector()
        self.streams = [Stream(each, place) for place, each in enumerate(case["streams"])]
        kinds = {(each.version, each.case["protocol"]) for each in self.streams}
        self.doors = [self.door(*each) for each in sorted(kinds)]
        self.due = [0.0] * len(self.streams)
        self.first, self.behind = [], []

    def door(self, version, protocol):
        """Who listens, in one family and protocol."""
        there = [each for each in self.case["listeners"] if (each["version"], each["protocol"]) == (version, protocol)]
        case = {"version": version, "protocol": protocol, "listeners": there, "http": None}
        door = Listeners(case, self.waiting, self.got)
        door.listen()
        return door

    def got(self, _listener, line, peer, _asked):
        """Take down whom a pod saw."""
        place, number = divmod(int(line[40:48], 16), EACH)
        if place < len(self.streams) and number < len(self.streams[place].pulses):
            self.streams[place].pulses[number].peer = peer[0]

    def turn(self, seconds=0.002):
        """Answer and hear what there is."""
        for key, _ in self.waiting.select(seconds):
            with contextlib.suppress(KeyError, ValueError):  # one that an earlier event of this turn has closed
                key.data(key.fileobj)
        for stream in self.streams:
            stream.hear()
            stream.look()

    # Before the step.

    def bring(self, stream):
        """Let a stream go where it went when the step began. Whether it does."""
        where = stream.case["binds"]
        if not where:
            self.put_back(stream)
            return True
        for _ in range(TRIES):
            if self.asked(stream) == where:
                return True
            self.forget(stream)
            stream.close()
        # No rule leads there any more: it went on with what connection tracking knew of it.
        stream.tied, stream.port = functools.partial(self.tie, stream), stream.case["first port"]
        there = self.asked(stream) == where
        stream.tied = None
        return there

    def tie(self, stream, port):
        """Let every node lead a flow that begins now to where the stream went: it passes one as it is dialled."""
        self.forget(stream)
        source, dialled = (stream.case["address"], port), (stream.case["dialled"], stream.case["dialled port"])
        number, backend, peer = NUMBERS[stream.case["protocol"]], stream.case["bound to"], stream.case["seen as"]
        for node in self.case["nodes"] if backend else ():
            enter(node)
            to = source if peer[0] == source[0] or not peer[0] else (peer[0], peer[1] or port)
            remember({"protocol": number, "from": source, "to": dialled, "answers": backend, "answers to": to})

    def asked(self, stream):
        """Who answers one pulse."""
        stream.send()
        until = time.monotonic() + PATIENCE
        while stream.outstanding and time.monotonic() < until:
            self.turn()
        stream.give_up()
        return stream.pulses[-1].backend

    def forget(self, stream):
        """Let every node forget the stream's flow."""
        for node in self.case["nodes"]:
            enter(node)
            for port in stream.ports:
                source, dialled = (stream.case[each] for each in ("address", "dialled"))
                to = (dialled, stream.case["dialled port"])
                forget({"protocol": NUMBERS[stream.case["protocol"]], "from": (source, port), "to": to})

    def put_back(self, stream):
        """Let nodes remember the stream's flow as they did: no rule is asked about it."""
        for entry in stream.case["remembered"]:
            enter(entry["namespace"])
            forget(entry)
            remember(entry)

    def prepare(self):
        """Bring all streams to where they were. Whether they are there."""
        for entry in self.case["remembered"]:
            enter(entry["namespace"])
            with contextlib.suppress(FileExistsError):
                remember(entry)
        astray = [stream.case["name"] for stream in self.streams if not self.bring(stream)]
        if astray:
            print(f"{' and '.join(astray)} cannot be brought to where the step began", file=sys.stderr)
            return False
        return subprocess.run(["sh", sys.argv[2]], check=False).returncode == 0

    # The step.

    def play(self):
        """Make the change under the streams. Whether it could be made."""
        self.first = [len(stream.pulses) for stream in self.streams]
        for stream in self.streams:
            stream.resets.clear()
            stream.send()
        self.turn()
        began = time.monotonic()
        with subprocess.Popen(["sh", sys.argv[3]]) as change:
            while change.poll() is None or time.monotonic() < began + self.case["lasts"]:
                self.beat()
        for stream in self.streams:
            if stream.case["forgotten"]:
                self.forget(stream)
        self.turn()
        for door in self.doors:
            door.hang_up(self.case["gone"])
        settled = subprocess.run(["sh", sys.argv[4]], check=False)
        self.rest()
        return not change.returncode and not settled.returncode

    def rest(self):
        """Send what a step has behind its wait, and wait for what is missing."""
        self.behind = [len(stream.pulses) for stream in self.streams]
        while any(len(each.pulses) < mark + ENOUGH for each, mark in zip(self.streams, self.behind, strict=True)):
            self.beat()
        until = time.monotonic() + SILENCE
        while any(stream.outstanding for stream in self.streams) and time.monotonic() < until:
            self.turn()
        for stream in self.streams:
            stream.give_up()

    def beat(self):
        """Send what is due, and hear what there is."""
        now = time.monotonic()
        for place, stream in enumerate(self.streams):
            if now >= self.due[place]:
                self.due[place] = now + stream.case["every"] / 1000
                stream.send()
        self.turn()

    # What came of it.

    def wrong(self):
        """A line for each thing that is not as it was expected."""
        for stream, first, behind in zip(self.streams, self.first, self.behind, strict=True):
            print(told(stream, first, behind))
            for line in judge(stream, stream.pulses[first:], stream.pulses[behind:]):
                yield f"{stream.case['name']}: {line}"
        if self.case["conntrack"]:
            yield from judge_tables(self.case["conntrack"])


def told(stream, first, behind):
    """What became of a stream's pulses, in one line."""
    here = f"{stream.case['name']} from {end(stream.case['address'], max(stream.ports, default=0))}"
    pulses = stream.pulses[first:]
    rows = collections.Counter(f"answered by {each.backend}" if each.backend else each.fate for each in pulses)
    about = [f"{count} {words}" for words, count in rows.items()]
    about += [f"{len(stream.resets)} resets"] if stream.resets else []
    return f"{here}: {len(pulses)} pulses, the last {len(stream.pulses) - behind} behind the wait: {', '.join(about)}"


def judge(stream, pulses, behind):
    """What is wrong with one stream."""
    expect = stream.case["expect"]
    others = {each.backend or "nobody" for each in behind} - {expect["backend"]}
    if expect["backend"] and others:
        yield f"expected {expect['backend']} to answer behind the wait, seen {' and '.join(sorted(others))}"
    answered = list(dict.fromkeys(each.backend for each in pulses if each.backend))
    if expect["backends"] and answered != expect["backends"]:
        yield f"expected {', '.join(expect['backends'])} to answer, seen {', '.join(answered) or 'nobody'}"
    peers = {each.peer for each in behind if each.peer} - {expect["source"]}
    if expect["source"] and peers:
        yield f"expected from {expect['source']}, seen from {' and '.join(sorted(peers))}"
    counts = {what: sum(each.fate == what for each in pulses) for what in ("lost", "rejected")}
    for what, number in {**counts, "resets": len(stream.resets)}.items():
        if expect[what] and not within(number, *expect[what]):
            yield f"expected {what}: {bounds(*expect[what])}, seen {number}"
    longest = max((each.delay for each in pulses), default=0.0) * 1000
    if expect["delay"] is not None and longest > expect["delay"]:
        yield f"expected answers after {expect['delay']} ms at most, seen one after {longest:.0f} ms"


def within(number, least, most):
    """Whether a number is within bounds."""
    return number >= least and (most is None or number <= most)


def bounds(least, most):
    """Bounds in words."""
    if most is None:
        return f"{least} or more"
    return str(most) if least == most else f"{least} to {most}"


def main():
    """Play a step. Returns the exit code."""
    with open(sys.argv[1], encoding="utf-8") as file:
        case = json.load(file)
    try:
        step = Step(case)
        if not (step.prepare() and step.play()):
            return 2
        wrong = list(step.wrong())
    except OSError as error:
        print(f"the step could not be made: {error}", file=sys.stderr)
        return 2
    for line in wrong:
        print(line)
    print("The failure shows again." if wrong else "All is as it was expected: the failure does not show.")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
