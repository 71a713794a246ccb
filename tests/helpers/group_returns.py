"""Returns in two groups of three, with a row of padding."""

import numpy as np

# Two interleaved groups and one padding row (key 2).
#   group 0: 1, 3, 8     mean 4, deviations -3 -1 4, population variance (9+1+16)/3 = 26/3
#   group 1: 2, 2, 2     no signal
RETURNS_R = np.array([1.0, 2.0, 3.0, 2.0, 8.0, 2.0, 99.0])
GROUP_R = np.array([0, 1, 0, 1, 0, 1, 2])
STD_0 = np.sqrt(26 / 3)
