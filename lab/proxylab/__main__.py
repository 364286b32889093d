"""``python -m proxylab``: the same as the ``proxylab`` command."""

from proxylab.cli import main

if __name__ == "__main__":
    main()
