"""Train teams of language models together, in JAX."""

import os

# transformers would advise every user to install PyTorch, which nothing here needs.
os.environ.setdefault("TRANSFORMERS_NO_ADVISORY_WARNINGS", "1")
# XLA has a thread per core that the process may use. A callback (rollout/bridge.py) holds one while it waits
# for its own arguments, which another thread passes: with a single one it would wait for ever.
if hasattr(os, "sched_getaffinity") and len(os.sched_getaffinity(0)) == 1:
    os.environ.setdefault("NPROC", "2")
