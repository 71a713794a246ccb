"""Tasks whose agents each write a whole program, timed or tested; prompts of LessonL and compared methods."""
