"""evaluation.py: pass@k and intervals against other ways to get them; batching leaves no trace."""

import itertools

import jax
import numpy as np
import pytest
from scripted_team import CountingTask, tiny_team

from jaxmarl_llm import evaluation, sampling
from jaxmarl_llm.evaluation import scores
from jaxmarl_llm.evaluation.scores import Evaluation
from jaxmarl_llm.protocols import Simultaneous
from jaxmarl_llm.runs import summaries
from jaxmarl_llm.sampling import choice
from jaxmarl_llm.sampling.padding import bucket
from jaxmarl_llm.transcripts import AgentRecord, JointAction

WORDS = (3, 70, 5, 3, 8)  # prompt lengths: only p1 needs the wider bucket
PARAMS = choice.SamplingParams(max_new_tokens=6, temperature=1.0)


def evaluate(task, ids=None, key=0, team=None, **kwargs):
    team = team or tiny_team()
    ids = range(len(task.items)) if ids is None else ids
    kwargs = dict(samples=2, max_prompt_tokens=100) | kwargs
    learned = [member.trainable for member in team.members]
    return evaluation.evaluate(team, learned, task, ids, jax.random.key(key), params=PARAMS, **kwargs)


@pytest.mark.parametrize("samples", [1, 4, 6])
def test_pass_at_k_is_the_mean_over_all_subsets(samples):
    for passed in range(samples + 1):
        answers = [i < passed for i in range(samples)]
        for k in range(1, samples + 1):
            subsets = list(itertools.combinations(answers, k))
            wanted = sum(map(any, subsets)) / len(subsets)
            assert scores.pass_at_k(samples, passed, k) == pytest.approx(wanted, abs=1e-12)


@pytest.mark.parametrize("k", [0, 4])
def test_pass_at_k_needs_enough_samples(k):
    with pytest.raises(ValueError, match=rf"k within 1\.\.3.*k={k}"):
        scores.pass_at_k(3, 1, k)


def action(even, odd, verdict, length=1, reason="stop"):
    total = None if even is None else even + odd
    parts = {} if even is None else {"even": even, "odd": odd}
    speech = AgentRecord("", "", 1, length, reason, 0)
    return JointAction(0, "p", {"main": speech}, parts, total, verdict)


def test_summary_by_hand():
    normalise = CountingTask(()).normalise
    rows = (
        (action(6, 0, "pass", 4, "length"), action(0, 3, "fail", 2)),
        (action(3, 3, "pass", 6), action(None, None, "not-applicable", 4)),
    )
    actual = Evaluation(rows, ("main",), normalise)
    # Item means without the answer that has no score: even 3, 3 (of 6); odd 1.5, 3; total 4.5, 6 (of 12).
    scores = actual.scores()
    np.testing.assert_allclose(scores["even"], [50, 50])
    np.testing.assert_allclose(scores["odd"], [25, 50])
    np.testing.assert_allclose(scores["return"], [37.5, 50])
    summary = actual.summary()
    wanted = {"even": 50, "odd": 37.5, "return": 43.75, "return_low": 37.5, "return_high": 50, "pass@1": 50}
    wanted |= {"length/main": 4, "truncated/main": 0.25}
    wanted |= {"verdict/pass": 2, "verdict/fail": 1, "verdict/not-applicable": 1}
    assert summary == pytest.approx(wanted)
    # Each item passed once in two tries, so any two answers hold a pass.
    np.testing.assert_array_equal(actual.pass_scores(2)["pass@2"], [100, 100])


def test_one_problem_has_no_interval():
    summary = Evaluation(((action(6, 0, "pass"),),), ("main",), CountingTask(()).normalise).summary()
    assert not {"return_low", "return_high"} & set(summary)
    line = summaries.eval_line("test", {**summary, "return_greedy": 25.0})
    assert line == "test: return 50.0 sampled, 25.0 greedy"


def test_results_are_split_by_grade_where_there_are_several():
    rows = tuple((action(even, 0, "fail"),) for even in (6, 0, 3))
    normalise = CountingTask(()).normalise
    summary = Evaluation(rows, ("main",), normalise, grades_B=(1, 2, 1)).summary()
    # Of 12: 6 and 3 are 50 and 25.
    assert (summary["return_grade1"], summary["return_grade2"]) == (37.5, 0)
    assert not any("grade" in name for name in Evaluation(rows, ("main",), normalise, (3, 3, 3)).summary())


def test_results_are_split_by_how_problems_are_stated():
    rows = tuple((action(even, 0, verdict),) for even, verdict in ((6, "pass"), (0, "fail"), (3, "fail")))
    normalise = CountingTask(()).normalise
    summary = Evaluation(rows, ("main",), normalise, statements_B=("steps", "", "goal")).summary()
    assert (summary["return_steps"], summary["return_goal"]) == (50, 25)
    assert (summary["pass@1_steps"], summary["pass@1_goal"]) == (100, 0)
    assert "return_" not in summary and "pass@1_" not in summary  # of those that say nothing
    alike = Evaluation(rows, ("main",), normalise, statements_B=("steps",) * 3).summary()
    assert not any("steps" in name for name in alike)


@pytest.mark.parametrize("verdict", ["judged", ""])  # a task of one's own may give none
def test_rewards_without_tests_have_no_pass_rate(verdict):
    rows = ((action(6, 0, verdict),),)
    actual = Evaluation(rows, ("main",), CountingTask(()).normalise)
    assert not actual.tested and "pass@1" not in actual.summary()
    assert "verdict/" not in actual.summary()


@pytest.mark.parametrize("rows", [4, 8, 12, 16, 400])
def test_batches_hold_every_item_once_and_have_one_size(rows):
    size = evaluation.batch_size(7, 3, rows)  # four answers an item
    assert size * 4 <= rows
    batches = evaluation.plan_batches(7, size)
    assert [b for real, batch in batches for b in batch[:real]] == list(range(7))
    assert {len(batch) for _, batch in batches} == {size}


def test_batches_by_hand():
    assert evaluation.batch_size(5, 1, 6) == 3  # two batches are needed: three and two, not three and three
    assert evaluation.plan_batches(3, 4) == [(3, [0, 1, 2, 0])]
    assert evaluation.plan_batches(5, 2) == [(2, [0, 1]), (2, [2, 3]), (1, [4, 4])]


@pytest.mark.slow
def test_greedy_results_do_not_depend_on_the_batches():
    assert bucket(71) > bucket(9)
    task, split = CountingTask(WORDS), CountingTask(WORDS)
    whole = evaluate(task).greedy
    before = sampling.generate._cache_size()
    cut = evaluate(split, rows_per_batch=6).greedy
    assert sampling.generate._cache_size() - before == 1  # three batches, one program
    # Three answers per item; two items per batch, the last of which is filled up.
    assert len(split.judged) == 3 * 6 and len(task.judged) == 3 * 5
    assert [row[0].item for row in cut.actions_BG] == ["p0", "p1", "p2", "p3", "p4"]
    assert cut.actions_BG == whole.actions_BG
    assert len({row[0].agents["main"].completion for row in whole.actions_BG}) > 2  # or this shows nothing
    assert cut.summary() == whole.summary()
    again = evaluate(CountingTask(WORDS), ids=[4, 1, 0], key=5).greedy
    assert again.actions_BG == tuple(whole.actions_BG[i] for i in (4, 1, 0))


@pytest.mark.slow
def test_a_smaller_evaluation_runs_the_program_of_a_larger_one():
    """As evaluations during a training do: fewer items, all of them short."""
    sizes = evaluation.prompt_sizes(tiny_team(), [(CountingTask(WORDS), range(5))], 3, 768)
    progress_calls = []
    sampling.generate.clear_cache()  # other tests of this process may have compiled the same
    evaluate(CountingTask(WORDS), rows_per_batch=6, sizes=sizes, progress=lambda *done: progress_calls.append(done))
    assert progress_calls == [(2, 5), (4, 5), (5, 5)]
    short = min(range(5), key=WORDS.__getitem__)
    before = sampling.generate._cache_size()
    own = evaluate(CountingTask(WORDS), ids=[short], rows_per_batch=6).greedy
    assert sampling.generate._cache_size() == before + 1  # a program of its own
    same = evaluate(CountingTask(WORDS), ids=[short], items_per_batch=2, sizes=sizes).greedy
    assert sampling.generate._cache_size() == before + 1  # none
    assert [a.agents["main"].completion for a in own.actions] == [
        a.agents["main"].completion for a in same.actions
    ]


def test_sampled_answers_are_judged_together_and_follow_the_key():
    task = CountingTask(WORDS[2:])
    actual, greedy, seconds = evaluate(task, samples=3, step=4)
    assert seconds > 0
    assert [[a.agents["aux"].sample for a in row] for row in actual.actions_BG] == [[0, 1, 2]] * 3
    assert {a.step for a in actual.actions} == {4}
    pairs = zip(actual.actions_BG, greedy.actions_BG, strict=True)
    answers = [action for sampled, likeliest in pairs for action in (*sampled, *likeliest)]
    assert [(a.item, {n: s.completion for n, s in a.agents.items()}) for a in answers] == task.judged
    assert [a.total for a in answers] == [task._judge(answer).total for _, answer in task.judged]
    assert evaluate(task, samples=3, step=4)[:2] == (actual, greedy)
    other = evaluate(task, samples=3, step=4, key=1)
    assert other.sampled.actions_BG != actual.actions_BG and other.greedy == greedy


@pytest.mark.slow
def test_answers_of_two_turns_over_several_batches():
    """Earlier answers come first; each later one says which of them it follows, and what both took."""
    task = CountingTask((3, 5, 4))

    def again(answers):
        return [{agent: f"{answer.completions[agent]} w9" for agent in task.agents} for answer in answers]

    def talk(samples):
        return Simultaneous(task.prompts, samples, 2, again, later_samples=1)

    for actual in evaluate(task, protocol=talk, rows_per_batch=6)[:2]:  # an item more than fits in a batch
        number = len(actual.actions)
        both = actual.all_actions
        assert [a.turn for a in both] == [0] * number + [1] * number
        assert [a.follows for a in both] == [None] * number + list(range(number))
        for later in both[number:]:
            before = both[later.follows]
            assert before.item == later.item
            for agent, record in later.agents.items():
                assert record.prompt.endswith(f"{before.agents[agent].completion} w9")
        lengths = [sum(record.completion_length for record in a.agents.values()) for a in both]
        assert [n for row in actual.tokens_BG for n in row] == np.add(*np.reshape(lengths, (2, -1))).tolist()
        assert actual.summary()["tokens/answer"] == pytest.approx(sum(lengths) / number)
        first, last = (actual.summary()[f"return_turn{t}"] for t in (1, 2))
        assert actual.summary()["return"] == last
        assert actual.summary()["return_turns"] == pytest.approx((first + last) / 2)


def test_every_further_turn_of_a_batch_is_shown_before_it_is_drawn():
    task, events = CountingTask((3, 5)), []

    def again(answers):
        return [dict(answer.completions) for answer in answers]

    evaluate(
        task,
        protocol=lambda samples: Simultaneous(task.prompts, samples, 3, again, later_samples=1),
        rows_per_batch=3,
        progress=lambda done, total: events.append(f"{done} of {total}"),
        drawn=lambda turns: events.append((turns, len(task.judged))),
    )
    # Three answers of each turn are judged before the next one, two batches of one item.
    assert events == [(1, 3), (2, 6), "1 of 2", (1, 12), (2, 15), "2 of 2"]


@pytest.mark.parametrize("kwargs, complaint", [
    (dict(ids=[]), "item_ids is empty"),
    (dict(ids=[0, 5, -1]), r"item_ids holds \[5, -1\]; allowed are 0\.\.4"),
    (dict(samples=0), "samples=0"),
    (dict(rows_per_batch=0), "rows_per_batch=0"),
    (dict(max_prompt_tokens=20), "agent 'aux' for item p1 has 71 tokens, the limit is 20"),
])  # fmt: skip
def test_bad_arguments_are_refused_before_anything_is_judged(kwargs, complaint):
    task = CountingTask(WORDS)
    with pytest.raises(ValueError, match=complaint):
        evaluate(task, **kwargs)
    assert not task.judged


@pytest.mark.parametrize(
    "number, expected", [(0, [0, 1, 2, 3, 4]), (2, [0, 2]), (3, [0, 1, 3]), (9, [0, 1, 2, 3, 4])]
)
def test_some_items_stand_for_all(number, expected):
    assert scores.spread(5, number) == expected


def test_speed_by_hand():
    """Three sampled answers of 10, 20 and 30 tokens and a greedy one of 20, in 4 seconds."""

    def answers(*tokens):
        return scores.Evaluation(((),), (), None, tokens_BG=(tokens,))

    actual = evaluation.Evaluations(answers(10, 20, 30), answers(20), 4.0)
    assert actual.speed() == {"tokens_per_s": 20.0, "seconds_per_answer": 1.0}


def test_batches_that_overlap_leave_no_trace():
    one, other = (evaluate(CountingTask(WORDS), rows_per_batch=6, overlap=overlap) for overlap in (False, True))
    modes = "sampled", "greedy"
    assert all(getattr(one, m).actions_BG == getattr(other, m).actions_BG for m in modes)
