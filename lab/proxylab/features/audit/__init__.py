"""``proxylab audit``: asks every frontend of every Service from every kind of sender, and needs no probe for that."""
