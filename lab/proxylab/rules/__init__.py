"""Rules of iptables, nftables and IPVS as data: read from the texts that the tools print, printed again, and asked.

``rule`` has the model. ``iptables``, ``nftables`` and ``ipvs`` read and print it, ``ipset`` the sets that rules of
iptables name, and ``texts`` reads a rule of any tool. ``packets`` says whether packets match a rule: yes, no, or may.
``effects`` says what it then does to them.
"""
