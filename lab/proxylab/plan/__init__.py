"""The kernel's desired state for a scenario, as pure data.

The package owns addresses, names, links, routes and sysctls, the SNAT source that each path implies, and where each
probe starts and may end. ``kernel`` makes a plan real.
"""
