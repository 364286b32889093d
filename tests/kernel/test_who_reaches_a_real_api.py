"""The API of a lab is for who has its token: not for programs in its pods, and not for other users of the machine."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from command_line import CommandLine, wait_for
from machine import command_of, descendants
from sandboxed import ORDINARY
from test_real_control_plane import NAME, SECONDS, started
from test_real_control_plane import pytestmark as needs_control_plane

pytestmark = needs_control_plane

AS_ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="needs root, who may become another user; run it as root")

# The API server, etcd with its peers, the kubelets, the controller manager and the scheduler, as in any cluster.
PORTS = (6443, 443, 2379, 2380, 10250, 10255, 10257, 10259)

CONNECTS = """
import json, socket, sys
reached = []
for address in json.loads(sys.argv[1]):
    for port in json.loads(sys.argv[2]):
        try:
            socket.create_connection((address, port), timeout=2).close()
        except OSError:
            continue
        reached.append([address, port])
print(json.dumps(reached))
"""

ASKS_WITHOUT = """
import json, ssl, sys, urllib.error, urllib.request
context = ssl._create_unverified_context()
heard = {}
for path in ("/api/v1/pods", "/api/v1/namespaces/default/secrets", "/version", "/healthz", "/metrics", "/openapi/v2"):
    for headers in ({}, {"Authorization": "Bearer wrong"}, {"Authorization": "Basic YWRtaW46YWRtaW4="}):
        request = urllib.request.Request(sys.argv[1] + path, headers=headers)
        try:
            heard[f"{path} {headers}"] = urllib.request.urlopen(request, context=context, timeout=10).status
        except urllib.error.HTTPError as error:
            heard[f"{path} {headers}"] = error.code
print(json.dumps(heard))
"""

OF_ANOTHER_USER = f"""
import os, pathlib, socket, sys
os.setgroups([]); os.setresgid({ORDINARY}, {ORDINARY}, {ORDINARY}); os.setresuid({ORDINARY}, {ORDINARY}, {ORDINARY})
"""

READS_PROC = """
import json, stat
token, found = sys.argv[1].encode(), []
for pid in json.loads(sys.argv[2]):
    process = pathlib.Path(f"/proc/{pid}")
    files = [process / "cmdline", process / "environ"]
    try:
        files += [process / "fd" / name for name in os.listdir(process / "fd")]
    except OSError:  # it is another user's
        pass
    for each in files:
        try:
            if stat.S_ISREG(each.stat().st_mode) and token in each.read_bytes():
                found.append(str(each))
        except OSError:
            pass
print(json.dumps(found))
"""

READS_THE_SOCKET = """
connection = socket.socket(socket.AF_UNIX)
connection.connect(sys.argv[1])
connection.settimeout(10)
try:
    connection.send(b"\\0\\0\\0\\4null")
    print(connection.recv(1))
except ConnectionError:  # closed before it was read
    print(b"")
"""


def script(cli: CommandLine, sender: str, text: str, *words: str) -> Any:
    done = cli.type("exec", sender, "--", sys.executable, "-c", text, *words)
    assert done.status == 0, done
    return json.loads(done.output)


@pytest.mark.timeout(180)
def test_a_pod_without_the_token_gets_no_answer_and_reaches_no_part_of_the_control_plane(
    cli: CommandLine, tmp_path: Path
) -> None:
    kubectl = started(cli, tmp_path)
    kubectl("run", "one", "--image=one", "--port=80")
    kubectl("run", "two", "--image=two", "--port=81", '--overrides={"spec": {"hostNetwork": true}}')
    for each in ("one", "two"):
        kubectl("wait", "--for=condition=Ready", f"pod/{each}", "--timeout=30s")
    addresses = kubectl("get", "nodes", "-o", "jsonpath={.items[*].status.addresses[?(@.type=='InternalIP')].address}")
    addresses += " " + kubectl("get", "pods", "-o", "jsonpath={.items[*].status.podIP}")
    addresses += " " + kubectl("get", "service", "kubernetes", "-o", "jsonpath={.spec.clusterIP}")
    asked = [*addresses.split(), "127.0.0.1", "::1"]
    own = kubectl("get", "pod", "one", "-o", "jsonpath={.status.podIP}")
    for sender in ("client", "one", "two", "node-a", "outside"):
        assert script(cli, sender, CONNECTS, json.dumps([own]), "[80]") == [[own, 80]], "what listens is seen"
        assert script(cli, sender, CONNECTS, json.dumps(asked), json.dumps(PORTS)) == [], sender
        config = json.loads(cli.type("exec", sender, "--", "sh", "-c", "cat $KUBECONFIG").output)
        heard = script(cli, sender, ASKS_WITHOUT, config["clusters"][0]["cluster"]["server"])
        assert set(heard.values()) == {401}, (sender, heard)
    # Programs that kubectl starts in a pod have no token either, unless they are given one.
    assert kubectl("exec", "one", "--", "sh", "-c", "echo ${KUBECONFIG:-none}") == "none\n"


@AS_ROOT
def test_another_user_of_the_machine_gets_neither_the_token_nor_an_answer(cli: CommandLine, tmp_path: Path) -> None:
    started(cli, tmp_path)
    document = json.loads(cli.type("kubeconfig").output)
    server, token = document["clusters"][0]["cluster"]["server"], document["users"][0]["user"]["token"]

    def as_another(text: str, *words: str) -> str:
        argv = [sys.executable, "-c", OF_ANOTHER_USER + text, *words]
        return subprocess.run(argv, capture_output=True, text=True, check=True, timeout=SECONDS).stdout

    heard = json.loads(as_another(ASKS_WITHOUT, server))
    assert set(heard.values()) == {401}, heard
    watching = cli.start("kubectl", "--", "get", "pods", "--watch", stdout=subprocess.PIPE)
    try:
        assert watching.stdout is not None
        assert watching.stdout.readline().startswith(b"NAME")
        wait_for(lambda: b"\0kubectl\0" in command_of(watching.pid), "kubectl in its place")
        # Nothing that this user may read of these processes has the token: not of kubectl, and not of the lab.
        pids = json.dumps([watching.pid, *descendants(cli.supervisor(NAME))])
        assert json.loads(as_another(READS_PROC, token, pids)) == []
        owned = subprocess.run(
            [sys.executable, "-c", "import os, pathlib, sys\n" + READS_PROC, token, pids],
            capture_output=True, text=True, check=True, timeout=SECONDS,
        )  # fmt: skip
        assert f"/proc/{watching.pid}/fd/" in owned.stdout, "its owner finds it, so the look is a look"
    finally:
        watching.kill()
        watching.communicate()
    path = cli.control_sockets.folder / f"{NAME}.sock"
    for each in (path, path.parent):
        each.chmod(0o777)
    try:
        answered = subprocess.run(
            [sys.executable, "-c", OF_ANOTHER_USER + READS_THE_SOCKET, path.name],
            capture_output=True, text=True, check=True, timeout=SECONDS, cwd=path.parent,
        )  # fmt: skip
    finally:
        path.parent.chmod(0o700)
        path.chmod(0o600)
    assert answered.stdout == "b''\n"
    assert cli.type("probe", "client", "echo-1:8080").status == 0
