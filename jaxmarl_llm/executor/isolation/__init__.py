"""What keeps a process from the machine: resource limits, Landlock, seccomp, namespaces."""
