"""``proxylab graph``: draws a lab's network, and the path of a packet through it, planned or captured."""
