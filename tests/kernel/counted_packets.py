"""Loads rules in its own network namespace, sends packets one by one, and prints what the rules counted after each.

``test_generated_rules`` starts it, with a plan as JSON on standard input. The namespace has all addresses on its
loopback device, and lets nothing in, so that no packet is answered: the rules of its output see those sent alone.
"""

import json
import socket
import struct
import subprocess
import sys

TCP, UDP, SCTP, ICMP, ICMPV6 = 6, 17, 132, 1, 58
SYN = 2


def payload(protocol: int, source_port: int, port: int) -> bytes:
    if protocol == TCP:
        return struct.pack("!HHIIBBHHH", source_port, port, 1, 0, 5 << 4, SYN, 1024, 0, 0)
    if protocol == UDP:
        return struct.pack("!HHHH", source_port, port, 8, 0)
    if protocol == SCTP:
        return struct.pack("!HHII", source_port, port, 0, 0)
    return struct.pack("!BBHHH", 8 if protocol == ICMP else 128, 0, 0, 1, 1)


def send(protocol: int, source: str, source_port: int, destination: str, port: int) -> None:
    family = socket.AF_INET6 if ":" in source else socket.AF_INET
    with socket.socket(family, socket.SOCK_RAW, protocol) as sender:
        sender.bind((source, 0))
        sender.sendto(payload(protocol, source_port, port), (destination, 0))


def run(command: list[str], text: str = "") -> str:
    done = subprocess.run(command, input=text, capture_output=True, text=True, timeout=60, check=False)
    if done.returncode:
        sys.stderr.write(f"{command}: {done.stderr.splitlines()[:1]}\n")
    return done.stdout


def main() -> None:
    plan = json.load(sys.stdin)
    run(["ip", "link", "set", "lo", "up"])
    for address in plan["addresses"]:
        run(["ip", "address", "add", address, "dev", "lo", *(["nodad"] if ":" in address else [])])
    for command, text in plan["load"]:
        run(command, text)
    shown = [run(plan["show"])]
    for packet in plan["packets"]:
        send(*packet)
        shown.append(run(plan["show"]))
    json.dump(shown, sys.stdout)


if __name__ == "__main__":
    main()
