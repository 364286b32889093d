"""What is seen of packets: taps on devices, stacks of nodes, counters, the kernel's reasons for drops."""
