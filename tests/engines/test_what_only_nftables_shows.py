"""What a scenario asserts of mode nftables alone is lost without what it is about, on each proxy of that mode."""

from pathlib import Path

import pytest
from judged_runs import judged_cases
from sandboxed import ROOT

from proxylab.binaries.binary import Binary

# By file: the text that is replaced, by what, and the probes that are red then.
EDITS = {
    # A proxy that does not end goes on to serve the former address alone.
    "steps/a-node-gets-another-address": (
        'change: {nodes: {node-a: {internalIPs: [172.18.0.77, "fd00:172:18::77"]}}}',
        (
            'change: {engines: {node-a: pause}, nodes: {node-a: {internalIPs: [172.18.0.77, "fd00:172:18::77"]}}}\n'
            "    until: {engines: {node-b: synced}}"
        ),
        {
            f"node-a gets another address: {probe}"
            for probe in (
                "NodePort is served at the new address and masqueraded with it",
                "NodePort is served at the number of the new address",
                "NodePort is served at the number of the new address over IPv6",
                "NodePort of policy Local is served at the new address",
                "another node reaches the node port at the new address",
            )
        },
    ),
    "steps/nftables-table-deleted": (
        "    change: {engines: {node-a: flush}}\n    until: {rules: {node-a: absent}, elapsed: 2s}\n",
        "",
        {
            (
                "the nftables table of the proxy is deleted: "
                "ClusterIP is not translated for two seconds after the table is deleted"
            )
        },
    ),
    "steps/downgrade-node-by-node": (
        "    change: {engines: {node-a: v1.34/iptables}}\n",
        "",
        {
            (
                "the first node goes back to 1.34 in mode iptables, and other nodes lose nothing: "
                "NodePort on 127.0.0.1 is served by the node that went back to mode iptables"
            )
        },
    ),
    "steps/proxy-mode-changes-from-nftables": (
        "    change: {engines: {node-a: iptables}}\n",
        "",
        {
            (
                "the proxy changes to mode iptables, and the stream is answered again: "
                "NodePort on 127.0.0.1 is served after the change to mode iptables"
            )
        },
    ),
}


# The scenarios pass on both in every run. That one of them can fail, either engine shows.
@pytest.mark.parametrize(
    "engine", [pytest.param("kube-proxy/nftables", marks=pytest.mark.thorough), "embedded/nftables"]
)
@pytest.mark.parametrize("file", EDITS)
def test_it_turns_red_without_what_it_is_about(file: str, engine: str, kube_proxy: Binary, tmp_path: Path) -> None:
    text, becomes, red = EDITS[file]
    written = (ROOT / "scenarios" / f"{file}.lab.yaml").read_text()
    assert text in written
    edited = tmp_path / "edited.lab.yaml"
    edited.write_text(written.replace(text, becomes))
    cases = judged_cases(edited, engine, kube_proxy)
    probes = [probe for case in cases for probe in case["probes"]]
    found = {probe["name"].partition("[")[0] for probe in probes if probe["judgement"] != "pass"}
    assert found == red
