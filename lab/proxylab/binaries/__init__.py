"""Where the kube-proxy comes from that a lab runs.

Owns: the sources of binaries, the cache, and the choice among them. All of it happens in the user's world, before a lab
process is asked for anything.
Must not: enter the sandbox, or run a kube-proxy for anything but its version.
"""
