"""The Ingress controller on a machine that lacks a program, and the configurations that it loads."""

import asyncio
from collections.abc import Mapping, Sequence
from ipaddress import ip_address
from typing import Any, cast

import pytest
from msgspec.structs import replace

from proxylab.addresses import Family
from proxylab.cluster.objects import Endpoint, EndpointPort, EndpointSlice, Service, ServicePort, Unstructured
from proxylab.cluster.store import Store
from proxylab.control.ingress import controller as module
from proxylab.control.ingress.controller import IngressController, IngressPod
from proxylab.control.ingress.nginx_conf import CONFIGURATION, NginxListen
from proxylab.control.pod_program import PodProgram
from proxylab.errors import CapabilityError
from proxylab.kernel.sandbox.launcher import Launcher

BACKEND = {"service": {"name": "web", "port": {"number": 80}}}
INGRESS = Unstructured(
    api_version="networking.k8s.io/v1",
    kind="Ingress",
    plural="ingresses",
    namespace="default",
    name="web",
    content={"spec": {"defaultBackend": BACKEND}},
)
SLICE = EndpointSlice(
    name="web-1",
    service="web",
    address_type=Family.IPV4,
    ports=(EndpointPort(port=8080),),
    endpoints=(Endpoint(addresses=(ip_address("10.244.0.10"),)),),
)


class Machine:
    """Stands for the launcher: it has these programs."""

    def __init__(self, *programs: str) -> None:
        self.programs = programs

    def path_of(self, command: str) -> str | None:
        return f"/usr/bin/{command}" if command in self.programs else None


class Nginx:
    """Stands for the program in its pod: it keeps what it is given, and loads it at once."""

    netns = None

    def __init__(self) -> None:
        self.loaded: list[str] = []
        self.signals = 0

    async def start(self, _argv: Sequence[str], files: Mapping[str, str]) -> None:
        self.loaded.append(files[CONFIGURATION])

    async def write(self, _path: str, text: str) -> None:
        self.loaded.append(text)

    def signal(self, _number: int) -> None:
        self.signals += 1

    def count(self, _words: str) -> int:
        return self.signals

    async def wait(self, condition: Any, _deadline: object, _why: str) -> None:
        assert await condition()

    async def stop(self) -> None: ...


def controller(machine: Machine, nginx: Nginx, store: Store, *, tls: bool = False) -> IngressController:
    pod = IngressPod(cast("PodProgram", nginx), "controller", (NginxListen(443 if tls else 80, tls),), (4,))
    return IngressController([pod], store, cast("Launcher", machine))


@pytest.mark.parametrize(
    ("programs", "tls", "missing", "cure"),
    [((), False, "nginx, which", "install nginx-light"), (("nginx",), True, "openssl, which", "install openssl")],
)
def test_a_machine_without_a_program_says_which_and_the_cure(
    programs: tuple[str, ...], tls: bool, missing: str, cure: str
) -> None:
    with pytest.raises(CapabilityError, match=f"this machine lacks {missing}.*; {cure}"):
        asyncio.run(controller(Machine(*programs), Nginx(), Store(), tls=tls).start())


def test_nginx_loads_a_configuration_again_only_where_it_differs(monkeypatch: pytest.MonkeyPatch) -> None:
    nginx, store = Nginx(), Store()
    web = Service(name="web", ports=(ServicePort(port=80, target_port=8080),))

    async def fetch(*_: object) -> tuple[int, bytes]:
        return 200, str(nginx.signals + 1).encode()

    async def follow() -> None:
        for thing in (INGRESS, web, SLICE):
            store.apply(thing)
        serving = controller(Machine("nginx"), nginx, store)
        await serving.start()
        store.apply(replace(web, labels={"a": "b"}))
        await serving.settle()
        assert nginx.signals == 0
        store.apply(replace(SLICE, endpoints=(Endpoint(addresses=(ip_address("10.244.1.10"),)),)))
        await serving.settle()
        await serving.settle()
        await serving.stop()

    monkeypatch.setattr(module, "fetch", fetch)
    asyncio.run(follow())
    assert nginx.signals == 1
    assert ["10.244.0.10:8080" in nginx.loaded[0], "10.244.1.10:8080" in nginx.loaded[-1]] == [True, True]
    assert len(nginx.loaded) == 2
