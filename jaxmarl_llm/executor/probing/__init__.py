"""Which attacks fail on this machine, and what to do about those that succeed."""
