"""One short file per published system: protocol, credit and loss, nothing else."""
