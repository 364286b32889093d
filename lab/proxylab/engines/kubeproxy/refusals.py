"""Settings that the real kube-proxy refuses when it starts: known beforehand, so that the message names them.

kube-proxy ends with one line in its log, after the lab is built. The locked gates are those of Kubernetes 1.37
(``LockToDefault`` in pkg/features/kube_features.go, and in the same files of apiserver and client-go).
"""

from collections.abc import Iterator, Mapping
from typing import Final

from proxylab.cluster.configuration import ProxyConfiguration
from proxylab.engines.protocol import EngineChoice
from proxylab.errors import ScenarioError

_NODE_PORT_WORDS: Final = (1, 37)

_LOCKED: Final[Mapping[tuple[int, int], str]] = {
    (1, 30): "PodSchedulingReadiness",
    (1, 32): "CustomResourceFieldSelectors ServiceAccountTokenJTI ServiceAccountTokenNodeBindingValidation "
    "ServiceAccountTokenPodNodeInfo TopologyManagerPolicyOptions",
    (1, 33): "CPUManagerPolicyOptions CRDValidationRatcheting MatchLabelKeysInPodAffinity NFTablesProxyMode "
    "NodeInclusionPolicyInPodTopologySpread RecursiveReadOnlyMounts ServiceAccountTokenNodeBinding",
    (1, 34): "KubeletCgroupDriverFromCRI KubeletTracing MultiCIDRServiceAllocator NodeSwap WinDSR WinOverlay "
    "RecoverVolumeExpansionFailure RelaxedEnvironmentVariableValidation SeparateTaintEvictionController",
    (1, 35): "AggregatedDiscoveryRemoveBetaType AllowOverwriteTerminationGracePeriodSeconds=false "
    "DisableAllocatorDualWrite DynamicResourceAllocation ExecProbeTimeout ImageMaximumGCAge InPlacePodVerticalScaling "
    "JobManagedBy PodObservedGenerationTracking PreferSameTrafficDistribution SupplementalGroupsPolicy SystemdWatchdog",
    (1, 36): "CSIServiceAccountTokenSecrets DRAAdminAccess DeclarativeValidation DisableNodeKubeProxyVersion "
    "ExternalServiceAccountTokenSigner GitRepoVolumeDriver=false ImageVolume InOrderInformers KubeletFineGrainedAuthz "
    "KubeletPSI KubeletPodResourcesDynamicResources KubeletPodResourcesGet MutableCSINodeAllocatableCount "
    "NodeLogQuery ProcMountType SELinuxChangePolicy SELinuxMountReadWriteOncePod SeparateCacheWatchRPC=false "
    "UserNamespacesSupport VolumeAttributesClass",
    (1, 37): "DRADeviceTaintRules DRADeviceTaints DRAExtendedResource DRAPrioritizedList DRAResourceClaimDeviceStatus "
    "DeclarativeValidationTakeover=false DisableCPUQuotaWithExclusiveCPUs HPAConfigurableTolerance HostnameOverride "
    "InPlacePodVerticalScalingInitContainers NodeDeclaredFeatures PLEGOnDemandRelist "
    "PodReadyToStartContainersCondition RelaxedServiceNameValidation WatchCacheInitializationPostStartHook",
}
"""The gates by the version that locked them: to true, unless to false."""


def refuse_settings(choice: EngineChoice, configuration: ProxyConfiguration) -> None:
    """Refuse what the chosen kube-proxy does not accept; an embedded engine is not meant.

    Raises:
        ScenarioError: with a line for each setting.
    """
    if choice.upstream is None:
        return
    gates = {**configuration.feature_gates, **choice.upstream.feature_gates}
    refused = [*_locked(choice, gates), *_node_ports(choice, configuration)]
    if refused:
        raise ScenarioError(refused)


def _locked(choice: EngineChoice, gates: Mapping[str, bool]) -> Iterator[str]:
    for since, names in _LOCKED.items():
        for name, _, value in (each.partition("=") for each in names.split()):
            locked = value != "false"
            if choice.version >= since and gates.get(name, locked) is not locked:
                yield (
                    f"feature gate {name}: kube-proxy has locked it to {str(locked).lower()} since "
                    f"{since[0]}.{since[1]}, and does not start otherwise; remove it, or choose an older version than "
                    f"{choice.name}"
                )


def _node_ports(choice: EngineChoice, configuration: ProxyConfiguration) -> Iterator[str]:
    if configuration.needs_node_port_words and choice.version < _NODE_PORT_WORDS:
        yield (
            f"KubeProxyConfiguration.nodePortAddresses: {choice.name} knows neither localhost nor primary beside "
            "another entry; write networks, or choose kube-proxy 1.37 or later"
        )
