"""Programs in the texts of models: what is code in an answer, for all tasks with programs."""
