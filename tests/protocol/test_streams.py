import numpy as np
import pytest

from protocol.streams import Domain, episode_seed, stream, words


def test_domains_keep_their_numbers():
    assert [(d.name, d.value) for d in Domain] == [
        ("NOISE", 0),
        ("EPISODE", 1),
        ("ACTION", 2),
        ("INITIALISATION", 3),
        ("CENTRE", 4),
        ("AUDIT", 5),
    ]


def test_a_longer_stream_begins_with_the_shorter_one():
    whole = stream(2**64 - 1, Domain.ACTION, 2**64 - 1, 1000)
    for count in (0, 1, 7, 8, 9, 33):
        assert np.array_equal(stream(2**64 - 1, Domain.ACTION, 2**64 - 1, count), whole[:count])


def test_streams_of_neighbours_are_unrelated():
    streams = {
        stream(seed, domain, index, 64).tobytes()
        for seed in (0, 1)
        for domain in Domain
        for index in (0, 1, 2)
    }
    assert len(streams) == 2 * len(Domain) * 3


def test_words_are_little_endian():
    assert stream(3, 0, 4, 8).tobytes() == int(words(3, 0, 4, 1)[0]).to_bytes(8, "little")


@pytest.mark.parametrize(("seed", "index"), [(-1, 0), (2**64, 0), (0, -1), (0, 2**64)])
def test_seeds_and_indices_beyond_64_bits_are_refused(seed, index):
    with pytest.raises(ValueError, match=r"0 \.\. 2\*\*64 - 1"):
        stream(seed, Domain.NOISE, index, 8)


def test_episode_seeds_fit_what_environments_take():
    seeds = [episode_seed(5, index) for index in range(200)]
    assert len(set(seeds)) == 200
    assert min(seeds) >= 0 and 2**30 < max(seeds) < 2**31
