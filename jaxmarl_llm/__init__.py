"""Train teams of language models together, in JAX."""
