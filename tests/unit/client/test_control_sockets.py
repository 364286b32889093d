"""Names of standing labs: claimed once, found, and removed when no lab listens on them."""

import os
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest

from proxylab.client.control_sockets import ControlSocket, ControlSockets, NameTakenError, NoSuchLabError, is_name
from proxylab.errors import CapabilityError
from proxylab.kernel.sandbox.sandbox import InheritedControlSocket as KeptDoor


@pytest.fixture
def control_sockets(tmp_path: Path) -> ControlSockets:
    return ControlSockets(tmp_path / "proxylab")


def test_a_name_is_taken_until_its_door_is_closed(control_sockets: ControlSockets) -> None:
    first, second = ControlSocket(control_sockets), ControlSocket(control_sockets)
    first.claim("shop")
    assert control_sockets.names() == ["shop"]
    with pytest.raises(NameTakenError):
        second.claim("shop")
    control_sockets.connect("shop").close()
    first.close()
    with pytest.raises(NoSuchLabError):
        control_sockets.connect("shop")
    second.claim("shop")
    second.give_up()
    assert list(control_sockets.folder.iterdir()) == []


def test_a_lab_that_takes_no_more_connections_is_silent_and_no_bug(control_sockets: ControlSockets) -> None:
    """As one of a thousand pods that ends, while `proxylab down` looks again and again whether it is gone."""
    control_socket = ControlSocket(control_sockets)
    control_socket.claim("shop")
    with ExitStack() as waiting:

        def come() -> None:
            for _ in range(300):
                waiting.enter_context(control_sockets.connect("shop", seconds=0.01))

        with pytest.raises(TimeoutError, match="the lab shop takes no more connections"):
            come()
        assert control_sockets.names() == ["shop"]
    control_socket.give_up()


def test_what_a_killed_lab_has_left_is_cleared_away(control_sockets: ControlSockets) -> None:
    control_socket = ControlSocket(control_sockets)
    control_socket.claim("shop")
    control_socket.tell_supervisor(os.getpid())
    assert {each.name for each in control_sockets.folder.iterdir()} == {"shop.sock", "shop.supervisor"}
    control_socket.close()
    assert control_sockets.names() == []
    assert list(control_sockets.folder.iterdir()) == []


@pytest.mark.parametrize("who", ["its supervisor", "a client that finds no listener"])
def test_the_name_is_the_last_that_goes(
    control_sockets: ControlSockets, monkeypatch: pytest.MonkeyPatch, who: str
) -> None:
    """The test waits for it, and then checks that nothing is left."""
    control_socket = ControlSocket(control_sockets)
    control_socket.claim("shop")
    control_socket.tell_supervisor(os.getpid())
    gone, unlink = [], os.unlink

    def watched(name: str, **where: int) -> None:
        unlink(name, **where)
        gone.append((name, control_sockets.is_taken("shop")))

    monkeypatch.setattr(os, "unlink", watched)
    if who == "its supervisor":
        KeptDoor(control_socket.socket, control_socket.folder).take_away(0)
        control_socket.close()
    else:
        control_socket.close()
        assert control_sockets.names() == []
    assert gone == [("shop.supervisor", True), ("shop.sock", False)]


def test_a_name_may_be_deep_in_folders_and_long(tmp_path: Path) -> None:
    deep = tmp_path / ("d" * 100) / ("e" * 100)
    deep.mkdir(parents=True)
    control_sockets = ControlSockets(deep / "proxylab")
    control_socket = ControlSocket(control_sockets)
    control_socket.claim("n" * 63)
    control_sockets.connect("n" * 63).close()
    control_socket.give_up()


def test_a_process_that_only_reuses_the_pid_of_a_supervisor_is_not_killed(control_sockets: ControlSockets) -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as other:
        control_sockets.supervisor_file("shop").write_text(f"{other.pid} 1\n")
        assert not control_sockets.kill("shop")
        assert not control_sockets.kill("nothing")
        assert other.poll() is None


@pytest.mark.parametrize("name", ["shop", "a.b-c1", "a" * 63])
def test_names_are_what_a_scenario_may_be_called(name: str) -> None:
    assert is_name(name)


@pytest.mark.parametrize("name", ["Shop", "../x", "-a", "", "a" * 64])
def test_no_other_name_will_do(name: str) -> None:
    assert not is_name(name)


def test_control_sockets_are_in_a_folder_of_their_owner(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    assert ControlSockets.of_user().folder == tmp_path / "proxylab"
    monkeypatch.setenv("XDG_RUNTIME_DIR", "relative")
    monkeypatch.setattr("tempfile.gettempdir", lambda: str(tmp_path))
    assert ControlSockets.of_user().folder == tmp_path / f"proxylab-{os.geteuid()}"
    (tmp_path / "public").mkdir(mode=0o755)
    with pytest.raises(CapabilityError, match="belongs to another user, or is open to others"):
        ControlSockets(tmp_path / "public")
    (tmp_path / "file").touch(mode=0o600)
    with pytest.raises(CapabilityError, match="belongs to another user, or is open to others"):
        ControlSockets(tmp_path / "file")
