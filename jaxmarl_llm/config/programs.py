"""Fields of tasks in which every agent writes a whole program, and of searching for good ones."""

from ml_collections import config_dict

KINDS = ("optimisation", "generation")
# Tasks in which every agent is judged by itself: programs, and words that may open a lock.
JUDGED_ALONE = (*KINDS, "lock")
# Protocols of such tasks: rounds in which every agent writes a program.
METHODS = ("lessonl", "repeated", "reflexion", "mapcoder", "mixture")


def add_fields(c: config_dict.ConfigDict) -> None:
    """Sections with their defaults, LessonL's (arXiv 2505.23946) where it has them."""
    # Of task.kind=optimisation: a program is timed in pairs with the given one, see docs/executor.md.
    c.timing = config_dict.ConfigDict()
    c.timing.min_pairs = 7  # of calls, odd; 7 is the least that has a 95 % interval
    c.timing.max_pairs = 21  # odd
    c.timing.width = 0.1  # enough pairs when the interval is at most this share of the median wide
    c.timing.cap = 10.0  # greatest speed-up that counts
    c.timing.seconds = 20.0  # CPU time of one measurement, after which no more pairs are begun
    c.timing.min_seconds = 0.01  # CPU time that a given program must take, or the problem is refused
    c.timing.remember = True  # a program that was measured before counts as it did then; what is measured
    # again at the end, as it did when it was measured again before
    # Of train.protocol=lessonl. Rounds are train.turns, chains of rounds for a problem train.group.
    c.lessons = config_dict.ConfigDict()
    c.lessons.shown = 4  # k: most lessons in a prompt
    c.lessons.select = "full"  # full: half by benefit, half by relevance | speed_only | relevance_only
    # | random | none | dealt (in training: the chains of a problem see different ones, all equally often)
    c.lessons.control = 0  # with dealt: chains of a problem that see no lesson; with bank=run they do in the
    # first round, in which all chains see the same
    c.lessons.factor = "released"  # released: by the last round that showed it | cumulative: by all | off
    c.lessons.step = 0.1  # a vote is 1 + step or 1 - step
    c.lessons.gate = 1.1  # least s f with which a lesson is shown for its benefit; 0: any. Of speed-ups only:
    # where s is a number of tests there is no gate
    c.lessons.encoder = "policy"  # of lessons and sources, for their relevance: policy (mean of the first
    # model's last hidden states) | ngrams (needs no model) | dotted name of a function, texts -> vectors
    c.lessons.bank = "problem"  # a bank for each problem | run: lessons of earlier problems are kept
    c.lessons.keep = 200  # of bank=run: the newest so many
    # Of experiments.evaluate and experiments.ablate with these tasks.
    c.search = config_dict.ConfigDict()
    c.search.problems = 8  # searched at a time: what a stop may lose is a round of these
    c.search.stop_when_solved = False  # no more rounds for a problem once all its tests pass
    c.search.plans = 2  # of train.protocol=mapcoder: plans, which share the train.turns programs equally
    c.search.prices = ()  # for the ledger: (name, price of a million prompt tokens, of a million completion
    # tokens) of every model of the team, named as in team.models, such as (('expert:gpt-4o', 2.5, 10.0),)
