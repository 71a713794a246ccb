"""Which attacks fail on this machine, and what to do where they do not."""
