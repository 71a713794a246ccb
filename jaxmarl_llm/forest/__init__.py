"""The product of an iteration, a `Forest` of turns and judged joint answers, and numbers about it. NumPy only.

`turns` holds the types, `metrics` the metrics of an iteration, `marginals` the returns that a single agent's
samples have earned. Journals of earlier versions name the types by this package's name.
"""

from jaxmarl_llm.forest.turns import JOINT_MODES, Forest, Joint, Node, SpeakRequest, Turn, joint_samples

__all__ = ["JOINT_MODES", "Forest", "Joint", "Node", "SpeakRequest", "Turn", "joint_samples"]
