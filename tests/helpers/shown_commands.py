"""Commands that the pages show: found in Markdown, and tried by their own flags without being run.

As a script it reads a JSON list of commands and prints what is wrong with each, "" if nothing; flags are
global, so it is a process of its own.
"""

import argparse
import contextlib
import io
import json
import re
import runpy
import shlex
import sys
import warnings

COMMAND = re.compile(r"\s*(?:\w+=\S+ )*(python -m (?:experiments|benchmarks|jaxmarl_llm)\.\S+.*)")
# What a bare override of a page is put on top of, and which command reads it.
BASE = {
    "lessonl.md": "python -m experiments.evaluate --config=configs/lessonl.py",
    "optimisation.md": "python -m experiments.evaluate --config=configs/lessonl.py",
}
DEFAULT = "python -m experiments.train --config=configs/coding.py"


def of_page(text: str, name: str) -> list[str]:
    """All commands of a page, with its overrides as commands."""
    blocks, inline = _split(text)
    actual = [command for block in blocks for command in _of_block(block)]
    for code, after in inline:
        if match := COMMAND.fullmatch(code):
            mention = match[1].startswith("python -m experiments") and len(match[1].split()) == 3
            actual += [] if mention else [match[1], *_with(match[1], after)]
        elif re.search(r"--config(\.\S+)?=", code) and code.startswith("--"):
            actual += [_on_base(each, name) for each in [code, *_with(code, after)]]
    return actual


def _split(text: str) -> tuple[list[str], list[tuple[str, str]]]:
    """Fenced blocks, and inline code with the text after it."""
    fence = re.compile(r"^```\w*\n(.*?)^```", re.DOTALL | re.MULTILINE)
    rest = fence.sub("", text)
    inline = re.finditer(r"`([^`]+)`", rest)
    actual = [(" ".join(match[1].split()), rest[match.end() : match.end() + 200]) for match in inline]
    return fence.findall(text), actual


def _of_block(block: str) -> list[str]:
    """The commands of a shell block: lines put together, a loop's variable at its first value."""
    text = re.sub(r"\\\n\s*", "", block)
    for variable, first in re.findall(r"for (\w+) in (\S+)", text):
        text = text.replace(f"${variable}", first)
    lines = (re.sub(r";?(\s+#.*)?$", "", line) for line in text.splitlines())
    return [match[1] for line in lines if (match := COMMAND.fullmatch(line))]


def _with(code: str, after: str) -> list[str]:
    """The code with each value that the text names in place of its last one: `--x=a` (or `b`, `c`)."""
    listed = re.match(r"(?:(?: \(| |, )(?:or )?`[\w-]+`)+", after)
    others = re.findall(r"`([\w-]+)`", listed[0]) if listed else []
    return [f"{code.rpartition('=')[0]}={other}" for other in others]


def _on_base(code: str, name: str) -> str:
    start = DEFAULT if "--config=" not in code else DEFAULT.partition(" --config")[0]
    base = BASE.get(name, start) if "--config=" not in code else start
    return f"{base} {code}"


class Parsed(Exception):
    """The command line was accepted."""


def problem(command: str) -> str:
    """Why the command would end before it did anything, in its own words; "" if it would not."""
    module, *arguments = shlex.split(command.partition(" > ")[0])[2:]
    output = io.StringIO()
    with contextlib.redirect_stderr(output), contextlib.redirect_stdout(output), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # runpy's, of modules that others have imported
        try:
            _begin(module, arguments)
        except Parsed:
            return ""
        except SystemExit as end:
            return output.getvalue() or f"exit code {end.code}" if end.code else ""  # 0: --help
        except Exception as error:
            return f"{type(error).__name__}: {error}"
    return f"{module} has no command line"


def _begin(module: str, arguments: list[str]) -> None:
    """Start a module up to its flags and the checks of its config, then raise `Parsed`."""
    from absl import flags

    from jaxmarl_llm.cli import entry as cli

    def parse_only(parser, given=None, namespace=None):
        keep(parser, given, namespace)
        raise Parsed

    known, argv, run, keep = set(flags.FLAGS), sys.argv, cli.run, argparse.ArgumentParser.parse_args
    sys.argv, cli.run = [module, *arguments], lambda main: _check(module)
    argparse.ArgumentParser.parse_args = parse_only
    try:
        runpy.run_module(module, run_name="__main__")
    finally:
        sys.argv, cli.run, argparse.ArgumentParser.parse_args = argv, run, keep
        for name in set(flags.FLAGS) - known:
            delattr(flags.FLAGS, name)


def _check(module: str) -> None:
    """Parse the flags, and check the config as the module does."""
    from absl import flags

    from jaxmarl_llm.cli import entry as cli
    from jaxmarl_llm.config import sweeps, validate
    from jaxmarl_llm.config.programs import check_training

    rest = cli.parse(sys.argv)
    if rest[1:] and module not in ("experiments.report", "experiments.ranking"):
        raise ValueError(f"unexpected arguments {rest[1:]}")
    config = flags.FLAGS["config"].value if "config" in flags.FLAGS else None
    if config is not None:
        validate(config)
        if module == "experiments.train":
            check_training(config)
        if module == "experiments.sweep":
            flag = flags.FLAGS["config"]
            sweeps.collect(sweeps.load(flag.config_filename.partition(":")[0]), config, flag.override_values)
    raise Parsed


if __name__ == "__main__":
    print(json.dumps([problem(command) for command in json.load(sys.stdin)]))
