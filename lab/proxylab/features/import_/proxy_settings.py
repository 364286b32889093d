"""What a cluster's proxies are: their version, their mode, and their KubeProxyConfiguration.

kubeadm and others keep the configuration in the ConfigMap kube-proxy of kube-system. The version is that of the proxy's
image, or else the kubelet's, which a Node reports: the two are seldom more than a minor apart.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any, Final

from msgspec import Struct

from proxylab.cluster.configuration import Mode
from proxylab.errors import ScenarioError
from proxylab.features.import_.manifests import Data
from proxylab.features.import_.omissions import Omissions
from proxylab.features.import_.reading import Raw, at, namespaced
from proxylab.scenario.configuration import CONFIGURATION_KIND, CONFIGURATION_VERSION, KubeProxyManifest
from proxylab.scenario.document import Problems
from proxylab.scenario.keys import Declared, declared_keys
from proxylab.scenario.reading import read_plain
from proxylab.scenario.source import read_documents

CONFIG_MAP: Final = "kubectl -n kube-system get configmap kube-proxy -o yaml"

_IMAGE: Final = re.compile(r".*\bkube-proxy(?:-\w+)?:(v\d+\.\d+(?:\.\d+)?).*")
_KUBELET: Final = re.compile(r"(v\d+\.\d+\.\d+).*")
_BY_DEVICE: Final = ("BridgeInterface", "InterfaceNamePrefix")


class LiveProxy(Struct, frozen=True, kw_only=True):
    """The proxies of a cluster; ``version`` is empty if nothing says it, ``configuration`` if there is none."""

    version: str = ""
    mode: Mode = Mode.IPTABLES
    configuration: Data

    @property
    def engine(self) -> str:
        """The engine that is the cluster's proxy; empty if nothing says which it is."""
        if self.version:
            return f"kube-proxy@{self.version}/{self.mode}"
        return f"kube-proxy/{self.mode}" if self.configuration else ""


def read_proxy(
    config_maps: Iterable[Raw],
    pods: Iterable[Raw],
    workloads: Iterable[Raw],
    nodes: Iterable[Raw],
    omissions: Omissions,
) -> LiveProxy:
    """Read the ConfigMap, the images of pods and workloads, and the kubelets' versions."""
    configuration: Data = {}
    for raw in config_maps:
        if namespaced(raw) == ("kube-system", "kube-proxy"):
            configuration = _configuration(raw, omissions)
        else:
            omissions.add("ConfigMaps", "/".join(namespaced(raw)))
    images = Counter(
        match[1] for each in (*pods, *workloads) for text in _images(each) if (match := _IMAGE.match(text))
    )
    kubelets = Counter(
        match[1]
        for each in nodes
        if (match := _KUBELET.match(str(at(each, "status", "nodeInfo", "kubeletVersion") or "")))
    )
    versions = images or kubelets
    if len(versions) > 1:
        omissions.add("versions of the proxy, of which a lab has one", ", ".join(versions))
    mode = str(configuration.get("mode") or Mode.IPTABLES)
    return LiveProxy(
        version=versions.most_common(1)[0][0] if versions else "",
        mode=Mode(mode) if mode in tuple(Mode) else Mode.IPTABLES,
        configuration=configuration,
    )


def _images(raw: Raw) -> Iterator[str]:
    spec = at(raw, "spec", "template", "spec") if at(raw, "spec", "template") else at(raw, "spec")
    yield from (str(at(each, "image") or "") for each in at(spec, "containers") or [])


def _configuration(raw: Raw, omissions: Omissions) -> Data:
    """The configuration in a ConfigMap, with the keys that the lab reads; empty after noting why it is not readable."""
    texts = [text for text in (at(raw, "data") or {}).values() if isinstance(text, str) and CONFIGURATION_KIND in text]
    for text in texts:
        for document in read_documents(text, "ConfigMap kube-proxy", Problems())[0]:
            value = document.value
            if isinstance(value, dict) and value.get("kind") == CONFIGURATION_KIND:
                if value.get("detectLocalMode") in _BY_DEVICE:
                    omissions.add("detection of local pods by device", f"detectLocalMode {value['detectLocalMode']}")
                    value = {key: each for key, each in value.items() if not key.startswith("detectLocal")}
                kept = {**_kept(KubeProxyManifest, value), "apiVersion": CONFIGURATION_VERSION}
                try:
                    read_plain(KubeProxyManifest, kept)
                except ScenarioError as error:
                    what = f"ConfigMap kube-proxy: {error.problems[0]}"
                    omissions.add("the proxy's configuration, which the lab cannot read", what)
                    return {}
                return kept
    omissions.add("the proxy's configuration", f"the ConfigMap kube-proxy has no {CONFIGURATION_KIND}")
    return {}


def _kept(declared: type[Declared], written: dict[str, Any]) -> Data:
    """The keys that have an effect in a lab, and a value."""
    kept: Data = {}
    for key in declared_keys(declared):
        value = written.get(key.alias)
        inner = type(key.default)
        if isinstance(value, dict) and issubclass(inner, Declared):
            value = _kept(inner, value)
        if value not in (None, [], {}) and (value != "" or key.alias == "clusterCIDR"):
            kept[key.alias] = value  # an empty clusterCIDR means that the proxy recognises no pods
    return kept
