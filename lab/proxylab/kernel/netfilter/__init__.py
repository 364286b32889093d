"""iptables, nf_tables and connection tracking: loading rules, reading them back, tracing packets through them."""
