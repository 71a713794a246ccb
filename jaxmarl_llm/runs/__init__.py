"""The parts of a training run: folder, services, learner, schedule, evaluations, summary."""
