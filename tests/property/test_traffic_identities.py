"""Identities: the lab never takes one of its flows for another."""

from hypothesis import given
from hypothesis import strategies as st

from proxylab.traffic.identity import TOKEN_BYTES, IdentityRegistry, TokenKind

nonces = st.binary(min_size=8, max_size=8)


@given(st.lists(st.integers(1, 3000), min_size=1, max_size=20), nonces)
def test_no_two_flows_of_a_lab_share_an_identity(sizes: list[int], nonce: bytes) -> None:
    registry = IdentityRegistry(nonce)
    identities = [registry.issue(size) for size in sizes]
    owner: dict[int | bytes, tuple[int, int]] = {}
    for run, identity in enumerate(identities):
        for flow in {0, identity.flows // 2, identity.flows - 1}:
            sequence, token = identity.sequence(flow), identity.token(TokenKind.PROBE, flow)
            assert owner.setdefault(sequence, (run, flow)) == (run, flow)
            assert owner.setdefault(token, (run, flow)) == (run, flow)
            assert identity.flow_of_sequence(sequence) == flow
            assert identity.read(token + b"more") == (TokenKind.PROBE, flow)
            assert len(token) == TOKEN_BYTES
            for other in identities:
                if other is not identity:
                    assert other.flow_of_sequence(sequence) is None
                    assert other.read(token) is None
            # A packet after a SYN in its flow is no SYN.
            assert all(other.flow_of_sequence(sequence + 1) is None for other in identities)
