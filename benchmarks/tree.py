"""Measure the source tree: folders, files, lines, imports between folders, longest functions.

Command:   python -m benchmarks.tree [folder of a checkout]
"""

import argparse
import ast
import collections
import pathlib
import statistics

from benchmarks.tables import markdown

TOPS = ("configs", "experiments", "jaxmarl_llm")


def measure(root: pathlib.Path) -> dict:
    """Files, lines, functions and imports of a checkout.

    Returns:
      ``folders``: {folder: (files, lines)}; ``entries``: files and folders at the top of the package;
      ``functions``: (lines, name) of each function, longest first; ``arrows``: pairs of folders (rooms), the
      first of which imports the second; ``median_file``: lines.
    """
    folders: dict[str, list[int]] = collections.defaultdict(lambda: [0, 0])
    functions, arrows, lengths = [], set(), []
    for path in sorted(path for top in TOPS for path in (root / top).rglob("*.py")):
        source, relative = path.read_text(), path.relative_to(root)
        lines = len(source.splitlines())
        folders[str(relative.parent)][0] += 1
        folders[str(relative.parent)][1] += lines
        lengths += [lines] if lines else []
        tree = ast.parse(source)
        for node in ast.walk(tree):
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                functions.append((node.end_lineno - node.lineno + 1, f"{relative}:{node.name}"))
        arrows |= {(_room(relative.with_suffix("").parts), target) for target in _imported(tree)}
    package = [
        p for p in (root / "jaxmarl_llm").iterdir() if p.suffix == ".py" or (p / "__init__.py").exists()
    ]
    return {
        "folders": {name: tuple(numbers) for name, numbers in folders.items()},
        "entries": len(package),
        "functions": sorted(functions, reverse=True),
        "arrows": {(a, b) for a, b in arrows if a != b},
        "median_file": statistics.median(lengths),
    }


def _room(parts: tuple[str, ...]) -> str:
    """The folder under the package that a module is in, or the module itself; a top folder beside the package."""
    return parts[1] if parts[0] == "jaxmarl_llm" and len(parts) > 1 else parts[0]


def _imported(tree: ast.AST) -> set[str]:
    """Rooms that a module imports, by absolute names."""
    names = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and not node.level and node.module:
            bare = node.module == "jaxmarl_llm"
            names |= {f"{node.module}.{alias.name}" for alias in node.names} if bare else {node.module}
    parts = [tuple(name.split(".")) for name in names]
    return {_room(each) for each in parts if each[0] in TOPS and not each[-1].startswith("__")}


def main():
    """Command line entry."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("root", nargs="?", default=".", type=pathlib.Path)
    shape = measure(parser.parse_args().root)
    rows = [(name, *map(str, numbers)) for name, numbers in sorted(shape["folders"].items())]
    total = (str(sum(column)) for column in zip(*shape["folders"].values(), strict=True))
    print(markdown(("folder", "files", "lines"), [*rows, ("all", *total)]))
    lengths = [length for length, _ in shape["functions"]]
    rooms = {room for pair in shape["arrows"] for room in pair}
    print(
        f"\nentries at the top of jaxmarl_llm: {shape['entries']}; rooms: {len(rooms)}; imports between rooms: "
        f"{len(shape['arrows'])}\nmedian file: {shape['median_file']:.0f} lines; functions: {len(lengths)}, median "
        f"{statistics.median(lengths):.0f} lines, {sum(length > 60 for length in lengths)} of more than 60"
    )
    for length, name in shape["functions"][:8]:
        print(f"{length:5} {name}")


if __name__ == "__main__":
    main()
