"""Addresses with a port, as a KubeProxyConfiguration has them."""

import pytest

from proxylab.cluster.configuration import SocketAddress


@pytest.mark.parametrize("text", ["10.0.0.1:80", "[fd00::1]:80", "0.0.0.0:65535"])
def test_an_address_with_a_port_is_written_as_it_was_read(text: str) -> None:
    assert str(SocketAddress.parse(text)) == text


@pytest.mark.parametrize(
    "text",
    ["10.0.0.1", "10.0.0.1:", "10.0.0.1:0", "10.0.0.1:65536", "10.0.0.1: 80", "10.0.0.1:8_0", "[fd00::1]:\u0668"],
)
def test_what_python_takes_for_a_number_is_not_always_a_port(text: str) -> None:
    with pytest.raises(ValueError, match="is not a port"):
        SocketAddress.parse(text)
