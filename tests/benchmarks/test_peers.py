"""Peers: a process of their own that answers calls, and says what is wrong where it cannot."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks import peers
from benchmarks.peers import Peer, PeerFailed, started


@pytest.fixture(scope="module")
def peer() -> Iterator[Peer]:
    with Peer("tiny", module="tests.benchmarks.tiny", python=Path(sys.executable)) as started:
        yield started


def test_an_answer_has_the_value_and_the_seconds_and_memory_of_the_peers_own_process(peer: Peer) -> None:
    answer = peer("rest", seconds=0.05)
    assert answer.value == {"rows": 1}
    assert 0.05 <= answer.seconds < 1
    assert 0 < answer.peak < 1 << 30


def test_a_peer_that_times_the_part_that_counts_is_believed(peer: Peer) -> None:
    assert peer("timed").seconds == 42.0


def test_what_a_peer_prints_breaks_no_answer(peer: Peer) -> None:
    assert peer("chatter").value == {"rows": 2}


def test_the_error_of_a_call_is_raised_here_and_the_peer_goes_on(peer: Peer) -> None:
    with pytest.raises(PeerFailed, match="ZeroDivisionError"):
        peer("fail")
    assert peer("chatter").value == {"rows": 2}


def test_a_peer_that_ends_says_so_with_its_last_words() -> None:
    with (
        Peer("tiny", module="tests.benchmarks.tiny", python=Path(sys.executable)) as ending,
        pytest.raises(PeerFailed, match=r"(?s)tiny ended with 3 during leave.*no more"),
    ):
        ending("leave")


def test_a_call_that_takes_too_long_ends_the_peer() -> None:
    with (
        Peer("tiny", module="tests.benchmarks.tiny", python=Path(sys.executable)) as slow,
        pytest.raises(PeerFailed, match="during rest"),
    ):
        slow.call("rest", 0.3, seconds=60)


def test_a_peer_that_cannot_be_had_is_left_out_and_the_report_says_why() -> None:
    said: list[str] = []

    class Said:
        def say(self, text: str) -> None:
            said.append(text)

    with started(Said(), ["nobody"]) as started_peers:
        assert started_peers == {}
    assert "benchmarks/peers/nobody.txt" in said[0]


def test_what_failed_while_an_environment_was_made_is_told_without_addresses_and_folders() -> None:
    says = f"print('looked at https://registry.example/simple from {peers.ROOT}/x'); raise SystemExit(1)"
    with pytest.raises(PeerFailed, match=r"could not be made.*\n.*looked at \(address\) from x"):
        peers._command("nobody", [sys.executable, "-c", says])
