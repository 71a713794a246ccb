"""Questions whose answers can be checked: a number, a choice, a short text; sources, prompts, feedback, judge."""
