"""The engine of the lab's own: pure renderers, one per proxy mode, and the loop that keeps the kernel in step.

Shared by all modes: ``ports`` (what a Service offers, normalised; it rebuilds what changed);
``categories`` (which endpoints count on this node); ``settings`` and ``node``; ``sync``, the loop, ``proxier``, which
chooses between full and partial syncs, and ``node_work``, the work besides rules. A mode is a package beside them. Its
module ``mode`` says all in which it differs; only ``node`` and ``meter`` touch the kernel: everything else is handed a
loader.
"""
