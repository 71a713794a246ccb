"""Train teams of language models together, in JAX."""

import os

# transformers would advise every user to install PyTorch, which nothing here needs.
os.environ.setdefault("TRANSFORMERS_NO_ADVISORY_WARNINGS", "1")
