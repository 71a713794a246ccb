"""Whether a difference may be chance: intervals and tests for paired numbers.

Seeds are few, so Student's t is used: the numbers are means over many answers, so normal errors are a fair
assumption, and a bootstrap of three would be far too narrow. Problems are many and their differences are far
from normal, so sign flips are used.
"""

import itertools
import math

import numpy as np

from jaxmarl_llm.utils.statistics.bootstrap import Interval

EXACT = 14  # up to so many differences, all 2**14 sign flips are used; of more, DRAWN random ones
DRAWN = 10_000


def t_interval(values_S) -> Interval:
    """Mean of S numbers and its 95 % interval, mean ± t(0.975, S - 1) s / sqrt(S).

    s is the standard deviation with S - 1 in the denominator (Student 1908, Biometrika 6, "The probable
    error of a mean"). Of one number the ends are NaN, of none the mean is too.
    """
    values_S = np.asarray(values_S, np.float64)
    mean = values_S.mean() if len(values_S) else math.nan
    if len(values_S) < 2:
        return Interval(mean, math.nan, math.nan)
    from scipy import special  # a fifth of a second, which commands that print no interval do without

    half = special.stdtrit(len(values_S) - 1, 0.975) * _standard_error(values_S)
    return Interval(mean, mean - half, mean + half)


def paired_t(differences_S) -> float:
    """Two-sided p-value of Student's paired t-test: how likely a mean that far from 0 is by chance.

    p = 2 (1 - F(|mean| / (s / sqrt(S)))), F of S - 1 degrees of freedom; below 0.05 where `t_interval` leaves
    0 out. NaN for fewer than two differences. Where all are equal s is 0: p is 1 if they are 0, else the
    limit, 0.
    """
    differences_S = np.asarray(differences_S, np.float64)
    if len(differences_S) < 2:
        return math.nan
    if not differences_S.any():
        return 1.0
    error = _standard_error(differences_S)
    t = abs(differences_S.mean()) / error if error else math.inf
    from scipy import special

    return float(2 * special.stdtr(len(differences_S) - 1, -t))


def sign_flips(differences_B) -> float:
    """Two-sided p-value of the sign-flip test: the share of sign flips with |sum| as large as observed.

    If neither side is better, each difference might as well have the other sign (Fisher 1935, The Design of
    Experiments, section 21). Up to `EXACT` differences all flips are counted, the smallest p being 2 / 2**B;
    of more `DRAWN` random ones and the observed one, (1 + k) / (1 + DRAWN) (Phipson and Smyth 2010,
    arXiv 1603.05766). Differences of 0 do not count; p is 1 if there are no others.
    """
    differences_B = np.asarray(differences_B, np.float64)
    differences_B = differences_B[differences_B != 0]
    number, exact = len(differences_B), len(differences_B) <= EXACT
    if not number:
        return 1.0
    if exact:
        signs_RB = np.array(list(itertools.product((-1.0, 1.0), repeat=number)))
    else:
        signs_RB = np.random.default_rng(0).choice((-1.0, 1.0), size=(DRAWN, number))
    # The same numbers in another order may add up to a little less.
    least = abs(differences_B.sum()) - 1e-9 * np.abs(differences_B).sum()
    extreme = int((np.abs(signs_RB @ differences_B) >= least).sum())
    return extreme / len(signs_RB) if exact else (1 + extreme) / (1 + DRAWN)


def _standard_error(values_S: np.ndarray) -> float:
    return values_S.std(ddof=1) / math.sqrt(len(values_S))
