"""What a command prints of errors that are not about its input."""

import errno
import os

import pytest

from jaxmarl_llm.cli import entry


def ends(error):
    def main(argv):
        raise error

    return entry.plainly(main)([])


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EROFS, errno.EDQUOT, errno.EIO])
def test_a_disk_that_takes_no_files_is_one_sentence(number, capsys):
    assert ends(OSError(number, os.strerror(number), "runs/a/b.json")) == 1
    assert capsys.readouterr().err == (
        f"error: runs/a/b.json cannot be written: {os.strerror(number)}; once it can, the same command goes on "
        "from what is saved\n"
    )


def test_without_a_name(capsys):
    assert ends(OSError(errno.ENOSPC, "No space left on device")) == 1
    assert capsys.readouterr().err.startswith("error: a file cannot be written: No space left on device; ")


def test_other_errors_of_the_system_are_bugs():
    with pytest.raises(OSError, match="Bad file"):
        ends(OSError(errno.EBADF, "Bad file descriptor"))
