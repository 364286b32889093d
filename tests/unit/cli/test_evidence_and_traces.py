"""``proxylab trace`` and ``judge``, and what ``run`` keeps as evidence."""

import contextlib

import click
import pytest
from caller import Caller
from fake_lab import UNSENDABLE
from kube_proxies import program

from proxylab.cli.trace import painted
from proxylab.errors import ExitCode


@pytest.mark.parametrize(
    ("arguments", "dialled"),
    [
        (("echo",), "service='echo', namespace='default', port=None, via=<Frontend.CLUSTER_IP"),
        (("default/echo:80", "--via", "nodePort", "--node", "node-a"), "port=80, via=<Frontend.NODE_PORT"),
        (("node-a:30080",), "AddressTarget(address=IPv4Address('172.18.0.2'), port=30080, path='')"),
        (("client:9",), "PodTarget(pod='client', via=<PodWay.POD_IP: 'podIP'>, port=9, family=None)"),
        (("192.0.2.1:53",), "AddressTarget(address=IPv4Address('192.0.2.1'), port=53, path='')"),
        (("[2001:db8::1]:53",), "AddressTarget(address=IPv6Address('2001:db8::1'), port=53, path='')"),
    ],
)
def test_trace_sends_what_its_arguments_name(caller: Caller, arguments: tuple[str, ...], dialled: str) -> None:
    caller.scenario("x.lab.yaml", "never sent")
    code, output, _ = caller.type("trace", "x.lab.yaml", "client", *arguments)
    assert code == ExitCode.OK
    assert output == "no rule of any node saw the packet\n\nin short: no tap saw the packet leave c.\n"
    (traced,) = [event for event in caller.events() if event.startswith("trace")]
    assert traced.startswith("trace client to ")
    assert dialled in traced
    assert not [event for event in caller.events() if event.startswith("probe")]


@pytest.mark.parametrize(
    ("sender", "target", "said"),
    [
        ("client:0", "echo", "FROM: '0' is no port; write 1 to 65535, as in client:12345"),
        ("client:http", "echo", "FROM: 'http' is no port; write 1 to 65535, as in client:12345"),
        ("nobody:1024", "echo", "FROM: there is no 'nobody'; there are node-a, echo, client"),
        ("client", "nobody", "'nobody' is no Service and no pod; there are echo, client; or NODE:PORT, ADDRESS:PORT"),
        ("client", "nobody:80", "'nobody' is no Service, pod, node, host or address of the scenario"),
        ("client", "node-a", "TO: 'node-a' has no port; write node-a:PORT"),
    ],
)
def test_trace_says_what_it_cannot_send(caller: Caller, sender: str, target: str, said: str) -> None:
    caller.scenario("x.lab.yaml", "never sent")
    code, output, errors = caller.type("trace", "x.lab.yaml", sender, target)
    assert (code, output) == (ExitCode.SCENARIO, "")
    assert said in errors


def test_a_source_port_is_that_of_one_flow(caller: Caller) -> None:
    caller.scenario("x.lab.yaml", "never sent")
    assert caller.type("probe", "x.lab.yaml", "client:12345", "echo")[0] == ExitCode.OK
    assert "add client:12345 to echo" in caller.events()
    code, output, errors = caller.type("probe", "x.lab.yaml", "client:12345", "echo", "--flows", "2")
    assert (code, output) == (ExitCode.SCENARIO, "")
    assert "leave out the port of FROM" in errors


def test_probe_sends_as_many_bytes_as_asked(caller: Caller) -> None:
    caller.scenario("x.lab.yaml", "never sent")
    assert caller.type("probe", "x.lab.yaml", "client", "echo", "--payload", "3000")[0] == ExitCode.OK
    assert "add client to echo of 3000 B" in caller.events()


def test_run_traces_each_probe_if_asked_to(caller: Caller) -> None:
    caller.scenario("x.lab.yaml", "holds", "fails")
    caller.type("run", "--trace", "x.lab.yaml")
    assert [event for event in caller.events() if event.startswith(("probe", "trace"))] == [
        "trace holds",
        "trace fails",
    ]


def kept(caller: Caller, directory: str) -> list[str]:
    """The bundles below a directory."""
    return sorted(str(file.parent.relative_to(caller.folder / directory)) for file in caller.folder.rglob("case.json"))


def test_run_keeps_evidence_of_what_did_not_pass_and_says_where(caller: Caller) -> None:
    caller.scenario("deep/x.lab.yaml", "holds", "fails as ever", "doubts")
    _, output, _ = caller.type("run", "deep/x.lab.yaml")
    assert [event for event in caller.events() if event.startswith("bundle")] == [
        "bundle fails as ever",
        "bundle doubts",
    ]
    folder = ".proxylab/bundles/embedded-iptables/deep/x"
    assert kept(caller, folder) == ["001-doubts", "001-fails-as-ever"]
    assert f"\n  evidence:  {folder}/001-fails-as-ever\n" in output
    assert (caller.folder / ".proxylab/bundles/.gitignore").read_text().endswith("\n*\n")


def test_evidence_of_an_earlier_run_is_not_left_beside_a_pass(caller: Caller) -> None:
    caller.scenario("x.lab.yaml", "holds", "fails as ever")
    caller.type("run", "x.lab.yaml")
    held = caller.folder / ".proxylab/bundles/embedded-iptables/x/001-holds/case.json"
    held.parent.mkdir()
    held.write_text("{}")
    caller.type("run", "x.lab.yaml")
    assert kept(caller, ".proxylab/bundles/embedded-iptables/x") == ["001-fails-as-ever"]


def test_evidence_is_kept_where_the_user_wants_it_or_nowhere(caller: Caller) -> None:
    caller.scenario("x.lab.yaml", "fails")
    caller.type("run", "x.lab.yaml", "--no-bundles")
    assert not list(caller.folder.rglob("case.json"))
    caller.type("run", "x.lab.yaml", "--bundle-dir", "elsewhere")
    assert kept(caller, "elsewhere") == ["embedded-iptables/x/001-fails"]
    assert not (caller.folder / ".proxylab").exists()


def test_evidence_that_cannot_be_written_does_not_end_the_run(caller: Caller) -> None:
    caller.scenario("x.lab.yaml", "fails", "holds")
    (caller.folder / "full").mkdir()
    (caller.folder / "full/embedded-iptables").write_text("a file where a directory should be")
    code, output, errors = caller.type("run", "x.lab.yaml", "--bundle-dir", "full")
    assert code == ExitCode.FAILED
    assert "1 failed, 1 passed" in output
    assert errors.splitlines()[-1].startswith("cannot keep the evidence of 'fails': ")
    assert "evidence:" not in output


def test_files_of_one_name_above_and_below_have_bundles_of_their_own(caller: Caller) -> None:
    caller.scenario("x.lab.yaml", "fails below")
    caller.scenario("y/x.lab.yaml", "fails elsewhere")
    (caller.folder / "work").mkdir()
    caller.scenario("work/x.lab.yaml", "fails at work")
    with contextlib.chdir(caller.folder / "work"):
        caller.type("run", "x.lab.yaml", "../x.lab.yaml", "../y/x.lab.yaml", str(caller.folder / "y/x.lab.yaml"))
    names = [file.parent.name for file in caller.folder.rglob("case.json")]
    assert sorted(names) == ["001-fails-at-work", "001-fails-below", "001-fails-elsewhere", "001-fails-elsewhere"]


def test_a_report_that_cannot_be_written_fails_the_run_with_one_line(caller: Caller) -> None:
    caller.scenario("x.lab.yaml", "holds")
    code, output, errors = caller.type("run", "x.lab.yaml", "--report", "/dev/full")
    assert code == ExitCode.FAILED
    assert "1 passed" in output
    assert errors.splitlines()[-1] == (
        "cannot write /dev/full: No space left on device; free some space there, or name another file"
    )


def test_judge_says_what_is_no_bundle(caller: Caller) -> None:
    (caller.folder / "empty").mkdir()
    assert caller.type("judge", "empty")[0] == ExitCode.NOTHING_SELECTED
    (caller.folder / "case.json").write_text("{}")
    code, _, errors = caller.type("judge", "case.json")
    assert code == ExitCode.SCENARIO
    assert errors.startswith("case.json: not a recorded case")


def test_a_trace_has_the_colours_of_a_run() -> None:
    lines = {
        "  web gets the request 10.0.0.1:80 > 10.0.0.2:80": "green",
        '    filter  KUBE-SERVICES  rejects it with icmp-port-unreachable: "default/echo has no endpoints"': "red",
        "    kube-proxy  service-endpoints-check  drops it": "red",
        "  web gets the port-unreachable 3/3 10.0.0.1 > 10.0.0.2": "",
        "  node-a: the request 10.0.0.1:80 > 10.0.0.2:80, in by eth0": "",
    }
    shown = {line: painted(line) for line in lines}
    assert {line: click.unstyle(each) for line, each in shown.items()} == {line: line for line in lines}
    codes = {"green": "\x1b[32m", "red": "\x1b[31m"}
    assert {line for line, each in shown.items() if each != line} == {line for line, colour in lines.items() if colour}
    assert all(codes[colour] in shown[line] for line, colour in lines.items() if colour)


@pytest.mark.parametrize("verb", ["trace", "probe"])
def test_the_binary_of_a_temporary_lab_is_named(caller: Caller, verb: str) -> None:
    """On standard error, since programs read what these verbs print."""
    caller.scenario("x.lab.yaml", "never sent")
    program(caller.folder / "mine", "v1.37.2")
    chosen = ("--engine", "kube-proxy/iptables", "--kube-proxy", "mine")
    _, output, errors = caller.type(verb, "x.lab.yaml", "client", "echo", *chosen)
    assert errors.startswith(f"kube-proxy/iptables: kube-proxy v1.37.2: the file {caller.folder / 'mine'}; SHA-256 ")
    assert "SHA-256" not in output


@pytest.mark.parametrize("options", [(), ("-q",), ("-v",), ("--jobs", "2")], ids=["", "quiet", "verbose", "jobs"])
def test_a_run_names_each_binary_once(caller: Caller, options: tuple[str, ...]) -> None:
    for name in ("x", "y"):
        caller.scenario(f"{name}.lab.yaml", "one")
    program(caller.folder / "mine", "v1.37.2")
    engines = ("--engine", "kube-proxy/iptables", "--engine", "kube-proxy/nftables", "--engine", "embedded/iptables")
    _, output, _ = caller.type("run", "x.lab.yaml", "y.lab.yaml", *engines, "--kube-proxy", "mine", *options)
    text = " ".join(output.split())
    assert text.count("SHA-256") == 1
    assert "kube-proxy/iptables, kube-proxy/nftables: kube-proxy v1.37.2: the file " in text
    if "-q" in options:
        (line,) = [line for line in output.splitlines() if "SHA-256" in line]
        assert line.startswith("kube-proxy/iptables, ")


def test_merged_documents_name_their_binaries(caller: Caller) -> None:
    caller.scenario("x.lab.yaml", "one")
    for number, comment in enumerate(("", "# with a patch")):
        program(caller.folder / "mine", "v1.37.2", comment)
        chosen = ("--engine", "kube-proxy/iptables", "--kube-proxy", "mine", "-o", "json")
        (caller.folder / f"{number}.json").write_text(caller.type("run", "x.lab.yaml", *chosen)[1])
    _, output, _ = caller.type("merge", "0.json", "1.json")
    text = " ".join(output.split())
    assert "kube-proxy/iptables (0): kube-proxy v1.37.2: " in text
    assert "kube-proxy/iptables (1): kube-proxy v1.37.2: " in text


def test_a_probe_that_the_machine_cannot_send_skips_itself_alone(caller: Caller) -> None:
    caller.scenario("x.lab.yaml", "holds", UNSENDABLE, "holds, too")
    code, output, _ = caller.type("run", "x.lab.yaml")
    assert code == ExitCode.OK
    assert "needs SCTP sockets; use another kernel:" in output
    assert output.splitlines()[-1].startswith("2 passed, 1 skipped in ")
    assert [event for event in caller.events() if event.startswith("probe")] == [
        "probe holds",
        f"probe {UNSENDABLE}",
        "probe holds, too",
    ]
