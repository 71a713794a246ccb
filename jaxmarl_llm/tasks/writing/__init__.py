"""The writing task: texts of several lengths, judged by structure, style and coherence."""
