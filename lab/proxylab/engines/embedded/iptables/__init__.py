"""Mode iptables: kube-proxy's rules for iptables-restore.

``render`` turns service ports into rules, ``restore`` writes the text of one load, and ``writer`` brings them into
the kernel. Callers hand in what runs iptables.

The way of a packet, and the module whose rules it meets::

    PREROUTING, OUTPUT (nat) ─▶ KUBE-SERVICES ─┬─ cluster IP ─────────────▶ KUBE-SVC-… or KUBE-SVL-…
                            (dispatch_rules)   ├─ external IP ────────────▶ KUBE-EXT-… ─▶ KUBE-SVC-… or KUBE-SVL-…
                                               ├─ load-balancer IP ─▶ [KUBE-FW-… ─▶] KUBE-EXT-…
                                               └─ local address ─▶ KUBE-NODEPORTS ─▶ KUBE-EXT-…
                                                                                   (service_chains)
    KUBE-SVC-…, KUBE-SVL-… ─ one at random ─▶ KUBE-SEP-… ─ DNAT to the endpoint
    POSTROUTING (nat) ─▶ KUBE-POSTROUTING ─ MASQUERADE what KUBE-MARK-MASQ has marked        (fixed)
    INPUT, FORWARD, OUTPUT (filter) ─▶ REJECT and DROP without an endpoint           (fixed, dispatch_rules)
"""
