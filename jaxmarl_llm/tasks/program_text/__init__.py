"""Programs in the texts of models: what of an answer is code, for every task whose agents write programs."""
