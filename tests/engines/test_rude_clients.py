"""Clients in a node that do all that a client should not, while a kube-proxy there goes by the same API server."""

import os
import sys
from ipaddress import ip_address
from typing import Any

import pytest
from rule_cases import Addresses, echo, endpoint, slice_of
from sandboxed import sandboxed
from staged_engines import staged

from proxylab.addresses import Family
from proxylab.binaries.choose import Sources
from proxylab.control.apiserver import API_PORT
from proxylab.kernel.sandbox.launcher import Launcher
from proxylab.timing import Deadline, wait_until

A = Addresses(Family.IPV4)
ECHO = echo(A)
ENDS = slice_of(ECHO, A, endpoint(A, 10))

OTHERS = ip_address("10.96.9.1")
WATCHES = 500
RUDE = f"""
import os, signal, socket, sys
ask = b"GET /api/v1/services?watch=true&sendInitialEvents=true HTTP/1.1\\r\\nHost: api\\r\\n\\r\\n"
kept = []
for said in ([ask] * {WATCHES}) + [b"\\x16\\x03\\x01\\x00\\xff", b"A" * 100000, b"GET\\r\\n\\r\\n", ask[:9]]:
    each = socket.socket()
    each.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    each.connect(("127.0.0.1", {API_PORT}))
    try:
        each.sendall(said)
    except ConnectionError:
        pass
    kept.append(each)
print("all have spoken", flush=True)
signal.pause()
"""


async def disturbed(launcher: Launcher) -> dict[str, list[bool]]:
    """Of each kube-proxy: whether it hears of a Service, of a change, and of its end, while no other client reads."""
    said: dict[str, list[bool]] = {}
    for path in os.environ["TEST_KUBE_PROXIES"].split(":"):
        os.environ["TEST_KUBE_PROXY"] = path
        async with staged(launcher, "kube-proxy/iptables") as stage:
            told: list[str] = []
            rude = await launcher.start(
                stage.context.netns, [sys.executable, "-c", RUDE], netns_name=stage.context.name, heard=told.append
            )
            await wait_until(lambda told=told: bool(told), Deadline.after(30), "rude clients")
            heard = said[path] = [told == ["all have spoken"]]
            # More than a socket holds, so that each of those who do not read has something that it does not take.
            stage.hold(
                ECHO, ENDS, *(echo(A, name=f"s{number}", cluster_ips=(OTHERS + number,)) for number in range(100))
            )
            heard.append("default/echo" in await stage.synced())
            stage.store.delete(ECHO.key)
            heard.append(str(ECHO.cluster_ips[0]) not in await stage.synced())
            await rude.stop(Deadline.after(10))
    return said


def test_none_of_them_disturbs_a_kube_proxy_of_any_version(monkeypatch: pytest.MonkeyPatch) -> None:
    paths = [str(each.path) for each in Sources.of_user().obtained()]
    if not paths:
        pytest.skip("needs a kube-proxy in the cache; 'proxylab engines --obtain' puts one there")
    monkeypatch.setenv("TEST_KUBE_PROXIES", ":".join(paths))
    found: dict[str, Any] = sandboxed(disturbed)
    assert found == {path: [True, True, True] for path in paths}
