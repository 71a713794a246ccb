"""Systems, one short file per published method: protocol, credit and loss, nothing else."""
