"""The lab of a Python test: for what YAML should not say, beside the scenarios and with the same report.

Owns: ``Lab``, which a test talks to.
Must not: judge; a probe is held against its expectation as one of a scenario file is.
"""

import inspect
import os
import shlex
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from functools import partial
from ipaddress import ip_address
from typing import TYPE_CHECKING, Final, TypeVar

import pytest

from proxylab.engines.names import ENGINES
from proxylab.pytest_plugin.interactive_options import has_pcap
from proxylab.pytest_plugin.outcome import explanation, in_its_own_words, leave_pcap, record, warn, why_skipped
from proxylab.pytest_plugin.showing import show_of_test
from proxylab.pytest_plugin.tested_case import case_of
from proxylab.scenario.model import Position, Scenario
from proxylab.verdict.journey import journey
from proxylab.verdict.model import Judgement

if TYPE_CHECKING:
    from proxylab.addresses import IPAddress
    from proxylab.client.bundles import BundleStore
    from proxylab.client.open_lab import OpenLab
    from proxylab.evidence.evidence import Lookup
    from proxylab.evidence.segments import Spoken
    from proxylab.plan.dialogue import Turn
    from proxylab.protocol.messages import Executed
    from proxylab.scenario.model import Probe
    from proxylab.verdict.model import ProbeVerdict, StepVerdict

_Verdict = TypeVar("_Verdict", "ProbeVerdict", "StepVerdict")

__all__ = ["Lab"]

_NOTHING_IN_PARTICULAR: Final[Mapping[str, object]] = {"outcome": "delivered", "source": "preserved"}


class Lab:
    """A lab that stands while a test runs.

    Example:
        >>> def test_echo(lab):  # with @pytest.mark.lab("echo.lab.yaml")
        ...     lab.probe("client", to={"service": "echo", "via": "clusterIP"}, expect={"outcome": "rejected"})
    """

    def __init__(
        self,
        stands: "OpenLab",
        text: str,
        *,
        engine: str,
        item: pytest.Item,
        bundle_store: "BundleStore | None",
        case: str,
    ) -> None:
        self._stands = stands
        self._text = text
        self._engine = engine
        self._item = item
        self._bundle_store = bundle_store
        self._case = case
        self._probes = 0
        self._kept = 0
        self._written: list[tuple[object, Position]] = []

    @property
    def scenario(self) -> Scenario:
        """What it was built for."""
        return self._stands.scenario

    def probe(
        self,
        sender: str | Mapping[str, object],
        *,
        to: Mapping[str, object],
        expect: Mapping[str, object],
        send: Mapping[str, object] | None = None,
        name: str = "",
        check: bool = True,
    ) -> "ProbeVerdict":
        """Send a probe, written as in YAML, and judge what was seen.

        Args:
            sender: ``from``: a name, or a mapping.
            to: the target.
            expect: what must hold.
            send: what is sent.
            name: what the report calls it; by default, the test's name.
            check: fail the test, in the words of a scenario's probe, unless all of it holds. Without, the verdict is
                for the test to look at.
        """
        probe = self._probe(_caller(), {"from": sender, "to": to, "expect": expect, "send": send}, name)
        with in_its_own_words(""):
            self._stands.add(probe)
            verdict = self._kept_evidence(self._stands.probe(probe))
        record(self._item, self._stands, self._engine, verdict)
        if has_pcap(self._item.config):
            leave_pcap(self._item, self._stands, verdict, self._probes)
        show_of_test(self._item, self.scenario, self._engine, verdict)
        if check and verdict.overall is Judgement.SKIP:
            pytest.skip(why_skipped(verdict))
        if check and verdict.overall is not Judgement.PASS:
            pytest.fail(explanation(verdict), pytrace=False)
        return verdict

    def trace(
        self, sender: str | Mapping[str, object], *, to: Mapping[str, object], send: Mapping[str, object] | None = None
    ) -> tuple[str, ...]:
        """Send one packet and tell its way through every rule, as ``proxylab trace`` does."""
        probe = self._probe(_caller(), {"from": sender, "to": to, "expect": _NOTHING_IN_PARTICULAR, "send": send})
        with in_its_own_words(""):
            self._stands.add(probe)
            return tuple(journey(*self._stands.trace(probe)))

    def dialogue(
        self,
        sender: str | Mapping[str, object],
        server: str,
        turns: "Sequence[Turn]",
        *,
        to: Mapping[str, object],
        unproven: Collection[int] = (),
    ) -> "Spoken":
        """Hold a dialogue of crafted TCP segments, and tell what every tap saw of it.

        Both kernels are kept out of what comes as it should; a segment that reaches the client from where it has not
        dialled finds the client's kernel, which resets it.

        Args:
            sender: ``from``, the client: a pod, an outside host or a node.
            server: the pod or outside host that answers. It must be the one that the proxy chooses.
            turns: ``client(…)`` and ``server(…)`` of ``proxylab.plan.dialogue``, in order.
            to: whom the client dials.
            unproven: turns, counted from 1, after which nobody can vouch for what was not seen, since the lab lets no
                answer back to who said them. A test must conclude nothing from silence there.

        Raises:
            pytest.fail.Exception: a turn could not be said, or a tap cannot vouch for what it has not seen.
        """
        send = {"protocol": "TCP", "as": "packet"}
        probe = self._probe(_caller(), {"from": sender, "to": to, "expect": _NOTHING_IN_PARTICULAR, "send": send})
        with in_its_own_words(""):
            spoken = self._stands.converse(probe, server, turns)
        spoken = replace(spoken, unproven=tuple(turn for turn in spoken.unproven if turn not in unproven))
        if spoken.doubts:
            pytest.fail(f"{probe.position}: dialogue of {spoken.client} and {server}\n{spoken}", pytrace=False)
        return spoken

    def execute(self, netns_name: str, *argv: str) -> "Executed":
        """Run a command in a node, pod or outside host, and wait for its end."""
        with in_its_own_words(""):
            return self._stands.execute(netns_name, *argv)

    def resolve(self, netns_name: str, name: str) -> "tuple[IPAddress, ...]":
        """The addresses that a name has for a program in a pod or node, as getaddrinfo(3) finds them.

        Below the search domains of a pod first, where the name has less than five dots; of all families that the lab
        has. Empty where the name does not exist or has no address.

        Raises:
            pytest.fail.Exception: nobody answers, in the words of the socket; or the lab has no name server.
        """
        with in_its_own_words(""):
            lookups = self._stands.lookups.resolve(netns_name, name)
        failed = next((each for each in lookups if each.error), None)
        if failed is not None:
            pytest.fail(
                f"{netns_name} asked {failed.server} for {failed.name} {failed.kind}: {failed.error}", pytrace=False
            )
        return tuple(address for each in lookups for address in each.addresses)

    def query(
        self,
        netns_name: str,
        name: str,
        kind: str = "A",
        *,
        server: "IPAddress | str | None" = None,
        port: int | None = None,
        by_tcp: bool = False,
        size: int = 1232,
    ) -> "Lookup":
        """Ask one question about a name from a pod or node, as dig(1) does, and tell what was answered.

        An answer that does not fit into ``size`` octets is asked for again by TCP, and ``truncated`` says so.

        Args:
            netns_name: who asks.
            name: absolute; no search domain is tried.
            kind: of the records asked for.
            server: the address asked; without it, the Service kube-dns, through the proxy.
            port: the source port; the kernel's choice without it.
            by_tcp: ask by TCP at once.
            size: what the client takes by UDP; 0 for one without EDNS, which takes 512 octets.

        Raises:
            ScenarioError: the lab has no such place, or no name server.
        """
        asked = None if server is None else ip_address(str(server))
        with in_its_own_words(""):
            lookups = self._stands.lookups
            return lookups.query(netns_name, name.rstrip("."), kind, asked, port=port, by_tcp=by_tcp, size=size)

    def step(
        self,
        name: str = "",
        *,
        change: Mapping[str, object] | None = None,
        until: Mapping[str, object] | None = None,
        expect: Mapping[str, object] | None = None,
    ) -> None:
        """Make the next step of the scenario, and wait as it says; or one that is written here, as in YAML.

        Streams of the scenario begin with the first step and go on through all. Behind a step that is written here come
        no more of the file's own.

        Args:
            name: what the report calls it; by default, its number.
            change: what changes.
            until: what is waited for; without it, until every engine that runs has taken the change up.
            expect: what streams and connection tracking must show, for ``conclude``.
        """
        netns_name = Position(*_caller(), 1)
        said = {"change": change, "until": until, "expect": expect}
        written: dict[str, object] = {key: value for key, value in said.items() if value is not None}
        with in_its_own_words(""):
            if written or name:
                self._write({"name": name or f"step {self._stands.made + 1}", **written}, netns_name)
            self._stands.step()

    def _write(self, entry: Mapping[str, object], position: Position) -> None:
        """Put a step behind those that are made."""
        from proxylab.scenario.load import parse_with_steps  # noqa: PLC0415 - pydantic, for those who have scenarios

        if not self._written:
            self._kept = self._stands.made
        self._written.append((entry, position))
        whole = parse_with_steps(self._text, self.scenario.file, self._kept, self._written)
        self._stands.go_on_as(case_of(whole, self._stands.engine, self._case))

    def conclude(self, *, check: bool = True) -> "StepVerdict":
        """End the step that was made last: let its streams come to rest, and judge what they show.

        Args:
            check: as in ``probe``.

        Raises:
            pytest.fail.Exception: no step was made, or it does not hold.
        """
        if not self._stands.made:
            pytest.fail("no step was made: lab.step() comes before lab.conclude()", pytrace=False)
        with in_its_own_words(""):
            verdict = self._kept_evidence(self._stands.conclude(self.scenario.steps[self._stands.made - 1]))
        record(self._item, self._stands, self._engine, verdict)
        show_of_test(self._item, self.scenario, self._engine, verdict)
        if check and verdict.overall is Judgement.SKIP:
            pytest.skip(why_skipped(verdict))
        if check and verdict.overall is not Judgement.PASS:
            pytest.fail(explanation(verdict), pytrace=False)
        return verdict

    def rules(self) -> dict[str, str]:
        """The rules of every node as the kernel holds them: what iptables-save(8) or nft(8) prints."""
        with in_its_own_words(""):
            return self._stands.rules()

    def _probe(self, netns_name: tuple[str, int], written: Mapping[str, object], name: str = "") -> "Probe":
        """The probe of a call, with the same checks as if it stood in the file. Raises ``pytest.fail.Exception``."""
        from proxylab.scenario.load import parse_with_probes  # noqa: PLC0415 - pydantic, for those who have scenarios

        self._probes += 1
        file, line = netns_name
        words = name or self._item.name.partition("[")[0].removeprefix("test_").replace("_", " ")
        entry = {"name": words, **{key: value for key, value in written.items() if value is not None}}
        with in_its_own_words(""):
            whole = parse_with_probes(self._text, self.scenario.file, [entry], Position(file, line, 1))
        return case_of(whole, self._stands.engine, self._case).probes[0]

    def _kept_evidence(self, verdict: _Verdict) -> _Verdict:
        options = f" --lab-engine {self._engine}" if self._engine != ENGINES[0] else ""
        verdict = replace(verdict, again=f"pytest {shlex.quote(self._item.nodeid)}{options}")
        if self._bundle_store is None:
            return verdict
        name = f"{self._item.name} {self._probes}"
        evidence = partial(self._stands.bundle, verdict)
        return self._bundle_store.settle(verdict, self._engine, evidence, partial(warn, self._item), name)


def _caller() -> tuple[str, int]:
    """File and line of the test that called a method of ``Lab``: there its probe stands."""
    frame = inspect.currentframe()
    for _ in range(2):
        frame = frame.f_back if frame else None
    if frame is None:
        return "", 1
    return os.path.relpath(frame.f_code.co_filename), frame.f_lineno
