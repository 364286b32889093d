"""Mode ipvs: kube-proxy's virtual servers, sets and rules (pkg/proxy/ipvs), deprecated since 1.35.

The way of a packet to a frontend::

    PREROUTING, OUTPUT   nat: KUBE-SERVICES marks it for masquerading, by its membership in sets
    routing              its destination is on kube-ipvs0, so it is for the node itself
    INPUT                filter: KUBE-PROXY-FIREWALL has source ranges, KUBE-IPVS-FILTER guards the addresses
    IPVS                 chooses a destination of the virtual server, and sends the packet on
    POSTROUTING          nat: KUBE-POSTROUTING masquerades it

``tables`` plans virtual servers, sets and addresses, and ``rules`` the rules around them. ``writer`` brings both into
the kernel through ``node``. ``Ending`` lets connections outlive their endpoint.
"""
