"""experiments.merge: what it writes answers as the summed weights do, is evaluated, exported and begun from."""

import json

import jax
import jax.numpy as jnp
import merge_runs
import numpy as np
import pytest
import smoke_runs

from experiments import export
from jaxmarl_llm import adapters, saved_agents, weights
from jaxmarl_llm.analysis.merging import members, methods, run
from jaxmarl_llm.factory import evaluations, teams
from jaxmarl_llm.runs import begin, run_folder
from jaxmarl_llm.weights import peft

pytestmark = [pytest.mark.usefixtures("programs_shared"), pytest.mark.slow]
TOKENS = jnp.asarray([[5, 90, 11, 11, 3, 42]])
QUIET = run.Wanted(report="none")


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Three runs of one agent, of ranks 2, 2 and 3, and their teams."""
    place = tmp_path_factory.mktemp("runs")
    ranks = {"a": {}, "b": {}, "c": {"team.rank": 3, "team.alpha": 9.0}}
    teams_of = {name: merge_runs.make_run(place / name, n, **f) for n, (name, f) in enumerate(ranks.items())}
    return place, teams_of


def sources(place, *names):
    config = merge_runs.config_of()
    return config, members.of_texts(config, [str(place / name) for name in names], "best")


def logits(policy, variables):
    return np.asarray(policy.apply(variables, TOKENS, jnp.arange(TOKENS.shape[1])[None])[0])


def summed(teams_of, weighted):
    """Logits of the base with the members' dense products added, each times its weight."""
    first = next(iter(teams_of.values())).members[0]
    variables = first.base
    for name, weight in weighted.items():
        (member,) = teams_of[name].members
        own = jax.tree.map(lambda x: x[0], member.trainable)
        variables = adapters.merge(variables, own, weight * member.stack.adapter_scale)
    return logits(first.stack.policy, variables)


def logits_in(folder):
    """Logits of the agent in a folder, as a run would use them: adapters beside the base."""
    config = run_folder.load_run(folder)
    team, _ = saved_agents.restore_team(folder, "best", teams.build_team(config))
    (member,) = team.members
    variables, _ = member.stack.bind(member.base, jax.tree.map(lambda x: x[0], member.trainable))
    return logits(member.stack.policy, variables)


@pytest.mark.parametrize("method, given, weighted", [
    ("mean", {}, {"a": 1 / 3, "b": 1 / 3, "c": 1 / 3}),
    ("sum", {"weights": (1.5, 0.0, -0.25)}, {"a": 1.5, "c": -0.25}),
    ("sum", {"scales": (0.5,)}, {"a": 0.5, "b": 0.5, "c": 0.5}),
])  # fmt: skip
def test_a_merged_folder_answers_as_the_summed_weights(runs, tmp_path, method, given, weighted):
    config, chosen = sources(runs[0], "a", "b", "c")
    facts = run.merge(config, chosen, methods.Settings(method, **given), tmp_path / "out", QUIET)
    wanted = summed(runs[1], weighted)
    np.testing.assert_allclose(logits_in(tmp_path / "out"), wanted, atol=1e-5)
    assert np.abs(wanted - summed(runs[1], {})).max() > 0.1
    assert facts["rank"] == (5 if method == "sum" and "weights" in given else 7)
    assert facts["validation"]["answers"] == 0 and facts["lost"]["first"]["share"] < 1e-12


def test_a_merged_folder_is_evaluated_exported_merged_again_and_begun_from(runs, tmp_path):
    config, chosen = sources(runs[0], "a", "b")
    out = tmp_path / "out"
    facts = run.merge(config, chosen, methods.Settings("mean"), out, run.Wanted())
    _, report = evaluations.evaluate_run(run_folder.load_run(out), out)
    assert report["greedy"]["scores"] == facts["test"]["rows"]["mean"]["greedy"]["scores"]
    assert report["step"] == 0 and report["state"] == "exported"
    wanted = summed(runs[1], {"a": 0.5, "b": 0.5})
    assert export.export(out, "first", tmp_path / "model") == 0
    model = weights.load(str(tmp_path / "model"))
    np.testing.assert_allclose(logits(model.policy, model.params), wanted, atol=1e-4)
    assert peft.load_adapter(out / "first", model.policy.config).rank == 4
    config = merge_runs.config_of(**{"team.rank": 4, "team.alpha": 8.0, "team.begin": str(out)})
    (member,) = begin.begun(config, teams.build_team(config), tmp_path / "begun").members
    variables, _ = member.stack.bind(member.base, jax.tree.map(lambda x: x[0], member.trainable))
    np.testing.assert_allclose(logits(member.stack.policy, variables), wanted, atol=1e-5)
    # The half and its half: PEFT folders and exported teams are members, too.
    plain = merge_runs.config_of()
    again = members.of_texts(plain, [str(out / "first"), str(runs[0] / "c")], "best")
    run.merge(plain, again, methods.Settings("sum", weights=(1.0, 0.5)), tmp_path / "again", QUIET)
    wanted = summed(runs[1], {"a": 0.5, "b": 0.5, "c": 0.5})
    np.testing.assert_allclose(logits_in(tmp_path / "again"), wanted, atol=1e-5)


def test_the_command_searches_on_validation_and_counts_what_it_draws(runs, tmp_path):
    place, out = runs[0], tmp_path / "out"
    given = ",".join(str(place / name) for name in "abc")
    command = smoke_runs.command("merge", f"--members={given}", "--method=search", "--trials=3", f"--out={out}")
    done = smoke_runs.run(command, tmp_path / "cache")
    assert done.returncode == 0, done.stderr
    facts = json.loads((out / "merge.json").read_text())
    # Two sampled answers and a greedy one to each problem; on the test of the base, three members and the result.
    assert [facts["validation"][name] for name in ("problems", "evaluations", "answers")] == [4, 3, 3 * 4 * 3]
    assert [facts["test"][name] for name in ("problems", "evaluations", "answers")] == [6, 5, 5 * 6 * 3]
    assert f"chosen by 3 evaluations on validation: 36 answers, {facts['validation']['tokens']} comp" in done.stdout
    assert list(facts["test"]["rows"]) == ["base", *(str(place / name) for name in "abc"), "search"]
    best = max(facts["validation"]["tried"], key=lambda one: one["score"])
    assert [one["weight"] for one in facts["members"]] == best["weights"]
    assert "test return on 6 problems, fresh draws" in done.stdout
    assert "`python -m experiments.merge --method=search`" in (out / "README.md").read_text()


def chosen_with(monkeypatch, scores, config, sources, settings, out):
    """A merge whose validation scores are these, in order; what merge.json says."""
    given = iter(scores)
    monkeypatch.setattr(run.stage, "validation_score", lambda *_: next(given))
    facts = run.merge(config, sources, settings, out, QUIET, tell=lambda line: None)
    assert not list(given)
    return facts


def test_a_soup_and_a_scale_are_what_the_scores_say(runs, tmp_path, monkeypatch):
    config, chosen = sources(runs[0], "a", "b", "c")
    # c is the best alone, a lowers the mean with it, b does not.
    facts = chosen_with(monkeypatch, [5, 4, 6, 5.5, 6], config, chosen, methods.Settings("soup"), tmp_path / "soup")
    assert [m["weight"] for m in facts["members"]] == [0, 1 / 2, 1 / 2] and facts["rank"] == 5
    np.testing.assert_allclose(logits_in(tmp_path / "soup"), summed(runs[1], {"b": 0.5, "c": 0.5}), atol=1e-5)
    settings = methods.Settings("extrapolate", scales=(1.0, 2.0, 1.5))
    facts = chosen_with(monkeypatch, [1, 3, 3], config, chosen[:1], settings, tmp_path / "more")
    assert facts["scale"] == 2.0 and [one["score"] for one in facts["validation"]["tried"]] == [1, 3, 3]
    np.testing.assert_allclose(logits_in(tmp_path / "more"), summed(runs[1], {"a": 2.0}), atol=1e-5)


def test_ties_becomes_adapters_with_a_loss_or_weights_in_full_without(runs, tmp_path):
    config, chosen = sources(runs[0], "a", "b", "c")
    settings = methods.Settings("ties", density=0.3)
    small = run.merge(config, chosen, settings, tmp_path / "small", run.Wanted(report="none", rank=2))
    large = run.merge(config, chosen, settings, tmp_path / "large", QUIET)
    full = run.merge(config, chosen, settings, tmp_path / "full", run.Wanted("full", report="none"))
    shares = [facts["lost"]["first"]["share"] for facts in (small, large, full)]
    assert shares[0] > shares[1] > 0.05 and shares[2] == 0
    assert (small["rank"], large["rank"], "rank" in full) == (2, 7, False)
    model = weights.load(str(tmp_path / "full" / "first"))
    products = [dict(pieces(runs[1][name])) for name in "abc"]
    base = runs[1]["a"].members[0].base["params"]["layers"]["gate"]["kernel"]
    place = ("layers", "gate"), 0
    rows = np.stack([product[place] for product in products])
    limit = np.sort(abs(rows).reshape(3, -1), axis=1)[:, -round(0.3 * rows[0].size)]
    kept = np.where(abs(rows) >= limit[:, None, None], rows, 0)
    agree = (kept * kept.sum(axis=0) > 0).sum(axis=0)
    delta = np.where(kept * kept.sum(axis=0) > 0, kept, 0).sum(axis=0) / np.maximum(agree, 1)
    np.testing.assert_allclose(model.params["params"]["layers"]["gate"]["kernel"][0], base[0] + delta, atol=1e-6)


def pieces(team):
    """DeltaW of every map of every layer of a team's first agent, by its definition."""
    (member,) = team.members
    for name in ("gate", "up", "down"):
        node = member.trainable["layers"][name]
        for y in range(node["a"].shape[1]):
            a, b = (np.asarray(node[side][0, y], float) for side in "ab")
            yield (("layers", name), y), member.stack.adapter_scale * a @ b


@pytest.fixture(scope="module")
def team_runs(tmp_path_factory):
    """Two runs of two agents each, and their teams."""
    place = tmp_path_factory.mktemp("teams")
    fields = {"team.agents": ("one", "two"), "train.protocol": "discussion", "task.total": "vote"}
    return place, {name: merge_runs.make_run(place / name, n, **fields) for n, name in enumerate("ab")}


def own_maps(folder):
    """The gates' a b of every agent in a folder, scaled, (agents, layers, D, E)."""
    team, _ = saved_agents.restore_team(folder, "best", teams.build_team(run_folder.load_run(folder)))
    return maps_of(team)


def maps_of(team):
    (member,) = team.members
    node = member.trainable["layers"]["gate"]
    return member.stack.adapter_scale * np.asarray(node["a"] @ node["b"])


def test_the_agents_of_one_run_and_those_of_a_name_in_several(team_runs, tmp_path):
    place, teams_of = team_runs
    config, maps = run_folder.load_run(place / "a"), {name: maps_of(team) for name, team in teams_of.items()}
    run.merge(config, members.of_run(config, place / "a", "best"), methods.Settings("mean"), tmp_path / "one", QUIET)
    np.testing.assert_allclose(own_maps(tmp_path / "one"), np.stack([maps["a"].mean(axis=0)] * 2), atol=1e-5)
    both = members.of_texts(config, [str(place / "a"), str(place / "b")], "best")
    run.merge(config, both, methods.Settings("mean"), tmp_path / "names", QUIET)
    np.testing.assert_allclose(own_maps(tmp_path / "names"), (maps["a"] + maps["b"]) / 2, atol=1e-5)
    some = members.of_texts(config, [f"{place / 'a'}:two", f"{place / 'b'}:one"], "best")
    run.merge(config, some, methods.Settings("sum"), tmp_path / "some", QUIET)
    np.testing.assert_allclose(own_maps(tmp_path / "some"), np.stack([maps["a"][1] + maps["b"][0]] * 2), atol=1e-5)


def test_members_of_several_runs_become_one_team(runs, tmp_path):
    fields = {"team.agents": ("one", "two"), "train.protocol": "discussion", "task.total": "vote"}
    config = merge_runs.config_of(**fields)
    chosen = members.of_texts(config, [str(runs[0] / name) for name in "ca"], "best")
    run.join(config, chosen, tmp_path / "team")
    wanted = np.stack([maps_of(runs[1][name])[0] for name in "ca"])
    np.testing.assert_allclose(own_maps(tmp_path / "team"), wanted, atol=1e-5)
    assert json.loads((tmp_path / "team" / "merge.json").read_text())["members"]["one"] == str(runs[0] / "c")
    with pytest.raises(ValueError, match="--method=join: 1 members, and team.agents has 2 of ours; allowed is one e"):
        run.join(config, chosen[:1], tmp_path / "none")


def test_whole_weights_of_several_runs(tmp_path):
    fields = {"team.mode": "full"}
    models = [merge_runs.make_run(tmp_path / name, n, 0.02, **fields) for n, name in enumerate("ab")]
    config = run_folder.load_run(tmp_path / "a")
    chosen = members.of_texts(config, [str(tmp_path / name) for name in "ab"], "latest")
    with pytest.raises(ValueError, match="the members have whole weights, of which no adapters are made; allowed is"):
        run.merge(config, chosen, methods.Settings("mean"), tmp_path / "out", QUIET)
    run.merge(config, chosen, methods.Settings("mean"), tmp_path / "out", run.Wanted("full", report="none"))
    again, _ = saved_agents.restore_team(
        tmp_path / "out", "best", teams.build_team(run_folder.load_run(tmp_path / "out"))
    )
    trees = [team.members[0].trainable for team in (*models, again)]
    jax.tree.map(lambda x, y, z: np.testing.assert_allclose((x + y) / 2, z, atol=1e-6), *trees)


@pytest.mark.parametrize("names, method, wanted, message", [
    ((), "mean", {}, "there are no members; give --workdir=<run folder> or --members=<folder>,<folder>"),
    (("a",), "mean", {}, r"--method=mean: 1 member\(s\); allowed are 2 or more"),
    (("a", "a"), "mean", {}, "'.*/a' is there twice; allowed is once"),
    (("a", "gone"), "mean", {}, "no checkpoint 'best' in .*/gone/checkpoints"),
    (("a:second", "b"), "mean", {}, "/a has no agent 'second', only first"),
    (("a", "seed1"), "mean", {}, "seed1: the base 'random-tiny' is drawn from the seed, which is 1 there and 0 in the"),
    (("a", "targets"), "mean", {}, "targets has adapters of q, .*/a of down, gate, k, o, q, up, v; allowed are the"),
    (("a", "whole"), "mean", {}, "whole has whole weights, .*/a has adapters; allowed is one kind"),
    (("a", "b"), "mean", {"rank": 5}, "--rank=5: the members merged by mean have 1 to 4"),
    (("a", "b"), "mean", {"rank": 2, "form": "full"}, "--rank=2: weights in full have no rank; allowed is 0"),
])  # fmt: skip
def test_what_does_not_go_together(runs, tmp_path, names, method, wanted, message):
    others = {
        "seed1": {"seed": 1}, "targets": {"team.targets": ("q",)}, "whole": {"team.mode": "full"},
    }  # fmt: skip
    for name in set(names) & set(others):
        merge_runs.make_run(tmp_path / name, numbers=5, **others[name])
    place = {name: (tmp_path if name in others else runs[0]) / name for name in names}
    config = merge_runs.config_of()
    with pytest.raises(ValueError, match=message) as caught:
        chosen = members.of_texts(config, [str(place[name]) for name in names], "best")
        run.merge(config, chosen, methods.Settings(method), tmp_path / "out", run.Wanted(**{"report": "none"} | wanted))
    assert "\n" not in str(caught.value) and not (tmp_path / "out").exists()


def test_peft_folders_of_some_maps_are_merged(tmp_path):
    """Of q and v alone, as PEFT writes by default; the result answers as the base with half of both products added."""
    config = merge_runs.config_of()
    (member,) = teams.build_team(config).members
    sizes, random, variables = member.stack.policy.config, np.random.default_rng(0), member.base
    for name in ("p", "q"):
        own = {"layers": {"attn": {
            target: {"a": random.normal(size=(sizes.n_layers, sizes.d_model, 2)).astype(np.float32),
                     "b": random.normal(size=(sizes.n_layers, 2, heads * sizes.head_dim)).astype(np.float32)}
            for target, heads in (("q", sizes.n_heads), ("v", sizes.n_kv_heads))
        }}}  # fmt: skip
        peft.save_adapter(tmp_path / name, "", sizes, own, 2, 4.0)
        variables = adapters.merge(variables, own, 0.5 * 4.0 / 2)
    given = members.of_texts(config, [str(tmp_path / name) for name in ("p", "q")], "best")
    facts = run.merge(config, given, methods.Settings("mean"), tmp_path / "out", QUIET)
    assert facts["rank"] == 4 and run_folder.load_run(tmp_path / "out").team.targets == ("q", "v")
    np.testing.assert_allclose(
        logits_in(tmp_path / "out"), logits(member.stack.policy, variables), rtol=1e-4, atol=1e-4
    )


def test_bases_tokenizers_and_weights_that_do_not_match(runs, tmp_path):
    config, chosen = sources(runs[0], "a", "b")
    with pytest.raises(ValueError, match="--weights=1,2,3: there are 2 members; allowed is one weight for each"):
        run.merge(config, chosen, methods.Settings("sum", weights=(1, 2, 3)), tmp_path / "out", QUIET)
    other = merge_runs.config_of(model="game-tiny")
    with pytest.raises(ValueError, match="/a is of the base 'random-tiny', the result of 'game-tiny'; allowed is one"):
        run.merge(other, chosen, methods.Settings("mean"), tmp_path / "out", QUIET)
    place = tmp_path / "other"
    merge_runs.make_run(place, 1)
    (place / "inputs.json").write_text(json.dumps({
        "format": 1, "inputs": {"chat template of model 'random-tiny'": f"sha256 {64 * '0'}"},
    }))  # fmt: skip
    both = members.of_texts(config, [str(place), str(runs[0] / "a")], "best")
    with pytest.raises(ValueError, match="chat template of model .*; members of a merge need one base and one token"):
        run.merge(config, both, methods.Settings("mean"), tmp_path / "out", QUIET)


@pytest.mark.parametrize("flags, message", [
    ([], "give --workdir=<run folder>, or --members=<folder>,<folder>"),
    (["--workdir=a", "--members=b"], "give --workdir=<run folder>, or --members=<folder>,<folder>"),
    (["--members={a},{b}", "--trials=3"], "--trials: --method=mean does not read it, only scales"),
    (["--members={a},{b}", "--method=sum", "--weights=1,x"], "--weights=1,x: allowed are numbers with commas"),
    (["--members={a}:first:x"], "has no agent 'first:x', only first"),
])  # fmt: skip
def test_flags_that_are_wrong(runs, tmp_path, flags, message):
    given = [flag.format(a=runs[0] / "a", b=runs[0] / "b") for flag in flags]
    done = smoke_runs.run(smoke_runs.command("merge", *given, f"--out={tmp_path / 'out'}"), tmp_path / "cache")
    assert done.returncode == 1 and message in done.stderr and "Traceback" not in done.stderr, done.stderr
