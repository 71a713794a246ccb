"""Train teams of language models together, in JAX."""

import os

# transformers would advise every user to install PyTorch, which nothing here needs.
os.environ.setdefault("TRANSFORMERS_NO_ADVISORY_WARNINGS", "1")
# XLA has one thread per core that the process may use. A callback (rollout/bridge.py) occupies one while it
# waits for its arguments, which another thread passes: with a single thread it would wait for ever.
if hasattr(os, "sched_getaffinity") and len(os.sched_getaffinity(0)) == 1:
    os.environ.setdefault("NPROC", "2")
