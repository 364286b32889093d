"""``Lab``: the lab of a Python test, for what YAML cannot express.

A probe of a Python test is judged and reported like one of a scenario file.
"""

import inspect
import os
import shlex
from collections.abc import Collection, Mapping, Sequence
from functools import partial
from ipaddress import ip_address
from typing import Final, TypeVar

import pytest
from msgspec.structs import replace

from proxylab.addresses import IPAddress
from proxylab.client.bundles import BundleStore
from proxylab.client.open_lab import OpenLab
from proxylab.engines.engine_names import ENGINES, mode_of
from proxylab.engines.lacking import refuse_server
from proxylab.evidence.lookups import Lookup
from proxylab.evidence.segments import DialogueRecord
from proxylab.plan.dialogue import Turn
from proxylab.protocol.messages import Executed
from proxylab.pytest_plugin.options import flag
from proxylab.pytest_plugin.outcome import explanation, in_its_own_words, leave_pcap, record, warn, why_skipped
from proxylab.pytest_plugin.page_entries import heading_of_test, show
from proxylab.pytest_plugin.tested_case import case_of
from proxylab.report.trace_text import journey
from proxylab.scenario.model import Scenario
from proxylab.scenario.probes import Probe
from proxylab.scenario.words import HOST, Position
from proxylab.verdict.model import Judgement, ProbeVerdict, StepVerdict, on_kernel

_Verdict = TypeVar("_Verdict", bound=ProbeVerdict | StepVerdict)

_ANY_EXPECTATION: Final[Mapping[str, object]] = {"outcome": "delivered", "source": "preserved"}


class Lab:
    """A lab that runs during a test.

    Example:
        >>> def test_echo(lab):  # with @pytest.mark.lab("echo.lab.yaml")
        ...     lab.probe("client", to={"service": "echo", "via": "clusterIP"}, expect={"outcome": "rejected"})
    """

    def __init__(
        self,
        open_lab: OpenLab,
        text: str,
        *,
        engine: str,
        item: pytest.Item,
        bundle_store: BundleStore | None,
        case: str,
    ) -> None:
        self._lab = open_lab
        self._text = text
        self._engine = engine
        self._item = item
        self._bundle_store = bundle_store
        self._case = case
        self._probes = 0
        self._kept = 0
        self._written: list[tuple[object, Position]] = []

    @property
    def mode(self) -> str:
        """The mode in which the proxies began."""
        return mode_of(self._engine)

    @property
    def _where(self) -> str:
        return on_kernel(self._engine, self._lab.engine.kernel)

    @property
    def scenario(self) -> Scenario:
        """The lab's scenario."""
        return self._lab.scenario

    def probe(
        self,
        sender: str | Mapping[str, object],
        *,
        to: Mapping[str, object],
        expect: Mapping[str, object],
        send: Mapping[str, object] | None = None,
        name: str = "",
        check: bool = True,
    ) -> ProbeVerdict:
        """Send a probe, written as in YAML, and judge it.

        Args:
            sender: ``from``: a name, or a mapping.
            to: the target.
            expect: the expectations.
            send: what to send.
            name: the name in the report; by default the test's name.
            check: fail the test unless every expectation holds. Without it, the test inspects the verdict.
        """
        probe = self._probe(_caller(), {"from": sender, "to": to, "expect": expect, "send": send}, name)
        with in_its_own_words(""):
            self._lab.add(probe)
            verdict = self._kept_evidence(self._lab.probe(probe))
        if flag(self._item.config, "pcap"):
            leave_pcap(self._item, self._lab, verdict, self._probes)
        return self._reported(verdict, check=check)

    def trace(
        self, sender: str | Mapping[str, object], *, to: Mapping[str, object], send: Mapping[str, object] | None = None
    ) -> tuple[str, ...]:
        """Send one packet and return its path through every rule, as ``proxylab trace`` prints it."""
        probe = self._probe(_caller(), {"from": sender, "to": to, "expect": _ANY_EXPECTATION, "send": send})
        with in_its_own_words(""):
            self._lab.add(probe)
            return tuple(journey(*self._lab.trace(probe)))

    def dialogue(
        self,
        sender: str | Mapping[str, object],
        server: str,
        turns: Sequence[Turn],
        *,
        to: Mapping[str, object],
        unproven: Collection[int] = (),
    ) -> DialogueRecord:
        """Exchange crafted TCP segments, and return what every tap saw.

        The lab keeps the expected segments from both kernels. A segment that reaches the client from another address
        than it dialled reaches the client's kernel, which resets it.

        Args:
            sender: ``from``, the client: a pod, an outside host or a node.
            server: the pod or outside host that answers. It must be the endpoint that the proxy chooses.
            turns: ``client(…)`` and ``server(…)`` of ``proxylab.plan.dialogue``, in order.
            to: the target that the client dials.
            unproven: turns, counted from 1, after which the absence of a frame proves nothing, since the lab lets no
                answer back to their sender. A test must conclude nothing from silence there.

        Raises:
            pytest.fail.Exception: a segment could not be sent, or a tap may have missed frames.
        """
        send = {"protocol": "TCP", "as": "packet"}
        probe = self._probe(_caller(), {"from": sender, "to": to, "expect": _ANY_EXPECTATION, "send": send})
        with in_its_own_words(""):
            spoken = self._lab.converse(probe, server, turns)
        spoken = replace(spoken, unproven=tuple(turn for turn in spoken.unproven if turn not in unproven))
        if spoken.doubts:
            pytest.fail(f"{probe.position}: dialogue of {spoken.client} and {server}\n{spoken}", pytrace=False)
        return spoken

    def execute(self, netns_name: str, *argv: str) -> Executed:
        """Run a command in a node, pod or outside host, and wait until it ends."""
        with in_its_own_words(""):
            return self._lab.execute(netns_name, *argv)

    def resolve(self, netns_name: str, name: str) -> tuple[IPAddress, ...]:
        """The addresses that getaddrinfo(3) would find for a name in a pod or node, of all families of the lab.

        A name with fewer than five dots is tried below the pod's search domains first. The result is empty if the name
        does not exist or has no address. Raises ``pytest.fail.Exception``.
        """
        with in_its_own_words(""):
            lookups = self._lab.lookups.resolve(netns_name, name)
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
        server: IPAddress | str | None = None,
        port: int | None = None,
        by_tcp: bool = False,
        size: int = 1232,
    ) -> Lookup:
        """Send one DNS query from a pod or node, as dig(1) does, and return the answer.

        If the answer does not fit into ``size`` octets, the query is repeated over TCP, and ``truncated`` is set.

        Args:
            netns_name: the pod or node that sends the query.
            name: an absolute name; no search domain is tried.
            kind: the record type.
            server: the server's address; by default the Service kube-dns, through the proxy.
            port: the source port; by default the kernel chooses.
            by_tcp: use TCP at once.
            size: the UDP payload size of the client; 0 means no EDNS, which allows 512 octets.

        Raises:
            ScenarioError: the lab has no such pod or node, or no name server.
            pytest.skip.Exception: the proxy's mode does not serve the server's family.
        """
        address = None if server is None else ip_address(str(server))
        with in_its_own_words(""):
            if address is not None:
                refuse_server(self.mode, self.scenario, address)
            lookups = self._lab.lookups
            return lookups.query(netns_name, name.rstrip("."), kind, address, port=port, by_tcp=by_tcp, size=size)

    def step(
        self,
        name: str = "",
        *,
        change: Mapping[str, object] | None = None,
        until: Mapping[str, object] | None = None,
        expect: Mapping[str, object] | None = None,
    ) -> None:
        """Perform the next step of the scenario, or one written here as in YAML, and wait for its condition.

        Streams of the scenario start with the first step and run through all steps. After a step written here, the
        file's remaining steps do not run.

        Args:
            name: the name in the report; by default, the step's number.
            change: the change.
            until: the condition to wait for; by default, every running engine has synced the change.
            expect: the expectations on streams and connection tracking, for ``conclude``.
        """
        position = Position(*_caller(), 1)
        parts = {"change": change, "until": until, "expect": expect}
        written: dict[str, object] = {key: value for key, value in parts.items() if value is not None}
        with in_its_own_words(""):
            if written or name:
                self._write({"name": name or f"step {self._lab.made + 1}", **written}, position)
            self._lab.step()

    def _write(self, entry: Mapping[str, object], position: Position) -> None:
        """Append a step to those already performed."""
        from proxylab.scenario.load import parse_with_steps  # noqa: PLC0415 - most tests write no steps or probes

        if not self._written:
            self._kept = self._lab.made
        self._written.append((entry, position))
        whole = parse_with_steps(self._text, self.scenario.file, self._kept, self._written)
        self._lab.replace_scenario(case_of(whole, self._lab.engine, self._case))

    def conclude(self, *, check: bool = True) -> StepVerdict:
        """End the last step: wait until its streams are quiet, and judge it. Raises ``pytest.fail.Exception``.

        Args:
            check: as in ``probe``.
        """
        if not self._lab.made:
            pytest.fail("there is no step to conclude: call lab.step() before lab.conclude()", pytrace=False)
        with in_its_own_words(""):
            verdict = self._kept_evidence(self._lab.conclude(self.scenario.steps[self._lab.made - 1]))
        return self._reported(verdict, check=check)

    def rules(self) -> dict[str, str]:
        """The kernel's rules on every node, as iptables-save(8) or nft(8) prints them."""
        with in_its_own_words(""):
            return self._lab.rules()

    def _probe(self, caller: tuple[str, int], written: Mapping[str, object], name: str = "") -> Probe:
        """The probe of a call, checked like a probe of a file. Raises ``pytest.fail.Exception``."""
        from proxylab.scenario.load import parse_with_probes  # noqa: PLC0415 - most tests write no steps or probes

        self._probes += 1
        file, line = caller
        words = name or self._item.name.partition("[")[0].removeprefix("test_").replace("_", " ")
        entry = {"name": words, **{key: value for key, value in written.items() if value is not None}}
        with in_its_own_words(""):
            whole = parse_with_probes(self._text, self.scenario.file, [entry], Position(file, line, 1))
        return case_of(whole, self._lab.engine, self._case).probes[0]

    def _reported(self, verdict: _Verdict, *, check: bool) -> _Verdict:
        """The verdict, which the test's report has from now on; with ``check`` the test ends unless it is a pass."""
        record(self._item, self._lab.scenario, self._lab.engine, verdict, self._lab.built)
        heading = heading_of_test(self._item)
        about = replace(
            heading,
            engine=self._where,
            binary=str(self._lab.engine.binary or ""),
            scenario=self.scenario.name,
            tags=self.scenario.tags,
        )
        show(self._item, about, verdict)
        if check and verdict.overall is Judgement.SKIP:
            pytest.skip(why_skipped(verdict))
        if check and verdict.overall is not Judgement.PASS:
            pytest.fail(explanation(verdict), pytrace=False)
        return verdict

    def _kept_evidence(self, verdict: _Verdict) -> _Verdict:
        kernel = self._lab.engine.kernel
        options = f" --lab-engine {self._engine}" if self._engine != ENGINES[0] else ""
        options += f" --lab-kernel {shlex.quote(kernel)}" if kernel != HOST else ""
        verdict = replace(verdict, rerun_command=f"pytest {shlex.quote(self._item.nodeid)}{options}")
        if self._bundle_store is None:
            return verdict
        name = f"{self._item.name} {self._probes}"
        evidence = partial(self._lab.bundle, verdict)
        return self._bundle_store.settle(verdict, self._where, evidence, partial(warn, self._item), name)


def _caller() -> tuple[str, int]:
    """File and line where a test called a method of ``Lab``: the position of its probe."""
    frame = inspect.currentframe()
    for _ in range(2):
        frame = frame.f_back if frame else None
    if frame is None:
        return "", 1
    return os.path.relpath(frame.f_code.co_filename), frame.f_lineno
