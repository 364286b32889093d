"""``proxylab merge``: makes one report of the reports of several runs, or of the shards of one."""
