"""Commands at a detached lab: edit, watch, capture, and names by their prefix."""

import json
import os
import pty
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from command_line import CommandLine, TerminalOutput, wait_for
from sandboxed import ROOT
from scapy.layers.inet import TCP
from scapy.utils import PcapNgReader

PATH = f"{os.environ['PATH']}:/usr/sbin:/sbin"


def test_the_lab_is_brought_to_an_edited_file(cli: CommandLine, tmp_path: Path) -> None:
    cli.up()
    before = cli.type("get", "svc", "nobody", "-o", "json").output
    assert cli.type("probe", "client", "nobody", "--expect", "rejected").status == 0
    counted = cli.type("rules", "node-a").output
    edited = tmp_path / "edited.lab.yaml"
    text = (ROOT / "tests/kernel/killed.lab.yaml").read_text()
    edited.write_text(text.replace("selector: {app: nobody}, ports: [{port: 80}]",
                                   "selector: {app: echo}, ports: [{port: 80, targetPort: 8080}]"))  # fmt: skip
    shown = cli.type("apply", "-f", str(edited), "--dry-run")
    assert "~ Service default/nobody: spec.selector.app: nobody -> echo" in shown.output
    assert "nothing changed" in shown.errors
    assert cli.type("get", "svc", "nobody", "-o", "json").output == before
    done = cli.type("apply", "-f", str(edited), "--color", "always")
    assert (done.status, done.output == shown.output) == (0, False), "coloured"
    after = json.loads(cli.type("get", "svc", "nobody", "-o", "json").output)
    assert after["spec"]["clusterIP"] == json.loads(before)["spec"]["clusterIP"]
    assert cli.type("probe", "client", "nobody").status == 0
    assert "edited.lab.yaml" in cli.type("ps").output
    assert ":KUBE-SERVICES" in counted, "and nothing was flushed"
    assert cli.type("apply", "-f", str(edited)).output == "the lab already matches the file\n"
    edited.write_text(edited.read_text().replace("hosts: {outside: {}}", "hosts: {outside: {}, further: {}}"))
    refused = cli.type("apply", "-f", str(edited))
    assert refused.status == 2
    assert "further: a standing lab cannot get a new node, pod or host" in refused.errors
    assert "`proxylab down killed` and `proxylab up" in refused.errors


def test_manifests_are_applied_as_far_as_the_lab_has_pods(cli: CommandLine, tmp_path: Path) -> None:
    cli.up()
    folder = tmp_path / "manifests"
    folder.mkdir()
    new = "{{apiVersion: v1, kind: Service, metadata: {{name: {}}}, spec: {{selector: {{app: echo}}, ports: [{}]}}}}"
    (folder / "new.yaml").write_text(new.format("new", "{port: 81, targetPort: 8080}"))
    (folder / "nobody.yml").write_text(new.format("nobody", "{port: 80, targetPort: 8080}"))
    shown = cli.type("apply", "-f", str(folder))
    assert (shown.status, "+ Service default/new" in shown.output) == (0, True), shown
    assert "~ Service default/nobody: spec.selector.app: nobody -> echo" in shown.output
    for name in ("new", "nobody", "echo"):
        assert cli.type("probe", "client", name).output.startswith("pass")
    # What was applied before stays when more is.
    (tmp_path / "more.yaml").write_text(new.format("more", "{port: 82, targetPort: 8080}"))
    assert cli.type("apply", "-f", str(tmp_path / "more.yaml")).status == 0
    assert cli.type("probe", "client", "new").output.startswith("pass")
    typed = cli.start("apply", "-f", "-", stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    written = typed.communicate(new.format("typed", "{port: 83, targetPort: 8080}").encode(), timeout=60)[0]
    assert b"+ Service default/typed" in written
    assert cli.type("probe", "client", "typed").output.startswith("pass")
    deployment = (
        "{apiVersion: apps/v1, kind: Deployment, metadata: {name: web}, spec: {selector: {matchLabels: {app: web}}, "
    )
    pod = "template: {metadata: {labels: {app: web}}, spec: {containers: [{name: web}]}}}}"
    (tmp_path / "web.yaml").write_text(deployment + pod)
    refused = cli.type("apply", "-f", str(tmp_path / "web.yaml"))
    assert (refused.status, "a standing lab cannot get a new node, pod or host" in refused.errors) == (2, True), refused


def test_a_sysctl_is_written_in_place(cli: CommandLine, tmp_path: Path) -> None:
    cli.up()
    edited = tmp_path / "edited.lab.yaml"
    text = (ROOT / "tests/kernel/killed.lab.yaml").read_text()
    edited.write_text(text.replace("node-b: {}", "node-b: {sysctls: {net.ipv4.ip_forward: 0}}"))
    assert cli.type("apply", "-f", str(edited)).output == "~ node-b: net.ipv4.ip_forward: 1 -> 0\n"
    assert cli.type("exec", "node-b", "--", "cat", "/proc/sys/net/ipv4/ip_forward").output == "0\n"


def test_what_crosses_a_device_is_seen_in_every_form(cli: CommandLine, tmp_path: Path) -> None:
    cli.up()
    lines = cli.start("capture", "node-a:client", "-c", "3", stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    file = tmp_path / "all.pcapng"
    written = cli.start("capture", "client", "-w", str(file), stderr=subprocess.PIPE)
    for each in (lines, written):
        assert each.stderr is not None
        assert each.stderr.readline().startswith(b"listening on ")
    cli.type("probe", "client", "echo", "--as", "packet")
    output, errors = lines.communicate(timeout=30)
    assert [line.split(b" TCP ")[1].split()[3] for line in output.splitlines()] == [b"S", b"SA", b"R"]
    assert errors == b"3 frames\n"
    flags = json.loads(cli.type("exec", "node-a", "--", "ip", "-j", "-d", "link", "show", "client").output)[0]
    assert flags["promiscuity"] == 0
    written.send_signal(signal.SIGINT)
    written.communicate(timeout=30)
    assert written.returncode == 0
    with PcapNgReader(str(file)) as frames:
        assert len(list(frames)) == 3
    assert "client has no device 'eth7'; there are lo, eth0, any" in cli.type("capture", "client:eth7").errors


def test_several_devices_and_any_are_captured_in_order_and_named(cli: CommandLine, tmp_path: Path) -> None:
    cli.up()
    words = ("client", "node-a:any", "-c", "6")
    lines = cli.start("capture", *words, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    file = tmp_path / "all.pcapng"
    written = cli.start("capture", *words, "-w", str(file), stderr=subprocess.PIPE)
    for each in (lines, written):
        assert each.stderr is not None
        assert (
            each.stderr.readline()
            == b"listening on client:eth0, node-a:lo, node-a:eth0, node-a:echo-1, node-a:client\n"
        )
    cli.type("probe", "client", "echo", "--as", "packet")
    output, _ = lines.communicate(timeout=30)
    # A node's own report of its multicast groups (IGMP), which the kernel sends at a random time, may be among them.
    there = [tuple(line.split()[1:3]) for line in output.decode().splitlines() if " TCP " in line]
    assert there[:2] == [("client:eth0", "out"), ("node-a:client", "in")]
    assert there[2] in {("node-a:eth0", "out"), ("node-a:echo-1", "out")}  # as the endpoint is on node-b or node-a
    written.communicate(timeout=30)
    with PcapNgReader(str(file)) as frames:
        names = [bytes(frame.sniffed_on, "ascii") for frame in frames if "TCP" in frame]
    assert names[:2] == [b"client/eth0", b"node-a/client"]


@pytest.mark.skipif(
    shutil.which("tcpdump", path=PATH) is None,
    reason="needs tcpdump, which compiles filters; 'apt-get install tcpdump'",
)
def test_a_filter_of_tcpdump_keeps_what_it_accepts(cli: CommandLine) -> None:
    cli.up()
    filtered = ("--filter", "dst port 80 and tcp[tcpflags] & tcp-rst != 0")
    heard = cli.start("capture", "client", "-c", "1", *filtered, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert heard.stderr is not None
    assert heard.stderr.readline() == b"listening on client:eth0\n"
    cli.type("probe", "client", "echo", "--as", "packet")
    output, _ = heard.communicate(timeout=30)
    assert output.split(b" TCP ")[1].split()[3] == b"R"
    wrong = cli.type("capture", "client", "--filter", "tcp porrt 80")
    assert wrong.status == 2
    assert "can't parse filter expression: syntax error" in wrong.errors


def test_a_filter_without_tcpdump_has_a_cure(cli: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(shutil, "which", lambda *_, **__: None)
        done = cli.type("capture", "client", "--filter", "tcp")
    assert done.status == 4
    assert "this machine lacks tcpdump, which compiles filters; install it, or capture without --filter" in done.errors


@pytest.fixture
def wireshark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A stand-in for Wireshark: records its arguments and its input, or closes at once."""
    folder = tmp_path / "bin"
    folder.mkdir()
    program = folder / "wireshark"
    program.write_text(f'#!/bin/sh\necho "$@" > {folder}/called\n[ -e {folder}/closed ] || exec cat > {folder}/given\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    return folder


def test_wireshark_is_shown_what_crosses_as_it_comes(cli: CommandLine, wireshark: Path) -> None:
    cli.up()
    for closed in (False, True):
        if closed:
            (wireshark / "closed").touch()
        shown = cli.start("capture", "node-a:client", "--wireshark", "-c", "3", stderr=subprocess.PIPE)
        assert shown.stderr is not None
        assert shown.stderr.readline() == b"listening on node-a:client\n"
        cli.type("probe", "client", "echo", "--as", "packet")
        _, errors = shown.communicate(timeout=30)
        assert shown.returncode == 0, errors
        assert re.fullmatch(rb"[0-3] frames\n" if closed else rb"3 frames\n", errors)
    assert (wireshark / "called").read_text() == "-k -i -\n"
    with PcapNgReader(str(wireshark / "given")) as frames:
        flags = [str(frame[TCP].flags) for frame in frames]
    assert flags == ["S", "SA", "R"]


def test_without_wireshark_there_is_a_cure(cli: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    cli.up()
    with monkeypatch.context() as patch:
        patch.setenv("PATH", str(cli.runtime))
        done = cli.type("capture", "client", "--wireshark")
    assert done.status == 4
    cure = "install it, or write a file with -w and open that on a machine that has it"
    assert done.errors == f"this machine lacks wireshark; {cure}\n"


def test_an_engine_s_log_is_printed_and_followed(cli: CommandLine, tmp_path: Path) -> None:
    cli.up()
    assert "in a full sync" in cli.type("logs", "node-a").output
    following = cli.start("logs", "-f", "node-a", stdout=subprocess.PIPE)
    assert following.stdout is not None
    assert b"in a full sync" in following.stdout.readline()
    edited = tmp_path / "edited.lab.yaml"
    edited.write_text((ROOT / "tests/kernel/killed.lab.yaml").read_text().replace("port: 80}", "port: 81}"))
    assert cli.type("apply", "-f", str(edited)).status == 0
    assert b"revision" in following.stdout.readline()
    following.send_signal(signal.SIGINT)
    following.communicate(timeout=30)
    assert following.returncode == 0


ESCAPE = re.compile(r"\x1b(\[[0-9;?]*[A-Za-z]|[=>])")
SHELLS = {
    "bash": ("--norc", "--noprofile", "-i"),
    "fish": ("--no-config", "--interactive"),
    "zsh": ("-f", "-i"),
}
PREPARED = {
    "bash": """bind 'set enable-bracketed-paste off'; eval "$(proxylab completion bash)"; echo taught-$((40 + 2))""",
    "fish": "function fish_prompt; echo '> '; end; proxylab completion fish | source; echo taught-(math 40 + 2)",
    "zsh": """autoload -Uz compinit; compinit -D -u; eval "$(proxylab completion zsh)"; echo taught-$((40 + 2))""",
}


@pytest.mark.completion
@pytest.mark.parametrize("shell", SHELLS)
def test_a_real_shell_completes_the_names_of_a_standing_lab(cli: CommandLine, tmp_path: Path, shell: str) -> None:
    if shutil.which(shell) is None:
        pytest.skip(f"needs {shell}; 'apt-get install {shell}'")
    cli.up("--name", "mine")
    program = tmp_path / "bin" / "proxylab"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nPYTHONPATH={ROOT}/lab exec {sys.executable} -m proxylab "$@"\n')
    program.chmod(0o755)
    ours, theirs = pty.openpty()
    os.set_blocking(ours, False)
    subprocess.run(["stty", "cols", "200"], stdin=theirs, check=True)
    environment = {**os.environ, "PATH": f"{program.parent}:{os.environ['PATH']}", "PS1": "> ", "TERM": "vt100"}
    typing = subprocess.Popen(
        ["setsid", "--ctty", shell, *SHELLS[shell]],
        env=environment, cwd=tmp_path, stdin=theirs, stdout=theirs, stderr=theirs,
    )  # fmt: skip
    said = TerminalOutput(ours)

    def typed(text: str, then: str) -> None:
        os.write(ours, text.encode())
        wait_for(lambda: then in ESCAPE.sub("", said.so_far()), f"{then!r} in {shell}", said.so_far)

    typed(f"{PREPARED[shell]}\r", "taught-42")
    typed("proxylab exec cl\t", "exec client")
    typed("-- sh -c 'echo one-$((40 + 2))'\r", "one-42")
    typed("proxylab down --a\t", "down --all")
    typed("\r", "mine is gone")
    os.write(ours, b"exit\r")
    typing.wait(30)
    for each in (ours, theirs):
        os.close(each)


@pytest.mark.completion
def test_the_names_of_a_standing_lab_are_completed(cli: CommandLine) -> None:
    cli.up("--name", "mine")
    for words, completed in {
        "proxylab exec cl": ["client"],
        "proxylab probe client no": ["node-a", "node-b", "nobody"],
        "proxylab rules node-": ["node-a", "node-b"],
        "proxylab down m": ["mine"],
    }.items():
        assert cli.complete(words) == completed, words
