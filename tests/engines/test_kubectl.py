"""kubectl, a client of Kubernetes' own, against the lab's API server."""

import asyncio
import shutil
from ipaddress import ip_address

import pytest
from msgspec.structs import replace
from sandboxed import sandboxed

from proxylab.cluster.objects import Namespace, Node, Pod
from proxylab.cluster.store import Store
from proxylab.control.apiserver import API_PORT, ApiServer
from proxylab.kernel.sandbox.launcher import Launcher
from proxylab.kernel.sandbox.netns import make_netns
from proxylab.timing import Deadline, wait_until

KUBECTL = ("kubectl", "--server", f"http://127.0.0.1:{API_PORT}", "--cache-dir", "/run/kubectl")
POD = Pod(name="p", node_name="node-a", addresses=(ip_address("10.244.0.5"),), ready=False)


async def asked(launcher: Launcher) -> list[str]:
    netns = make_netns("node-a")

    async def run(*words: str) -> str:
        done = await launcher.run(netns, words, netns_name="k", deadline=Deadline.after(30))
        return done.stdout.decode() or done.stderr.decode()

    await run("ip", "link", "set", "lo", "up")
    store = Store()
    for thing in (Namespace(name="default"), Node(name="node-a"), POD):
        store.apply(thing)
    api = ApiServer(store)
    await api.listen(netns)
    try:
        said = [await run(*KUBECTL, "get", "nodes,pods", "-A", "-o", "name")]
        waiting = asyncio.create_task(run(*KUBECTL, "wait", "--for=condition=Ready", "pod/p", "--timeout=20s"))
        watching = asyncio.create_task(run("timeout", "5", *KUBECTL, "get", "pods", "-w", "-o", "name"))
        await wait_until(lambda: len(api._watches) == 2, Deadline.after(20), "two watches of pods")
        store.apply(replace(POD, ready=True))
        said.append(await waiting)
        store.delete(POD.key)
        said.append(await watching)
        return said
    finally:
        await api.close()
        launcher.forget(["k"])


@pytest.mark.skipif(shutil.which("kubectl") is None, reason="needs kubectl; 'apt-get install kubernetes-client'")
def test_get_watch_and_wait() -> None:
    listed, waited, watched = sandboxed(asked)
    assert listed.split() == ["node/node-a", "pod/p"]
    assert waited == "pod/p condition met\n"
    assert watched.split()[:1] == ["pod/p"]
    assert len(watched.split()) >= 2
