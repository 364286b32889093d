"""Runs one scenario and prints its progress line by line, for a test that kills it on the way."""

import sys
from pathlib import Path


def say(word: str) -> None:
    sys.stdout.write(word + "\n")
    sys.stdout.flush()


def main() -> None:
    from proxylab.client.session import Session
    from proxylab.engines.protocol import EngineChoice
    from proxylab.scenario.load import load_scenario

    scenario = load_scenario(Path(sys.argv[1]))
    session = Session(EngineChoice(kernel=sys.argv[2]))
    say("building")
    lab = session.open(scenario)
    say("probing")
    sys.stdin.readline()  # a test may pause it here
    lab.execute("client", "sleep", "0.1")  # the lab's own commands are too short to hit
    for probe in scenario.probes:
        say(f"{probe.name}: {lab.probe(probe).overall.value}")
    say("closing")
    session.close()
    say("closed")


if __name__ == "__main__":
    main()
