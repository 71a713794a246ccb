"""Names of saved states and of the forms of exported agents: in folders, in files and in flags. Imports nothing."""

BEST, LATEST = "best", "latest"  # checkpoints of a run: best on validation, and the last one
ADAPTER, MERGED = "adapter", "merged"  # an exported agent: adapters of PEFT, or a whole model
TEAM_FILE = "team.json"  # of an exported team
