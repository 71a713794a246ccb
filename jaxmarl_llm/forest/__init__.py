"""The result of an iteration, a `Forest` of turns and judged joint answers, and its metrics.

`forest` and `turns` hold the types (NumPy only), `metrics` the metrics of an iteration, `marginals` the contribution of
each agent's part. Journals of earlier versions name the types by this package's name.
"""

from jaxmarl_llm.forest.forest import Forest
from jaxmarl_llm.forest.turns import (
    ANSWER,
    CALL,
    JOINT_MODES,
    LINE,
    REFUSED,
    REMARK,
    STEP,
    Joint,
    Node,
    SpeakRequest,
    Turn,
    joint_samples,
    refused,
)

__all__ = [
    "ANSWER",
    "JOINT_MODES",
    "CALL",
    "LINE",
    "REFUSED",
    "REMARK",
    "STEP",
    "Forest",
    "Joint",
    "Node",
    "SpeakRequest",
    "Turn",
    "joint_samples",
    "refused",
]
