"""Mode nftables: kube-proxy's table for nft(8).

``render`` turns service ports into rules and elements, ``transaction`` writes the text of one load, and ``writer``
brings it into the kernel. Callers hand in what runs nft.

The way of a packet; names with @ are maps and sets::

    prerouting, output (filter, before DNAT) ─▶ firewall-check ─ @firewall-ips ─▶ firewall-… ─ drops other sources
    prerouting, output (nat) ─▶ services ─┬─ @service-ips ───────▶ service-… or local-…, or external-…
                                          └─ @service-nodeports ─▶ external-… ─▶ service-… or local-…
    service-…, local-… ─ one at random ─▶ DNAT, with session affinity in a chain endpoint-…
    postrouting (nat) ─▶ masquerading ─ masquerades what is marked, and @hairpin-connections
    input, forward, output (filter) ─▶ service-endpoints-check, nodeport-endpoints-check ─▶ REJECT and DROP without
                                       an endpoint; cluster-ips-check ─ refuses what is left at @cluster-ips
"""
