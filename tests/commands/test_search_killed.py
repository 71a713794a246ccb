"""A search whose process is killed goes on where it was, and ends as one that was not."""

import os
import random
import signal
import subprocess
import sys
import time

import scripted_timing
import smoke_runs
from scripted_searches import BATCHES, FIELDS, ROUNDS, STEPS, run, text_of


def test_a_process_that_is_killed_goes_on(monkeypatch, tmp_path, compiled):
    scripted_timing.install(monkeypatch)
    seed = random.SystemRandom().randrange(2**32)
    print(f"seed of the random round: {seed}")
    rounds = random.Random(seed).randint(1, BATCHES * ROUNDS - 2)
    arguments = [f"--config.{path}={value}" for path, value in FIELDS.items()]
    out = tmp_path / "killed" / "search.json"
    command = [sys.executable, "-m", "scripted_timing", "--config=configs/lessonl.py:scripted"]
    command += [*arguments, f"--out={out}"]
    environment, kept = smoke_runs.environment(compiled), out.with_suffix("") / "journal"
    process = subprocess.Popen(
        command, cwd=smoke_runs.ROOT, env=environment, start_new_session=True, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip
    while len(list(kept.glob("*/*_joints.json"))) < rounds and process.poll() is None:
        time.sleep(0.01)
    running = process.poll() is None
    if running:
        os.killpg(process.pid, signal.SIGKILL)
    output, _ = process.communicate()
    assert running and process.returncode == -signal.SIGKILL, output
    before = smoke_runs.files(kept)
    assert not out.exists() and len(before) < BATCHES * (STEPS + ROUNDS + 1)
    done = smoke_runs.run(command, compiled)
    assert done.returncode == 0, done.stderr
    assert before.items() <= smoke_runs.files(kept).items()  # what was there has not been done again
    run(tmp_path / "whole")
    assert out.read_text() == text_of(tmp_path / "whole")
    assert out.with_suffix(".md").is_file() and f"written: {out.with_suffix('.html')}" in done.stdout
