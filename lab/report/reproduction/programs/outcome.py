"""What became of the flows of a probe, held against what was expected.

Owns: the fate of a flow, and a line for each expectation that did not come true.
Must not: need anything but python3 and its standard library, or touch sockets.
"""

import collections

from packets import end


def is_heard(seen, place):
    """Whether this is an answer of some kind, as the sender got it."""
    return seen.place == place and not seen.outgoing and seen.what != "request"


def arrivals(case, seen, flow):
    """The pods that a flow reached under their own address, and the packets."""
    pods = {(each["namespace"], each["address"]): each["name"] for each in case["pods"] if each["device"] != "stack"}
    pods |= {(each["name"], each["address"]): each["name"] for each in case["pods"] if each["device"] == "stack"}
    coming = [each for each in seen if each.flow == flow and not each.outgoing and each.what == "request"]
    found = [(pods.get((each.place, bare(each.destination))), each) for each in coming]
    return [(name, each) for name, each in found if name]


def bare(written):
    """The address of an end."""
    return written.rpartition(":")[0].strip("[]") if written.count(":") == 1 or "]" in written else written


def judge(case, seen):
    """A line for each thing that is not as it was expected, with a flow that shows it."""
    expect, sender, hits = case["expect"], case["sender"]["namespace"], collections.defaultdict(collections.Counter)
    for flow in range(case["flows"]):
        reached = arrivals(case, seen, flow)
        heard = [each for each in seen if each.flow == flow and is_heard(each, sender)]
        hits[client_of(case, flow)].update({name for name, _ in reached})
        if expect["at"]:
            yield from ((flow, line) for line in judge_end(case, seen, flow))
        if expect["outcome"] == "untranslated":
            yield from ((flow, line) for line in judge_passing(case, seen, flow, heard))
            continue
        outcome = fate(reached, heard)
        if not expect["outcome"]:
            continue
        if outcome != expect["outcome"]:
            yield flow, f"expected {expect['outcome']}, seen {outcome}"
            continue
        if outcome == "delivered":
            yield from ((flow, line) for line in judge_delivery(case, flow, reached, heard))
    yield from judge_shares(case, hits)


def fate(reached, heard):
    """What became of one flow, by what the pods and the sender saw."""
    what = [each.what for each in heard]
    if "reset" in what:
        return "refused"
    if "port unreachable" in what and not reached:
        return "rejected"
    turned_away = [each for each in what if each != "reply"]
    if turned_away:
        return f"answered by {turned_away[0]}"
    return "delivered" if len({name for name, _ in reached}) == 1 else "dropped" if not reached else "multiplied"


def judge_passing(case, seen, flow, heard):
    """What is wrong with a flow that was to be left as it was: it has to go on so, and nowhere as anything else."""
    dialled = end(case["dialled"], case["port"])
    requests = [each for each in seen if each.flow == flow and each.what == "request"]
    beyond = [each for each in requests if each.place != case["sender"]["namespace"]]
    changed = [each for each in beyond if each.destination != dialled]
    if changed:
        yield f"expected to stay addressed to {dialled}, seen for {changed[0].destination} at {changed[0].place}"
    elif not any(each.outgoing or "/" not in each.place for each in beyond):
        yield "expected to leave a node as it was sent, not seen to"
    turned = [each.what for each in heard if not each.what.startswith("ICMP")]
    if turned:
        yield f"expected untranslated, answered by {turned[0]}"


def client_of(case, flow):
    """The address that a flow leaves from."""
    addresses = case["sender"]["addresses"]
    return addresses[flow % len(addresses)]


def judge_end(case, seen, flow):
    """Where a flow was seen last, if that is not where it must end."""
    namespace, device, words = case["expect"]["at"]
    hops = [each.place for each in seen if each.flow == flow and each.what == "request"]
    last = hops[-1] if hops else "nowhere"
    if last.partition("/")[0] != namespace or (device and last != f"{namespace}/{device}"):
        yield f"expected to end at {words}, seen last at {last}"


def judge_delivery(case, flow, reached, heard):
    """What is wrong with a flow that reached a pod: which pod, from which source, answered from where."""
    expect = case["expect"]
    source = client_of(case, flow) if expect["source"] == "preserved" else expect["source"]
    for name, packet in reached[:1]:
        if expect["backends"] and name not in expect["backends"]:
            yield f"expected at {' or '.join(expect['backends'])}, seen at {name}"
        if source and bare(packet.source) != source:
            yield f"expected from {source}, seen from {bare(packet.source)} at {name}"
    dialled = end(case["dialled"], case["port"])
    if expect["reply"] == "untranslated" and reached:
        dialled = reached[0][1].destination
    if not heard:
        yield f"expected a reply from {dialled}, seen none"
    elif heard[0].source != dialled:
        yield f"expected a reply from {dialled}, seen from {heard[0].source}"


def judge_shares(case, by_client):
    """Which backends got too much, too little or nothing, and which clients were not kept by one."""
    hits = sum(by_client.values(), collections.Counter())
    names, flows = case["expect"]["backends"] or [], sum(hits.values())
    for name in names if case["expect"]["hit all"] else []:
        if not hits[name]:
            yield None, f"expected at {name} too, seen never in {flows} flows"
    for name, share in case["expect"]["shares"].items():
        due = flows * share
        if abs(hits[name] - due) > 0.3 * due:
            yield None, f"expected about {due:.0f} flows at {name}, seen {hits[name]}"
    for client, reached in by_client.items() if case["expect"]["sticky"] else ():
        if len(reached) > 1:
            yield None, f"expected all flows of {client} at one backend, seen at {' and '.join(sorted(reached))}"
