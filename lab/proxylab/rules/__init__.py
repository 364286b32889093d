"""Rules of iptables and nftables as data: read from the texts that the tools print, printed again, and asked.

``rule`` has the model. ``iptables`` and ``nftables`` read and print it, ``texts`` reads either. ``packets`` says
whether packets match a rule: yes, no, or may. ``effects`` says what it then does to them.
"""
