"""Commands as processes: flags, errors as sentences, several processes, stop signals, launching runs."""
