"""Tasks in which every agent writes a whole program, timed or tested; the prompts of LessonL and of its rivals."""
