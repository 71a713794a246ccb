"""What a training run holds open: folder, services, learner, schedule, evaluations, summary."""
