"""Numbers for TensorBoard."""

import time
from collections.abc import Mapping
from pathlib import Path

FORMAT = "brain.Event:2"  # from which on viewers know the mark of a restart


class EventFile:
    """A file of numbers that TensorBoard draws.

    Every row is on the disk when `write` returns. (tensorboardX's `SummaryWriter` passes rows to a separate
    thread, where a full disk can be neither caught nor reported.)

    Args:
      folder: where the file is made, named by the time; created if needed.
      resume_step: viewers hide what earlier files of the folder have from this step on.
    """

    def __init__(self, folder: Path, resume_step: int | None = None):
        from tensorboardX.event_file_writer import EventsWriter  # not needed by a run without it

        folder.mkdir(parents=True, exist_ok=True)
        self._writer = EventsWriter(str(folder / "events"))
        if resume_step is not None:
            self._add(step=resume_step, file_version=FORMAT)
            self._add(step=resume_step, session_log={"status": "START"})

    def write(self, step: int, values: Mapping[str, float]) -> None:
        """Add numbers by their names. OSError if the disk does not take them."""
        self._add(
            step=step, summary={"value": [{"tag": tag, "simple_value": v} for tag, v in values.items()]}
        )
        self._writer.flush()

    def close(self) -> None:
        """Close the file."""
        self._writer.close()

    def _add(self, **fields) -> None:
        from tensorboardX.proto.event_pb2 import Event

        self._writer.write_event(Event(wall_time=time.time(), **fields))
