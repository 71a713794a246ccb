"""packing.py: where every completion lies, worked out by hand."""

import jax
import numpy as np
import pytest

from jaxmarl_llm.update import Batch, packing
from jaxmarl_llm.update.packing import pack

# One agent, two prompts, four samples each of at most 3 tokens; 0 is padding.
ANSWERS = [[1, 2], [3], [1, 2], [4, 5, 6], [7], [7], [8, 8], [9, 9]]
ONE = {"prompts_per_microbatch": 1, "tokens_per_microbatch": 6, "keep_zero_advantage": False}


@pytest.fixture(autouse=True)
def narrow_rows(monkeypatch):
    """Rows of 6 tokens, so that a few short completions fill them."""
    monkeypatch.setattr(packing, "ROW", 4)


def batch(advantages=(1, 2, 3, 4, 5, 6, 7, 8), answers=ANSWERS, prompts=2) -> Batch:
    tokens_RL = np.zeros((len(answers), 3), np.int32)
    for row, answer in zip(tokens_RL, answers, strict=True):
        row[: len(answer)] = answer
    lengths_R = np.array([len(answer) for answer in answers], np.int32)
    logprobs_RL = -np.arange(tokens_RL.size, dtype=np.float32).reshape(tokens_RL.shape)
    prompts_BP = np.arange(2 * prompts, dtype=np.int32).reshape(prompts, 2)
    arrays = (prompts_BP, np.full(prompts, 2), tokens_RL, lengths_R, logprobs_RL, np.array(advantages, float))
    return Batch(*[array[None] for array in arrays])


def test_different_completions_lie_side_by_side():
    """Of the first prompt 4 5 6 | 1 2 | 3, the longest first, and 1 2 only once; then the second prompt's."""
    packed = pack(batch(), **ONE)
    rows = packed.rows
    assert rows.tokens_MW.shape == (2, 2, 1, 1, 1, 6)  # two prompts one by one, at most two rows one by one
    assert rows.tokens_MW[:, :, 0, 0, 0].tolist() == [
        [[4, 5, 6, 1, 2, 3], [0] * 6],
        [[8, 8, 9, 9, 7, 0], [0] * 6],
    ]
    assert rows.offsets_MW[0, 0, 0, 0, 0].tolist() == [0, 1, 2, 0, 1, 0]
    assert rows.offsets_MW[1, 0, 0, 0, 0].tolist() == [0, 1, 0, 1, 0, -1]
    assert rows.starts_MS[0, 0, 0, 0, 0].tolist() == [0, 3, 3, 5]
    assert rows.lengths_MS[0, 0, 0, 0, 0].tolist() == [3, 2, 2, 1]
    assert rows.advantages_MS[0, 0, 0, 0, 0].tolist() == [4, 1, 3, 2]
    assert rows.lengths_MS[:, 1].max() == 0
    assert rows.logprobs_MSL[0, 0, 0, 0, 0, 2].tolist() == [-6, -7, -8]  # of sample 2, equal to 0
    assert packed.prompts_XNDBP.tolist() == [[[[[0, 1]]]], [[[[2, 3]]]]]
    assert packed.lengths_NR.tolist() == [[2, 1, 2, 3, 1, 1, 2, 2]]


def test_every_completion_has_one_slot_with_its_own_numbers():
    """Random answers, many equal: what is read back from the slots is what went in, whatever the sizes."""
    random = np.random.default_rng(0)
    answers = [random.integers(1, 3, random.integers(1, 4)).tolist() for _ in range(32)]
    whole = batch(random.permutation(32) + 1.0, answers, prompts=4)
    for prompts in (1, 2, 4):
        for tokens in (1, 6, 13, 100):
            sizes = {"prompts_per_microbatch": prompts, "tokens_per_microbatch": tokens}
            rows = pack(whole, **sizes, keep_zero_advantage=False).rows
            actual = {}
            for at in np.argwhere(rows.lengths_MS > 0):
                row, start, length = tuple(at[:-1]), rows.starts_MS[tuple(at)], rows.lengths_MS[tuple(at)]
                answer = rows.tokens_MW[row][start : start + length].tolist()
                assert rows.offsets_MW[row][start : start + length].tolist() == list(range(length))
                key = rows.advantages_MS[tuple(at)]
                assert key not in actual
                actual[key] = answer, rows.logprobs_MSL[tuple(at)][:length].tolist()
            for r, answer in enumerate(answers):
                logprobs = whole.logprobs_NRL[0, r, : len(answer)].tolist()
                assert actual.pop(whole.advantages_NR[0, r]) == (answer, logprobs)
            assert not actual


def test_rows_belong_to_their_prompts():
    rows = pack(batch(), prompts_per_microbatch=2, tokens_per_microbatch=24, keep_zero_advantage=False).rows
    assert rows.tokens_MW.shape == (1, 1, 1, 1, 4, 6)
    assert rows.prompt_M[0, 0, 0, 0].tolist() == [0, 1, 0, 0]  # the last two are empty


def test_a_group_without_signal_is_left_out():
    packed = pack(batch((0, 0, 0, 0, 5, 6, 7, 8)), **ONE)
    assert packed.prompts_XNDBP.tolist() == [[[[[2, 3]]]], [[[[0, 1]]]]]
    assert packed.rows.lengths_MS[1].max() == 0 and packed.lengths_NR.shape == (1, 8)
    kept = pack(batch((0, 0, 0, 0, 5, 6, 7, 8)), **{**ONE, "keep_zero_advantage": True})
    assert kept.prompts_XNDBP.tolist() == [[[[[0, 1]]]], [[[[2, 3]]]]]


def test_without_any_signal_the_first_group_stays():
    rows = pack(batch([0] * 8), **ONE).rows
    assert rows.lengths_MS[0, 0].max() == 3 and rows.lengths_MS[1].max() == 0


def test_whole_completions_keep_their_padding():
    rows = pack(batch(), **{**ONE, "keep_zero_advantage": True}, padded=True).rows
    assert rows.tokens_MW.shape == (2, 1, 1, 1, 2, 6)
    assert rows.tokens_MW[0, 0, 0, 0].tolist() == [[4, 5, 6, 1, 2, 0], [1, 2, 0, 3, 0, 0]]
    assert rows.lengths_MS[0, 0, 0, 0].tolist() == [[3, 2, 0, 0], [2, 1, 0, 0]]


def test_many_different_completions_fill_the_rows_there_are():
    """Four times 3 tokens are two rows of 6, and one of 3 and three of 2 are as well."""
    answers = [[1, 1, 1], [2, 2, 2], [3, 3, 3], [4, 4, 4], [1, 1, 1], [2, 2], [3, 3], [4, 4]]
    rows = pack(batch(answers=answers), **ONE).rows
    assert rows.tokens_MW[:, :, 0, 0, 0].tolist() == [
        [[1, 1, 1, 2, 2, 2], [3, 3, 3, 4, 4, 4]],
        [[1, 1, 1, 2, 2, 0], [3, 3, 4, 4, 0, 0]],
    ]


def test_prompts_must_divide():
    with pytest.raises(ValueError, match="prompts_per_microbatch=3 does not divide 2 prompts"):
        pack(batch(), prompts_per_microbatch=3, tokens_per_microbatch=6, keep_zero_advantage=False)


def test_shards_have_prompts_of_their_own():
    """Three prompts of four have a signal: two shards begin with one each; the last has nobody beside it."""
    four = batch([0, 0, 1, 2, 3, 4, 5, 6], ANSWERS, prompts=4)
    packed = pack(four, **ONE, shards=2)
    assert packed.prompts_XNDBP[:, 0, :, 0].tolist() == [[[2, 3], [4, 5]], [[6, 7], [0, 1]]]
    first = packed.rows.tokens_MW[:, :, 0, :, 0]  # X, Z, D, W: of every micro-batch the first row
    assert first[0, 0].tolist() == [[4, 5, 6, 1, 2, 0], [7, 0, 0, 0, 0, 0]]
    assert first[1, 0].tolist() == [[8, 8, 9, 9, 0, 0], [0] * 6]
    assert packed.lengths_NR.shape == (1, 8)


def test_more_shards_than_prompts():
    """What is left over reads the last prompt and learns nothing; every answer is still there once."""
    packed = pack(batch(), **ONE, shards=4)
    assert packed.prompts_XNDBP[0, 0, :, 0].tolist() == [[0, 1], [2, 3], [2, 3], [2, 3]]
    assert (packed.rows.lengths_MS[0].sum((0, 1, 3, 4)) == [8, 6, 0, 0]).all()


def test_shapes_follow_from_shapes():
    """A run compiles one update: what was said changes no shape."""
    quiet = pack(batch([0] * 8), **ONE)
    longest = pack(batch(answers=[[n, n, n] for n in range(1, 9)]), **ONE)
    for a, b in zip(*(jax.tree.leaves(p.rows) for p in (quiet, longest)), strict=True):
        assert a.shape == b.shape
