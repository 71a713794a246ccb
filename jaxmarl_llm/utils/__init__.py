"""Small helpers without a subject of their own: files, console, statistics, several processes, errors."""
