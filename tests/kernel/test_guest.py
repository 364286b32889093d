"""Labs in a guest: on its kernel, with the machine's files, out of reach of the machine.

``./dev test`` shows only that a scenario runs in a guest, that a guest changes no file of the machine, and that it
needs no privilege.
"""

import fcntl
import os
import pty
import signal
import struct
import subprocess
import sys
import tempfile
import termios
from contextlib import closing
from pathlib import Path
from subprocess import PIPE

import pytest
from command_line import CommandLine, TerminalOutput, lives, wait_for
from guests import DEBIANS, EACH, OWN, readable
from machine import Machine, descendants
from sandboxed import ROOT
from small_plan import small_plan

from proxylab.client.lab_process import LabProcess
from proxylab.client.session import Session
from proxylab.engines.protocol import EngineChoice
from proxylab.errors import CapabilityError, LabEndedError
from proxylab.guest.kernels import Kernel, find_kernel
from proxylab.protocol.messages import Build, Execute
from proxylab.scenario.load import load_scenario
from proxylab.timing import Deadline
from proxylab.verdict.model import Judgement

pytestmark = pytest.mark.timeout(300)
SCENARIO = ROOT / "tests/kernel/killed.lab.yaml"


@EACH
def test_a_scenario_runs_in_a_guest(kernel: Kernel, cli: CommandLine) -> None:
    done = cli.type("run", str(SCENARIO), "--no-bundles", "--kernel", kernel.binary)
    assert done.status == 0, done.output + done.errors


@EACH
@pytest.mark.thorough
def test_one_guest_serves_many_labs(kernel: Kernel) -> None:
    scenario = load_scenario(SCENARIO)
    with Session(EngineChoice(kernel=kernel.binary)) as session:
        guests = set()
        for _ in range(3):
            with closing(session.open(scenario)) as lab:
                assert {lab.probe(probe).overall for probe in scenario.probes} == {Judgement.PASS}
                guests.add(lab.execute("client", "cat", "/proc/sys/kernel/random/boot_id").stdout)
        assert len(guests) == 1
        assert guests != {Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii")}


@EACH
@pytest.mark.thorough
def test_a_session_boots_each_kernel_once_and_its_labs_name_theirs(kernel: Kernel) -> None:
    scenario = load_scenario(SCENARIO)
    release, boots = os.uname().release, set()
    with Session() as session:
        for chosen, expected in (("host", release), (kernel.binary, kernel.release)) * 2:
            with closing(session.open(scenario, kernel=chosen)) as lab:
                assert {lab.probe(probe).overall for probe in scenario.probes} == {Judgement.PASS}
                boots.add(lab.execute("client", "cat", "/proc/sys/kernel/random/boot_id").stdout)
                assert (lab.built.kernel, lab.engine.kernel) == (expected, chosen)
    assert len(boots) == 2


@EACH
def test_what_a_guest_writes_stays_in_it(kernel: Kernel) -> None:
    with tempfile.TemporaryDirectory(prefix="open-", dir="/tmp") as folder:
        Path(folder).chmod(0o755)  # a guest of root reads what every user may
        expect_unwritten(kernel, Path(folder) / "own")


def expect_unwritten(kernel: Kernel, own: Path) -> None:
    foreign = Path("/etc/proxylab-was-here")
    own.write_text("the machine's", encoding="ascii")
    script = f"cat {own}; echo guest >{own}; echo guest >{foreign}; cat {own} {foreign}"
    with LabProcess(kernel=kernel.binary) as process:
        process.request(Build(small_plan(), (), EngineChoice()), Deadline.after(120))
        done = process.request(Execute("pod-1", ("sh", "-c", script)), Deadline.after(60))
    assert done.stdout == "the machine'sguest\nguest\n", done.stderr
    assert own.read_text(encoding="ascii") == "the machine's"
    assert not foreign.exists()


@EACH
@pytest.mark.thorough
def test_a_large_message_passes_both_ways(kernel: Kernel) -> None:
    text = "x" * 100_000
    with LabProcess(kernel=kernel.binary) as process:
        process.request(Build(small_plan(), (), EngineChoice()), Deadline.after(120))
        for _ in range(5):
            done = process.request(Execute("pod-1", ("echo", "-n", text)), Deadline.after(60))
            assert done.stdout == text


@EACH
@pytest.mark.thorough
def test_a_guest_holds_the_packets_of_many_large_probes(kernel: Kernel) -> None:
    """More pages than the machine allows mappings (``vm.max_map_count``): the lab process hung in the third lab."""
    scenario = load_scenario(ROOT / "scenarios/spread/skew-of-three-points.lab.yaml")
    (probe,) = scenario.probes
    with Session(EngineChoice(kernel=kernel.binary)) as session:
        for _ in range(4):
            with closing(session.open(scenario)) as lab:
                assert lab.probe(probe).overall is Judgement.PASS


@EACH
@pytest.mark.thorough
def test_a_client_that_closes_waits_until_the_guest_has_ended(kernel: Kernel) -> None:
    before = Machine.now()
    process = LabProcess(kernel=kernel.binary)
    ready = process.ready()
    assert ready.kernel == kernel.release
    assert not ready.rootless, "whatever user started it, the lab process is root in the guest"
    pids = set(descendants(process.pid))
    assert len(pids) > 4, "supervisor, init, relay, kernel, processes of the guest"
    process.close()
    assert not [pid for pid in pids if Path(f"/proc/{pid}").exists()]
    assert before.differences(Machine.now()) == []


@EACH
@pytest.mark.thorough
def test_a_guest_has_what_many_machines_lack(kernel: Kernel) -> None:
    with LabProcess(kernel=kernel.binary) as process:
        found = process.examine((), Deadline.after(120))
    works = {each.name for each in found if each.works}
    assert {
        "IPVS",
        "SCTP sockets",
        "dummy devices",
        "VXLAN devices",
        "netem",
        "bridge-nf-call-iptables",
        "ip6tables",
    } <= works
    assert ({"nftables", "iptables nft", "taps on the programs of nodes"} <= works) is kernel.has_nftables
    assert [each.found for each in found if "\n" in each.found or len(each.found) > 200] == []


@EACH
@pytest.mark.thorough
def test_a_guest_tracks_as_many_connections_as_a_large_machine(kernel: Kernel) -> None:
    with LabProcess(kernel=kernel.binary) as process:
        process.request(Build(small_plan(), (), EngineChoice()), Deadline.after(120))
        limit = Execute("pod-1", ("cat", "/proc/sys/net/netfilter/nf_conntrack_max"))
        assert int(process.request(limit, Deadline.after(60)).stdout) >= 262_144


@EACH
@pytest.mark.thorough
def test_a_lab_process_that_dies_in_the_guest_ends_the_guest(kernel: Kernel) -> None:
    with LabProcess(kernel=kernel.binary) as process:
        process.request(Build(small_plan(), (), EngineChoice()), Deadline.after(120))
        with pytest.raises(LabEndedError, match="its launcher, which starts commands, ended"):
            # The commands of a pod are in the sandbox's pid namespace, where 3 is the launcher.
            process.request(Execute("pod-1", ("sh", "-c", "kill -9 3; sleep 60")), Deadline.after(60))


@EACH
@pytest.mark.thorough
def test_a_standing_lab_of_a_guest_has_clients_and_commands_on_their_own_streams(
    kernel: Kernel, cli: CommandLine
) -> None:
    cli.up("--kernel", kernel.binary, "--name", "guest")

    def run(*argv: str, given: bytes = b"") -> tuple[int, bytes, bytes]:
        child = cli.start("exec", "-i", "client", "--", *argv, stdin=PIPE, stdout=PIPE, stderr=PIPE)
        output, errors = child.communicate(given, timeout=100)
        return child.returncode, output, errors

    assert run("sh", "-c", "cat; echo bad >&2; exit 7", given=b"good\n") == (7, b"good\n", b"bad\n")
    text = "".join(f"{number}\n" for number in range(100_000)).encode()
    assert run("cat", given=text) == (0, text, b""), "all of a command's output comes before its end"
    assert "guest" in cli.type("ps").output
    assert cli.type("probe", "client", "echo").status == 0
    supervisor = cli.supervisor("guest")
    assert cli.type("down").status == 0
    wait_for(lambda: not lives(supervisor), "the guest to end")


@EACH
@pytest.mark.thorough
def test_a_command_in_a_guest_gets_a_terminal_of_the_user_s_size(kernel: Kernel, cli: CommandLine) -> None:
    cli.up("--kernel", kernel.binary)
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 33, 77, 0, 0))
    resized = "until stty size | grep -q '44 102'; do sleep 0.02; done; echo resized"
    script = f"stty size; {resized}; read word; echo got $word; test -t 1 && echo terminal"
    child = cli.start("exec", "-it", "client", "--", "sh", "-c", script, stdin=theirs, stdout=theirs, stderr=theirs)
    os.close(theirs)
    os.set_blocking(ours, False)
    output = TerminalOutput(ours)
    wait_for(lambda: "33 77" in output.so_far(), "the size", output.so_far)
    fcntl.ioctl(ours, termios.TIOCSWINSZ, struct.pack("HHHH", 44, 102, 0, 0))
    child.send_signal(signal.SIGWINCH)
    wait_for(lambda: "resized" in output.so_far(), "the new size", output.so_far)
    os.write(ours, b"it\n")
    wait_for(lambda: "terminal" in output.so_far(), "the command's end", output.so_far)
    assert "got it" in output.so_far()
    assert child.wait(30) == 0
    os.close(ours)


# In a user namespace of its own, where this switch belongs to that namespace and not to the machine.
WITHOUT_NAMESPACES = """
echo 0 >/proc/sys/user/max_user_namespaces
exec setpriv --bounding-set=-all --inh-caps=-all --no-new-privs "$@"
"""

GREET = """
import sys
from proxylab.client.lab_process import LabProcess
from proxylab.errors import CapabilityError
with LabProcess(kernel=sys.argv[1]) as process:
    try:
        print(process.ready().kernel)
    except CapabilityError as error:
        print(error)
"""


def greeting_without_namespaces(kernel: Kernel) -> str:
    program = ("sh", sys.executable, "-c", GREET)
    with readable(kernel) as binary:
        done = subprocess.run(
            ["unshare", "--user", "--map-root-user", "sh", "-ec", WITHOUT_NAMESPACES, *program, binary],
            capture_output=True,
            text=True,
            check=False,
            timeout=200,
            env={**os.environ, "PYTHONPATH": str(ROOT / "lab")},
        )
    return done.stdout + done.stderr


@OWN
def test_a_user_without_namespaces_and_capabilities_has_guests_of_a_new_kernel() -> None:
    kernel = find_kernel("uml")
    assert kernel is not None
    assert greeting_without_namespaces(kernel) == f"{kernel.release}\n"


@DEBIANS
def test_a_kernel_that_leaves_processes_behind_runs_only_in_a_sandbox() -> None:
    kernel = find_kernel("/usr/bin/linux.uml")
    assert kernel is not None
    assert not kernel.ends_its_processes
    assert greeting_without_namespaces(kernel).startswith("this machine lacks a way into a sandbox")


def test_a_kernel_that_does_not_boot_says_so_with_the_last_words_of_its_console(tmp_path: Path) -> None:
    kernel = tmp_path / "linux"
    kernel.write_text("#!/bin/sh\necho 6.18.0\n[ $# = 1 ] || echo Kernel panic - not syncing: no root\n")
    kernel.chmod(0o755)
    with LabProcess(kernel=str(kernel)) as process, pytest.raises(CapabilityError) as refused:
        process.ready()
    assert "(it ended; its console ends with: Kernel panic - not syncing: no root)" in str(refused.value)
