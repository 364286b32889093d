"""``proxylab bench``: how a proxy's times and memory grow with the number of Services, and what has changed since."""
