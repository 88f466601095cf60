"""Which pods have the beginning of a prompt."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from pdinference.api.names import PodFault, Role
from pdinference.router.pod import Observed, Pod
from pdinference.router.pods import Pods
from pdinference.router.prefixes import Chain, PrefixIndex


def pod(name: str) -> Pod:
    return Pod(Observed(name, name, Role.DECODE, name, ready=True))


def chain(text: str) -> Chain:
    return Chain.of(letter.encode() * 10 for letter in text)


def test_a_later_turn_is_known_where_the_earlier_one_was() -> None:
    index, first, second = PrefixIndex(), pod("d1"), pod("d2")
    index.add(chain("abc"), first)
    index.add(chain("ax"), second)
    assert index.known(chain("abcd"), [first, second]) == {first: 30, second: 10}
    assert index.known(chain("xbc"), [first, second]) == {first: 0, second: 0}


def test_an_answer_belongs_to_the_next_turn() -> None:
    index, d1 = PrefixIndex(), pod("d1")
    asked = chain("ab")
    index.add(asked.extended([b"answer"]), d1)
    assert index.known(asked.extended([b"answer", b"next"]), [d1]) == {d1: 26}
    assert index.known(asked.extended([b"another"]), [d1]) == {d1: 20}
    assert Chain().extended([b"answer"]) == Chain()


def test_a_container_that_started_again_knows_nothing() -> None:
    index, d1 = PrefixIndex(), pod("d1")
    index.add(chain("ab"), d1)
    d1.observed = replace(d1.observed, restarts=1)
    assert index.known(chain("ab"), [d1]) == {d1: 0}
    index.add(chain("a"), d1)
    assert index.known(chain("ab"), [d1]) == {d1: 10}


def test_an_engine_that_died_in_a_container_that_lives_knows_nothing() -> None:
    """As under the launcher of HostLocal. Many requests find it dead, and it died once."""
    index, pods = PrefixIndex(), Pods()
    pods.observe({"d1": Observed("d1", "d1", Role.DECODE, "d1", ready=True)})
    (d1,) = pods
    index.add(chain("ab"), d1)
    for fault in (None, PodFault.STALLED):
        pods.failed(d1, fault)
        assert index.known(chain("ab"), [d1]) == {d1: 20}
    for _ in range(2000):
        pods.failed(d1, PodFault.REFUSES)
        assert index.known(chain("ab"), [d1]) == {d1: 0}
    pods.answered(d1)
    index.add(chain("a"), d1)
    assert index.known(chain("ab"), [d1]) == {d1: 10}
    assert max(bits.bit_length() for bits in index._pods_of.values()) == 2


def test_pods_that_come_and_go_do_not_make_it_larger() -> None:
    index, stays = PrefixIndex(), pod("stays")
    for number in range(5000):
        index.add(chain("ab"), pod(f"d{number}"))
        index.add(chain("abcd"), stays)
        assert index.known(chain("abcd"), [stays]) == {stays: 40}
    assert max(bits.bit_length() for bits in index._pods_of.values()) <= 2049


def test_the_pieces_used_least_recently_go_first() -> None:
    index, d1 = PrefixIndex(most=4), pod("d1")
    index.add(chain("ab"), d1)
    index.add(chain("xy"), d1)
    index.add(chain("ab"), d1)
    index.add(chain("uv"), d1)
    assert len(index) == 4
    assert index.known(chain("ab"), [d1]) == {d1: 20}
    assert index.known(chain("xy"), [d1]) == {d1: 0}


TEXTS = st.text("ab", min_size=1, max_size=5)


@given(st.lists(st.tuples(TEXTS, st.integers(0, 2)), max_size=20), TEXTS)
def test_it_knows_the_longest_beginning_that_a_pod_has_had(sent: list[tuple[str, int]], asked: str) -> None:
    index, pods = PrefixIndex(), [pod(f"d{n}") for n in range(3)]
    for text, number in sent:
        index.add(chain(text), pods[number])
    found = index.known(chain(asked), pods)
    for number, one in enumerate(pods):
        had = [text for text, of in sent if of == number]
        lengths = [n for n in range(len(asked) + 1) if not n or any(text.startswith(asked[:n]) for text in had)]
        assert found[one] == 10 * max(lengths)
