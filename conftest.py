"""Settings of the project's own tests."""

from hypothesis import settings

pytest_plugins = ["pytester"]

collect_ignore_glob = ["tests/golden/scenario/*.lab.yaml"]  # texts to be read, not labs to be run

# Examples are told by the failure itself, so that it is the same on every machine; a database would remember them here.
settings.register_profile("proxylab", database=None, deadline=None, print_blob=True)
settings.load_profile("proxylab")
