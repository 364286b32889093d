"""What the kernel should look like for a scenario, as pure data.

Owns: addresses, names, links, routes, sysctls; the SNAT source each path implies; where each probe starts and may end.
Must not: touch the kernel, or know how it is done (``kernel`` makes a plan real).
"""
