"""Fields of the task: which problems, how they are put to agents, what judges answers, who advises."""

from ml_collections.config_dict import ConfigDict


def add_fields(c: ConfigDict) -> None:
    """Add the sections of the problems, and of who advises on them."""
    c.task = ConfigDict()
    c.task.kind = "coding"  # coding | tldr (two summaries of a post) | arxiv (two parts of an introduction)
    # | game (matrix games in words, see docs/game.md) | optimisation | generation (every agent writes a whole
    # program, which is to be fast or to pass tests, see docs/lessonl.md) | lock (a word to find)
    # | dotted name of a task of your own, see docs/tasks.md
    c.task.source = "starter"  # see below; a slice may follow: humaneval[33:133]
    # coding: starter | starter:steps | starter:goal | starter:written | humaneval | path of a JSONL.
    # Writing: sample_posts | sample_abstracts | path of a JSONL | trl-lib/tldr | OpenMLRL/arXiv_abstract
    # (the last two need the data extra).
    # Game: games (both kinds) | climbing | penalty. Optimisation: python | cpp | path of a TOML file.
    # Generation: as coding. Lock: locks.
    c.task.train_split = "train"  # train | validation | test | all
    c.task.eval_source = ""  # evaluated during training, to choose the best state; empty: the same as source
    c.task.eval_split = "validation"  # train | validation | test | all
    c.task.test_source = ""  # of every reported number, read at both ends only; empty: the same as source
    c.task.test_split = "test"  # train | validation | test | all
    c.task.prompts = "examples"  # of coding and writing: examples (the same ones for all agents and methods)
    # | published (the structure of the published experiments)
    c.task.cooperation = "influence"  # of coding, what pays a call of a helper: influence (its result changed
    # main's and tests pass) | paper (as published, by main's text) | observed (the same by what main did)
    c.task.centralised = False  # one agent, named in team.agents, writes all roles
    c.task.roles = ()  # of coding with task.centralised: names (helpers .., main); empty: ("aux", "main")
    # Between turns: from nothing but the wish for another try to an expert's advice, see docs/turns.md.
    c.task.feedback = "level_feedback"  # plain | passed | level_passed | level_feedback | expert_edits
    # | played (of the game only: what all said, and what it paid)
    c.task.revealed_tests = 1  # first tests that feedback may tell of; 0: all; -n: the last n
    c.task.held_back = 0.0  # share of the tests that earn nothing, to see who learned the others by heart
    c.task.tests = "given"  # of generation, for the search: given | generated (up to six for each problem,
    # written by the first agent; the given ones then judge nothing but the end)
    c.task.column = ""  # of writing: where a row's text is; empty: as usual for the source
    c.task.bands = ""  # of the writing reward: tldr | arxiv | arxiv_later; empty: as the kind
    c.task.matching = "paper"  # of transition words: paper (parts of words count) | corrected
    c.task.reward = ""  # dotted name of a reward function of your own; empty: the task's own
    # Whom task.feedback=expert_edits asks between turns, and how agents named expert:.. are reached: these
    # have their own model's name, and tokens and temperature from config.sampling.
    c.expert = ConfigDict()
    c.expert.kind = "openai"  # openai: any endpoint that speaks its chat completions | anthropic | local
    c.expert.model = ""  # name at the endpoint; local: bundled name, folder, .gguf file or hub id
    c.expert.base_url = ""  # of the endpoint; empty: the API's own
    c.expert.key_variable = "auto"  # environment variable with the key; auto: the API's usual; empty: no key
    c.expert.max_tokens = 1024  # longest answer
    c.expert.timeout_seconds = 60.0  # of one attempt
    c.expert.retries = 5  # after the first attempt, with growing waits
    c.expert.parallel = 8  # requests under way at a time
    c.expert.requests_per_minute = 0  # 0: no limit
    c.expert.token_budget = 0  # of the run, input and output; 0: no limit
    c.expert.cache = ""  # folder that keeps every answer; empty: expert/ in the run folder
    c.expert.offline = False  # take answers from the cache only
