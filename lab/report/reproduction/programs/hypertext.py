"""Ask by HTTP and answer, as far as a probe does.

Owns: the words of a request and of an answer, and what is read of both.
Must not: need anything but python3 and its standard library, or touch sockets.

A request bears the token of its flow in a header: behind a masquerade its source port tells nobody whose it is.
"""

import http.client
import json


def request(words):
    """GET /healthz, which every health-check node port serves."""
    return b"GET /healthz HTTP/1.1\r\nHost: proxylab\r\nConnection: close\r\nProxylab: " + words + b"\r\n\r\n"


def token_in(data):
    """The token in a whole request; empty for what is none."""
    at = data.find(b"proxylab probe ")
    return data[at : at + 48] if data.startswith(b"GET ") and at > 0 and data.endswith(b"\r\n\r\n") else b""


def response(status, local_endpoints, name):
    """An answer of a health-checking proxy, or of a pod where no number of endpoints is told."""
    told = {"pod": name} if local_endpoints is None else {"localEndpoints": local_endpoints}
    body = json.dumps(told).encode()
    reason = http.client.responses.get(status, "").encode()
    head = b"HTTP/1.1 %d %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\nConnection: close\r\n\r\n"
    return head % (status, reason, len(body)) + body


def shown(status, local_endpoints):
    """Status and number in words."""
    if local_endpoints is None:
        return f"{status}"
    return f"{status} with {local_endpoints} local endpoint{'' if local_endpoints == 1 else 's'}"


def judge_answer(wanted, heard):
    """A line if an answer, whole or not, is not what is wanted."""
    head, _, body = heard.partition(b"\r\n\r\n")
    words = head.split()
    status = int(words[1]) if len(words) > 1 and words[0].startswith(b"HTTP/1.") and words[1].isdigit() else 0
    try:
        told = json.loads(body)
    except ValueError:
        told = {}
    number = told.get("localEndpoints") if isinstance(told, dict) else None
    if status != wanted["status"] or wanted["local endpoints"] not in (None, number):
        due = shown(wanted["status"], wanted["local endpoints"])
        yield f"expected HTTP {due}, seen {shown(status, number) if status else 'no answer'}"
