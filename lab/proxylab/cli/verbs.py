"""The verbs that there are: proxylab's own, and those of other installed packages.

A verb's module is imported only when the verb is called: ``check`` answers in a fraction of a second because it never
loads what ``run`` needs. A verb with several modules of its own is a package in ``proxylab.features``, and is named
here by a string: nothing below the features may import one.

Another package adds a verb by an entry point of the group ``proxylab.features``. Finding them opens a file of every
installed package, so only an unknown verb, ``--help`` and completion look for them. Such a verb never replaces one of
proxylab's own, and one that does not work is told with the name of its package.
"""

import difflib
import importlib
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import click

from proxylab.cli.standard_streams import is_of_output
from proxylab.errors import InternalError, LabError

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

GROUP: Final = "proxylab.features"
_ADDED: Final = "proxylab.cli.verbs.added"
"""The key of the called verb in the context of the command line, if another package has added it."""

_HYPHEN: Final = "\N{NON-BREAKING HYPHEN}"
"""Replaces a hyphen while the formatter breaks lines."""


class Verb(NamedTuple):
    """A verb of proxylab: the module whose ``command`` it is, and what it does in a line."""

    module: str
    summary: str


VERBS: Final = {
    "apply": Verb("proxylab.cli.apply", "Change a standing lab to match its edited scenario."),
    "audit": Verb("proxylab.features.audit.verb", "Ask every Service from every kind of sender; write no probe."),
    "bench": Verb("proxylab.features.bench.verb", "Measure how a proxy grows with Services; compare runs."),
    "capture": Verb("proxylab.cli.capture", "Capture frames as text, as pcapng or in Wireshark."),
    "check": Verb("proxylab.cli.check", "Report every mistake in scenario files; run nothing."),
    "completion": Verb("proxylab.cli.completion", "Print the completion script for bash, fish or zsh."),
    "conformance": Verb("proxylab.features.conformance.verb", "Run the catalogue on a proxy; print a table by theme."),
    "describe": Verb("proxylab.cli.describe", "Describe a node, pod, Service or outside host of a lab."),
    "diagnose": Verb("proxylab.features.diagnose.verb", "Check a Service stage by stage; report where it breaks."),
    "diff": Verb("proxylab.cli.diff", "Run the same probes on several engines and compare."),
    "doctor": Verb("proxylab.cli.doctor", "Check that this machine can run labs; print the fixes."),
    "down": Verb("proxylab.cli.down", "Stop and remove standing labs."),
    "engines": Verb("proxylab.cli.engines", "List engines, and the sources of kube-proxy binaries."),
    "exec": Verb("proxylab.cli.exec", "Run a command in a node, pod or host."),
    "expected": Verb("proxylab.features.expected.verb", "Print what must become of probes, and why; run nothing."),
    "gate": Verb("proxylab.features.gate.verb", "Run a kubernetes checkout against the release before it."),
    "get": Verb("proxylab.cli.get", "List nodes, pods, Services or endpoints of a lab."),
    "graph": Verb("proxylab.features.graph.verb", "Draw a scenario's network as text, Mermaid or SVG."),
    "import": Verb("proxylab.features.import_.verb", "Write a scenario from kubectl's output of a live cluster."),
    "init": Verb("proxylab.cli.init", "Write an example scenario, or set up a repository."),
    "judge": Verb("proxylab.cli.judge", "Judge recorded probes and steps again."),
    "kernels": Verb("proxylab.cli.kernels", "List the kernels that labs can run on; build one."),
    "kubeconfig": Verb("proxylab.cli.kubeconfig", "Print a kubeconfig of a lab with a real control plane."),
    "kubectl": Verb("proxylab.cli.kubectl", "Run kubectl in a lab with a real control plane."),
    "logs": Verb("proxylab.cli.logs", "Print the log of a node's engine."),
    "merge": Verb("proxylab.features.merge.verb", "Merge the reports of several runs, or of shards."),
    "migrate": Verb(
        "proxylab.features.migrate.verb", "Certify what changes for Services when another proxy takes over."
    ),
    "mutate": Verb("proxylab.features.mutate.verb", "Change each rule, and report which probe notices."),
    "plan": Verb("proxylab.cli.plan", "Show a scenario's nodes, pods, addresses and devices."),
    "probe": Verb("proxylab.cli.probe", "Send one probe and explain the result."),
    "ps": Verb("proxylab.cli.ps", "List the standing labs."),
    "rules": Verb("proxylab.cli.rules", "Print the rules of a node."),
    "run": Verb("proxylab.cli.run", "Run scenarios and judge every probe."),
    "schema": Verb("proxylab.cli.schema", "Print the format of scenarios as JSON Schema."),
    "semantics": Verb("proxylab.features.semantics.verb", "List Kubernetes' promises for Services, with their probes."),
    "shell": Verb("proxylab.cli.shell", "Open a shell in a node, pod or host."),
    "trace": Verb("proxylab.cli.trace", "Trace one packet, rule by rule."),
    "up": Verb("proxylab.cli.up", "Start the lab of a scenario and leave it running."),
    "watch": Verb("proxylab.cli.watch", "Judge a scenario again at each save, in a lab that stands."),
}


class AddedVerbError(InternalError):
    """A verb of another package does not work. The authors of that package are at fault.

    Attributes:
        verb: the verb and its package.
        what: what does not work.
    """

    def __init__(self, verb: str, what: str) -> None:
        super().__init__(f"{verb} {what}")
        self.verb = verb
        self.what = what


class AddedVerb:
    """A verb that another installed package adds."""

    def __init__(self, entry: "EntryPoint") -> None:
        self.name = entry.name
        self.package = f"{entry.dist.name} {entry.dist.version}" if entry.dist else entry.module
        self._entry = entry

    def __str__(self) -> str:
        return f"the verb {self.name!r} of {self.package}"

    def load(self) -> click.Command:
        """Import its command. Raises ``AddedVerbError``."""
        try:
            command = self._entry.load()
        except (Exception, SystemExit) as error:  # a module of a stranger may raise anything
            raise AddedVerbError(str(self), f"cannot be imported: {type(error).__name__}: {error}") from error
        if not isinstance(command, click.Command):
            raise AddedVerbError(str(self), f"is no click.Command: {self._entry.value} is {command!r}")
        return command

    def summary(self) -> str:
        """What the verb does, in a line; or why it does not work."""
        if self.name in VERBS:
            return f"ignored: proxylab has a verb of this name ({self.package})"
        try:
            return f"{self.load().get_short_help_str(limit=60)} ({self.package})"
        except AddedVerbError as error:
            return f"broken: it {error.what}; please tell the authors of {self.package}"


def added_verbs() -> dict[str, list[AddedVerb]]:
    """The verbs of other packages by name. Several packages may add the same."""
    from importlib.metadata import entry_points  # noqa: PLC0415 - 30 ms, which few commands need

    found: dict[str, list[AddedVerb]] = {}
    for verb in sorted(map(AddedVerb, entry_points(group=GROUP)), key=lambda each: (each.name, each.package)):
        found.setdefault(verb.name, []).append(verb)
    return found


class _Formatter(click.HelpFormatter):
    """Breaks lines of help at blanks only: the name of an option or engine stays whole, so that users can copy it."""

    def write_text(self, text: str) -> None:
        super().write_text(_whole(text))

    def write_dl(self, rows: Iterable[tuple[str, str]], col_max: int = 30, col_spacing: int = 2) -> None:
        super().write_dl([(term, _whole(meaning)) for term, meaning in rows], col_max, col_spacing)

    def write(self, string: str) -> None:
        super().write(string.replace(_HYPHEN, "-"))


def _whole(text: str) -> str:
    return text.replace("-", _HYPHEN)


class _Context(click.Context):
    formatter_class = _Formatter


class Verbs(click.Group):
    """A group of commands, each imported when it is called."""

    context_class = _Context

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted({*VERBS, *added_verbs()})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in VERBS:
            return _added_command(ctx, cmd_name)
        command: click.Command = importlib.import_module(VERBS[cmd_name].module).command
        command.context_class = _Context
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and not args[0].startswith("-") and args[0] not in VERBS and not ctx.resilient_parsing:
            known = {*VERBS, *added_verbs()}
            if args[0] not in known:
                near = difflib.get_close_matches(args[0], known, 1)
                advice = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(sorted(known))}"
                ctx.fail(f"there is no verb {args[0]!r}; {advice}")
        return super().resolve_command(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except (click.exceptions.Exit, click.ClickException, click.Abort, LabError):
            raise
        except Exception as error:
            if _ADDED not in ctx.meta or is_of_output(error):
                raise
            raise AddedVerbError(ctx.meta[_ADDED], "has failed") from error

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Verbs"):
            formatter.write_dl(sorted((name, verb.summary) for name, verb in VERBS.items()))
        if added := added_verbs():
            with formatter.section("Verbs of other packages"):
                formatter.write_dl([(each.name, each.summary()) for verbs in added.values() for each in verbs])


def _added_command(ctx: click.Context, name: str) -> click.Command | None:
    """The command of another package's verb, if there is one. Completion passes over a broken one without a word."""
    found = added_verbs().get(name, [])
    if len(found) > 1 and not ctx.resilient_parsing:
        ctx.fail(
            f"several packages have a verb {name!r}: {', '.join(each.package for each in found)}; uninstall all but one"
        )
    if len(found) != 1:
        return None
    try:
        command = found[0].load()
    except AddedVerbError:
        if ctx.resilient_parsing:
            return None
        raise
    ctx.meta[_ADDED] = str(found[0])
    command.context_class = _Context
    return command
