"""What a command prints of errors that are not about its input."""

import ast
import errno
import os
import subprocess
import sys
import textwrap

import pytest
from absl import flags
from repository import ROOT

from jaxmarl_llm.cli import entry
from jaxmarl_llm.utils.errors import UserError


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


def test_a_script_ends_with_a_sentence_or_with_what_it_returns(capsys):
    def refuses():
        raise UserError("--seeds=x: allowed are whole numbers")

    for main, code in ((refuses, 1), (lambda: 3, 3), (lambda: None, None)):
        with pytest.raises(SystemExit) as ended:
            entry.run_script(main)
        assert ended.value.code == code
    assert capsys.readouterr().err == "error: --seeds=x: allowed are whole numbers\n"


def test_what_a_command_calls_cannot_end_it_in_silence(capsys, monkeypatch):
    monkeypatch.setattr(entry.app, "run", lambda main, flags_parser: codes.append(main([])))
    codes = []
    entry.run(lambda argv: sys.exit(0))
    entry.run(lambda argv: 0)
    assert codes == [1, 0]
    assert "error: a function that the command called wanted to end it (SystemExit: 0)" in capsys.readouterr().err


@pytest.mark.parametrize("text", ["nan", "inf", "-inf", "1e400"])
def test_numbers_of_flags_are_finite(text, monkeypatch, capsys):
    """Also nan, which every comparison with a bound lets through, in flags of one number and in lists."""
    own = flags.FlagValues()
    flags.DEFINE_bool("logtostderr", True, "", flag_values=own)
    flags.DEFINE_integer("verbosity", 0, "", flag_values=own)
    flags.DEFINE_float("share", 0.5, "", flag_values=own)
    flags.DEFINE_float("above", None, "", flag_values=own)
    monkeypatch.setattr(flags, "FLAGS", own)
    with pytest.raises(SystemExit) as ended:
        entry.parse(["x", f"--share={text}"])
    assert ended.value.code == 1
    assert capsys.readouterr().err == f"error: --share={float(text)}: allowed are finite numbers\n"
    assert entry.parse(["x", "--share=1e30"]) == ["x"] and own.share == 1e30
    with pytest.raises(UserError, match=f"--weights=1,{text}: allowed are numbers with commas"):
        entry.numbers("weights", ["1", text])


def test_numbers_of_a_list():
    assert entry.numbers("scales", ["1", "-0.5", "2e3"]) == (1.0, -0.5, 2000.0) and entry.numbers("scales", []) == ()
    with pytest.raises(UserError, match="--scales=1,,2: allowed are numbers with commas"):
        entry.numbers("scales", ["1", "", "2"])


PRINTS = """
    import multiprocessing, sys
    from jaxmarl_llm.cli import entry
    from jaxmarl_llm.utils import console

    ANSWER = "na\\u00efve \\u2192 \\U0001f600 \\ud800"

    def main(argv):
        console.ProgressDisplay(2).print(ANSWER)
        console.table([[ANSWER, 1.5]], ["caf\\u00e9", "x"])
        print(ANSWER, file=sys.stderr)
        child = multiprocessing.get_context("spawn").Process(target=print, args=(ANSWER,))
        child.start()
        child.join()
        print(child.exitcode)

    if __name__ == "__main__":
        entry.run(main)
"""


@pytest.mark.parametrize("encoding, answer", [
    ("ascii", r"na\xefve \u2192 \U0001f600 \ud800"),
    ("latin-1", "na\xefve " + r"\u2192 \U0001f600 \ud800"),
    ("cp1252", "na\xefve " + r"\u2192 \U0001f600 \ud800"),
    ("utf-8", "na\xefve \u2192 \U0001f600 " + r"\ud800"),
])  # fmt: skip
def test_a_command_prints_what_the_encoding_lacks(tmp_path, encoding, answer):
    """Answers and names are printed in the midst of a training, also by a reward in a process of its own."""
    (tmp_path / "prints.py").write_text(textwrap.dedent(PRINTS), encoding="utf-8")
    environment = os.environ | {"PYTHONPATH": str(ROOT), "PYTHONIOENCODING": encoding}
    done = subprocess.run([sys.executable, tmp_path / "prints.py"], env=environment, capture_output=True, check=True)
    lines = done.stdout.decode(encoding).splitlines()
    assert lines[0] == answer and lines[-2:] == [answer, "0"] and lines[3].startswith(answer)
    assert done.stderr.decode(encoding).splitlines()[-1] == answer


def names_no_encoding(call: ast.Call) -> bool:
    """Whether a call reads or writes text of a file in the encoding of the locale."""
    values = [getattr(each, "value", None) for each in (*call.args, *(each.value for each in call.keywords))]
    if isinstance(call.func, ast.Name) and call.func.id == "open":
        binary = any(isinstance(mode, str) and "b" in mode for mode in values[1:2])
    elif isinstance(call.func, ast.Attribute) and call.func.attr in ("read_text", "write_text"):
        binary = getattr(call.func.value, "id", "") == "files"  # those of the project are always UTF-8
    else:
        return False
    return not (binary or "utf-8" in values or any(each.arg == "encoding" for each in call.keywords))


def test_files_name_their_encoding():
    """With the locale's, a run could not be read on another machine. The executor reads what the kernel writes."""
    paths = [path for path in (ROOT / "jaxmarl_llm").rglob("*.py") if "executor" not in path.parts]
    calls = [(path, each) for path in paths for each in ast.walk(ast.parse(path.read_text("utf-8")))]
    without = [f"{path}:{each.lineno}" for path, each in calls
               if isinstance(each, ast.Call) and names_no_encoding(each)]  # fmt: skip
    assert len(paths) > 100 and not without
