"""What TensorStore's threads report to an event loop that is closed by then, in a process of its own."""

import subprocess
import sys

import pytest

LATE = """
import asyncio, threading
import tensorstore

async def wait(future):
    await future

promise, future = tensorstore.Promise.new()
loop = asyncio.new_event_loop()
task = loop.create_task(wait(future))
loop.run_until_complete(asyncio.sleep(0))
loop.close()
writer = threading.Thread(target=promise.set_result, args=(1,))
writer.start()
writer.join()
task._log_destroy_pending = False
"""
OTHER = """
class Bad:
    def __del__(self):
        raise RuntimeError("Event loop is closed")

Bad()
"""
OURS = "from jaxmarl_llm.utils import repeated_errors\nrepeated_errors.leave_out()\nrepeated_errors.leave_out()\n"


def printed(code):
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stderr


@pytest.mark.parametrize("code, shown", [(LATE, True), (OURS + LATE, False), (OURS + OTHER, True)])
def test_only_what_is_raised_as_well_is_left_out(code, shown):
    assert ("Event loop is closed" in printed(code)) is shown
