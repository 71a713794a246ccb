"""Metrics of texts against the published vectors and against other libraries."""

import pytest

from jaxmarl_llm.tasks.commits.metrics import bleu, meteor, rouge_l
from jaxmarl_llm.tasks.commits.stemmer import stem

# The texts of the examples in the documentation of NLTK's bleu_score and meteor_score.
CANDIDATE = "It is a guide to action which ensures that the military always obeys the commands of the party"
REFERENCES = (
    "It is a guide to action that ensures that the military will forever heed Party commands",
    "It is the guiding principle which guarantees the military forces always being under the command of the Party",
    "It is the practical guide for the army always to heed the directions of the party",
)
# Made with nltk 3.10.4 and rouge-score 0.1.2: sentence_bleu with SmoothingFunction().method2, RougeScorer(["rougeL"])
# fmeasure, and single_meteor_score with PorterStemmer("MARTIN_EXTENSIONS") and a WordNet without synonyms, all on
# texts cut at spaces. rouge-score drops signs, so rows with signs have no ROUGE-L.
COMPUTED = (
    ("fix the sign in total_price", "fix a wrong sign in the total price", 0.221776, None, 0.409903),
    ("update readme", "update the readme", 0.360645, 0.8, 0.344828),
    ("add tests", "remove a helper", 0.0, 0.0, 0.0),
    ("use <= instead of < in the loop", "compare with <= instead of <", 0.434721, None, 0.640121),
    ("adding checks for empty lists and fixing the loops", "add a check for an empty list , fix the loop",
     0.128411, None, 0.622638),
    ("the the the the", "the cat is on the mat", 0.230432, 0.4, 0.172414),
    ("return the first word of the text", "return the first word of the text", 1.0, 1.0, 0.998542),
    ("police kill the gunman", "police killed the gunman", 0.5, 0.75, 0.992188),
    ("the gunman kill police", "police killed the gunman", 0.5, 0.5, 0.789062),
)  # fmt: skip
# Words of Porter's paper with the stems that nltk 3.10.4 gives them, PorterStemmer("MARTIN_EXTENSIONS").
STEMS = """caresses caress|ponies poni|ties ti|caress caress|cats cat|feed feed|agreed agre|plastered plaster|bled bled
motoring motor|sing sing|conflated conflat|troubled troubl|sized size|hopping hop|tanned tan|falling fall|hissing hiss
fizzed fizz|failing fail|filing file|happy happi|sky sky|relational relat|conditional condit|rational ration
valenci valenc|digitizer digit|conformabli conform|radicalli radic|vileli vile|vietnamization vietnam|operator oper
decisiveness decis|formaliti formal|sensibiliti sensibl|triplicate triplic|electrical electr|goodness good
allowance allow|inference infer|airliner airlin|gyroscopic gyroscop|adjustable adjust|defensible defens|irritant irrit
replacement replac|dependent depend|adoption adopt|communism commun|activate activ|effective effect|probate probat
rate rate|cease ceas|controll control|roll roll|is is|as as|fixes fix|fixing fix|analogy analog|possibly possibl
ably abli|yes ye|enjoy enjoi|crying cry|sayings sai|bees bee|agreeing agre"""


def test_bleu_has_the_documented_values_of_nltk():
    words, references = CANDIDATE.split(), [text.split() for text in REFERENCES]
    assert bleu(words, references, smooth=False) == pytest.approx(0.5045666840058485)
    assert bleu(words, references[:1], smooth=False) == pytest.approx(0.4118, abs=5e-5)
    assert bleu(words, references[:1]) == pytest.approx(0.4452, abs=1e-4)  # "0.4452...", method 2


def test_bleu_by_hand():
    # matches of 1..4 words: 2/2, (1+1)/(1+1), (0+1)/(1+1), (0+1)/(1+1), and the brevity penalty exp(1 - 3/2)
    assert bleu(["a", "b"], [["a", "b", "c"]]) == pytest.approx((1 / 4) ** 0.25 * 2.718281828 ** (1 - 3 / 2))
    assert bleu(["a", "b"], [["a", "b", "c"]], smooth=False) == 0.0
    assert bleu([], [["a"]]) == bleu(["b"], [["a"]]) == 0.0


def test_rouge_l_has_the_values_of_its_paper():
    reference = "police killed the gunman".split()
    assert rouge_l("police kill the gunman".split(), reference) == 3 / 4
    assert rouge_l("the gunman kill police".split(), reference) == 2 / 4


def test_meteor_has_the_documented_value_of_nltk():
    words, reference = CANDIDATE.lower().split(), REFERENCES[0].lower().split()
    assert meteor(words, reference) == pytest.approx(0.6944, abs=5e-5)
    # all 10 words match in one chunk: 1 - 0.5 (1/10)^3
    assert meteor(list("abcdefghij"), list("abcdefghij")) == pytest.approx(0.9995)
    assert meteor(["non"], ["cat"]) == meteor([], ["cat"]) == meteor(["cat"], []) == 0.0


@pytest.mark.parametrize(("text", "reference", "of_bleu", "of_rouge_l", "of_meteor"), COMPUTED)
def test_other_libraries_agree(text, reference, of_bleu, of_rouge_l, of_meteor):
    words, others = text.split(), reference.split()
    assert bleu(words, [others]) == pytest.approx(of_bleu, abs=1e-6)
    assert meteor(words, others) == pytest.approx(of_meteor, abs=1e-6)
    if of_rouge_l is not None:
        assert rouge_l(words, others) == pytest.approx(of_rouge_l, abs=1e-6)


def test_stems_are_porters():
    pairs = dict(pair.split() for pair in STEMS.replace("\n", "|").split("|"))
    assert {word: stem(word) for word in pairs} == pairs
