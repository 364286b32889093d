"""Small messages leave at once: TCP would hold one back until the one before is acknowledged, which takes 40 ms.

By TLS a request follows the end of the handshake so, and each event of a watch the one before.
"""

import asyncio
import socket
from ipaddress import ip_address

from sandboxed import sandboxed

from proxylab.control.http_server import listen_inside
from proxylab.control.kubernetes.api_client import ApiClient
from proxylab.control.kubernetes.settings import API_PORT
from proxylab.kernel.sandbox.launcher import Launcher
from proxylab.kernel.sandbox.netns import make_netns
from proxylab.timing import Deadline

# Of `openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -subj /CN=test -days 36500`.
AUTHORITY = """\
-----BEGIN CERTIFICATE-----
MIIBdTCCARugAwIBAgIUfk05KaVbZ8YuDUyQeR+i/2ypVkEwCgYIKoZIzj0EAwIw
DzENMAsGA1UEAwwEdGVzdDAgFw0yNjExMjgyMTU2MzdaGA8yMTI2MTEwNDIxNTYz
N1owDzENMAsGA1UEAwwEdGVzdDBZMBMGByqGSM49AgEGCCqGSM49AwEHA0IABG7S
+s+m9KxOxAFY+t2+cMFRewXlkEkbnnF2auzFihbS22Ker4gyBujDr9SCmUk+SChP
Oc52rWviW5hvYO7jjyqjUzBRMB0GA1UdDgQWBBR5Wav3uWgFCQl59uhgrVnl81uD
tjAfBgNVHSMEGDAWgBR5Wav3uWgFCQl59uhgrVnl81uDtjAPBgNVHRMBAf8EBTAD
AQH/MAoGCCqGSM49BAMCA0gAMEUCIDZGGB6u1Qm+wIv1WUR9HF6719u0Y/lI7Znm
QUO/CoiEAiEAjhq4faBgGHVim3IYjXWNz4xsHVey3cBfSDIngdLb2G0=
-----END CERTIFICATE-----
"""


async def held_back(launcher: Launcher) -> list[bool]:
    """Whether the kernel may hold back what each end of a connection to an API server sends."""
    netns = make_netns("control-plane")
    await launcher.run(netns, ("ip", "link", "set", "lo", "up"), netns_name="c", deadline=Deadline.after(10))
    with listen_inside(netns, ip_address("127.0.0.1"), API_PORT) as listening:
        dialled = await ApiClient(netns, AUTHORITY, "token").dial()
        accepted, _ = await asyncio.get_running_loop().sock_accept(listening)
        with dialled, accepted:
            found = [not each.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) for each in (dialled, accepted)]
    launcher.forget(["c"])
    netns.close()
    return found


def test_neither_end_of_a_connection_to_an_api_server_holds_small_messages_back() -> None:
    assert sandboxed(held_back) == [False, False]
