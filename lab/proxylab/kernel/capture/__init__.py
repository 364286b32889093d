"""What the lab sees of packets: captures on devices and in node stacks, kernel counters, drop reasons."""
