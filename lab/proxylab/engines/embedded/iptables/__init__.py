"""Mode iptables: kube-proxy's rules for iptables-restore.

Owns: rendering of service ports into rules (``render``), the text of one load (``restore``), and the proxier of one
family that keeps the kernel in step (``proxier``).
Must not: run iptables.

The way of a packet, and the module whose rules it meets::

    PREROUTING, OUTPUT (nat) ─▶ KUBE-SERVICES ─┬─ cluster IP ─────────────▶ KUBE-SVC-… or KUBE-SVL-…
                                  (fronts)     ├─ external IP ────────────▶ KUBE-EXT-… ─▶ KUBE-SVC-… or KUBE-SVL-…
                                               ├─ load-balancer IP ─▶ [KUBE-FW-… ─▶] KUBE-EXT-…
                                               └─ local address ─▶ KUBE-NODEPORTS ─▶ KUBE-EXT-…
                                                                                         (bodies)
    KUBE-SVC-…, KUBE-SVL-… ─ one at random ─▶ KUBE-SEP-… ─ DNAT to the endpoint
    POSTROUTING (nat) ─▶ KUBE-POSTROUTING ─ MASQUERADE what KUBE-MARK-MASQ has marked        (fixed)
    INPUT, FORWARD, OUTPUT (filter) ─▶ REJECT and DROP for what found no endpoint            (fixed, fronts)
"""
