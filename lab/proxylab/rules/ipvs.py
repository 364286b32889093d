"""Rules in the words of ipvsadm: lines of ``ipvsadm --save --numeric``, which ``ipvsadm --restore`` takes.

A virtual server (``-A``) is a rule that matches its packets; a destination of it (``-a``) is one that matches the same
packets and leads some of them elsewhere.

>>> rule = read_rule("-a -t 10.96.0.10:80 -r 10.244.1.10:8080 -m -w 1")
>>> rule.parts[0].name, rule.target, rule.action.after("-r")
('--tcp-service', '-a', '10.244.1.10:8080')
"""

from typing import Final

from proxylab.rules.rule import Action, Match, Rule, Tool

SERVER: Final = "-A"
DESTINATION: Final = "-a"

SERVICES: Final = {
    "-t": "--tcp-service",
    "-u": "--udp-service",
    "--sctp-service": "--sctp-service",
    "-f": "--fwmark-service",
}
"""What identifies a virtual server. The long names are those of conditions: ``-f`` is another one in iptables."""
PROTOCOLS: Final = {"--tcp-service": "tcp", "--udp-service": "udp", "--sctp-service": "sctp"}
"""The protocol of each; a firewall mark has none."""
_PRINTED: Final = {long: short for short, long in SERVICES.items()}
_COMMANDS: Final = {"--add-service": SERVER, "--add-server": DESTINATION, SERVER: SERVER, DESTINATION: DESTINATION}


def read_rule(text: str) -> Rule | None:
    """The virtual server or destination of a line; ``None`` for any other text."""
    command, *words = text.split() or [""]
    options = [SERVICES.get(word, word) for word in words]
    if command not in _COMMANDS or len(options) < 2 or options[0] not in _PRINTED:
        return None
    return Rule("", (Match(options[0], (words[1],)), Action(_COMMANDS[command], tuple(words[2:]))), Tool.IPVSADM)


def print_rule(rule: Rule) -> str:
    """The rule as ``ipvsadm --save --numeric`` prints it."""
    (action,) = rule.actions
    return " ".join([action.name, identity(rule), *action.words])


def identity(rule: Rule) -> str:
    """What identifies the virtual server of a rule, in ipvsadm's options: ``-t 10.96.0.10:80``."""
    service = next(rule.matches)
    return f"{_PRINTED[service.name]} {service.value}"


def end_of(text: str) -> tuple[str, str]:
    """The address and port of an end: ``10.96.0.10:80``, ``[fd00::1]:80``."""
    host, _, port = text.rpartition(":")
    return host.strip("[]"), port
