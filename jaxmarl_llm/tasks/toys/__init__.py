"""Small tasks whose answers are known: matrix games, a lock, a convention, letters."""
