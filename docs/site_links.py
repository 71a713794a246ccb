"""A hook of MkDocs: the site has the README as its start, and names files of the repository without a link."""

import pathlib
import re

ROOT = pathlib.Path(__file__).parents[1]
PAGES = {"index.md": "README.md", "architecture.md": "ARCHITECTURE.md"}  # of the site: file of the repository


def on_files(files, config):
    """Add the pages that lie outside docs/."""
    from mkdocs.structure.files import File

    for page, source in PAGES.items():
        text = re.sub(r"\]\(docs/", "](", (ROOT / source).read_text())
        files.append(File.generated(config, page, content=text))
    index = files.get_file_from_path("README.md")
    if index is not None:
        files.remove(index)
    return files


def on_page_markdown(markdown, page, config, files):
    """Links to files outside docs/ become their names; those to the README and the architecture, pages."""

    def link(match):
        text, target = match[1], match[2]
        if target.startswith("../") or target.startswith(("configs/", "notebooks/", "tests/", "experiments/")):
            name, _, anchor = target.removeprefix("../").partition("#")
            pages = {source: page for page, source in PAGES.items()}
            return f"[{text}]({pages[name]}{'#' + anchor if anchor else ''})" if name in pages else text
        if target in ("CONTRIBUTING.md", "CITATION.cff", "ARCHITECTURE.md", "README.md"):
            return f"[{text}](architecture.md)" if target == "ARCHITECTURE.md" else text
        return match[0]

    return re.sub(r"(?<!!)\[([^\]]*)\]\(([^)\s]+)\)", link, markdown)
