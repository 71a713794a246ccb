"""From the trainer's queue to a worker and back: client, supervisor, schedule, worker."""
