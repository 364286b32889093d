"""iptables, nf_tables and connection tracking: rules are loaded, read back and traced."""
