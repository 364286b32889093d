"""Labs on a kernel that qemu boots, without KVM some ten times slower: ``--kernel debian:VERSION``, or a path."""

import os
import signal
from pathlib import Path

import pytest
from command_line import CommandLine, lives, wait_for
from guests import IMAGE
from machine import Machine, descendants
from sandboxed import ROOT
from small_plan import small_plan

from proxylab.client.lab_process import LabProcess
from proxylab.engines.protocol import EngineChoice
from proxylab.protocol.messages import Build, Execute
from proxylab.timing import Deadline

pytestmark = [
    pytest.mark.thorough,
    pytest.mark.timeout(900),
    pytest.mark.skipif(
        IMAGE is None, reason="no qemu-system-x86_64, or no kernel for it: 'proxylab kernels --obtain debian:'"
    ),
]


def test_a_scenario_runs_on_an_image_and_names_it(cli: CommandLine) -> None:
    assert IMAGE is not None
    done = cli.type("run", str(ROOT / "tests/kernel/killed.lab.yaml"), "--no-bundles", "--kernel", IMAGE.binary)
    assert done.status == 0, done.output + done.errors
    assert f"kernel {IMAGE.binary}: {IMAGE.release}" in done.output.splitlines()


def test_an_image_of_debian_s_has_what_labs_use_and_the_machine_s_files_read_only(tmp_path: Path) -> None:
    assert IMAGE is not None
    own, text = tmp_path / "own", "x" * 100_000
    own.write_text("the machine's", encoding="ascii")
    with LabProcess(kernel=IMAGE.binary) as process:
        found = process.examine((), Deadline.after(300))
        works = {each.name for each in found if each.works}
        assert {"IPVS", "SCTP sockets", "dummy devices", "nftables", "iptables legacy", "ip6tables"} <= works
        process.request(Build(small_plan(), (), EngineChoice()), Deadline.after(300))
        script = f"cat {own}; echo guest >{own}; cat {own}"
        done = process.request(Execute("pod-1", ("sh", "-c", script)), Deadline.after(100))
        assert done.stdout == "the machine'sguest\n", done.stderr
        done = process.request(Execute("pod-1", ("echo", "-n", text)), Deadline.after(100))
        assert done.stdout == text
    assert own.read_text(encoding="ascii") == "the machine's"


@pytest.mark.parametrize("role", ["supervisor", "init", "qemu"])
def test_a_kill_leaves_nothing(role: str) -> None:
    assert IMAGE is not None
    before = Machine.now()
    with LabProcess(kernel=IMAGE.binary) as process:
        process.ready()
        tree = descendants(process.pid)
        (init,) = tree[process.pid]
        (relay,) = tree[init]
        (qemu,) = tree[relay]
        os.kill({"supervisor": process.pid, "init": init, "qemu": qemu}[role], signal.SIGKILL)
        wait_for(lambda: not any(map(lives, tree)), "every process of the guest to end")
    assert before.differences(Machine.now()) == []
