"""What mkdocs does with this repository: more pages than docs/*.md, and links that work on GitHub and on the site.

README.md, CHANGELOG.md and CONTRIBUTING.md become pages, and so does the notebook. Files elsewhere in the repository
that a page links to are part of the site, below repository/.
"""

from __future__ import annotations

import base64
import json
import logging
import posixpath
import re
from pathlib import Path

from markdown import Extension, Markdown
from markdown.inlinepatterns import InlineProcessor
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page
from mkdocs.utils import get_relative_url

ROOT = Path(__file__).parent.parent
PAGES = {
    "README.md": "index.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "docs/tutorial.ipynb": "tutorial.md",
}
LANGUAGES = {".py": "python", ".toml": "toml"}  # shown as pages; other files are downloads
PRODUCT = r"<(\|?[A-Za-z]\w*\|?, [^<>]+)>"
DIRECTIVE = re.compile(r"^::: (\S+)$", re.MULTILINE)  # of mkdocstrings
NAMED = re.compile(
    r"<(?P<whole>a|h\d|pre|span)\b.*?</(?P=whole)>|<code>(?:aot\.)?(?P<name>\w+)(?:\([^<()]*\))?</code>", re.DOTALL
)
LOG = logging.getLogger("mkdocs.hooks.pages")  # a warning is an error under --strict
BESIDE = "repository/"
LINK = re.compile(r"(?<=\]\()(?!https?:|#|mailto:)([^)\s#]+)(?=[)#])")


class InnerProduct(InlineProcessor):
    """<C, G> is text, as on GitHub; Python-Markdown takes it for a tag."""

    def handleMatch(self, m: re.Match[str], data: str) -> tuple[str, int, int]:  # noqa: N802
        """Keep it from all other rules."""
        return self.md.htmlStash.store(f"&lt;{m[1]}&gt;"), *m.span()


class InnerProducts(Extension):
    """Look for products after code and before tags."""

    def extendMarkdown(self, md: Markdown) -> None:  # noqa: N802
        """Called by Markdown."""
        md.inlinePatterns.register(InnerProduct(PRODUCT, md), "inner product", 95)


def on_config(config: MkDocsConfig) -> None:
    """Have Markdown know products, on pages and in docstrings."""
    config["markdown_extensions"].append(InnerProducts())


def on_files(files: Files, config: MkDocsConfig) -> None:
    """Add the pages that are not in docs, and every file of the repository that some page links to."""
    for origin, page in PAGES.items():
        text = (ROOT / origin).read_text(encoding="utf-8")
        if origin.endswith(".ipynb"):
            text, pictures = from_notebook(json.loads(text)["cells"])
            for name, picture in pictures.items():
                files.append(File.generated(config, name, content=picture))
        files.append(File.generated(config, page, content=text))
    for file in list(files.documentation_pages()):
        for link in LINK.findall(file.content_string):
            add(files, config, repository_path(file.src_uri, link))


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Point links between files of the repository to the pages that these have become."""
    here = page.file.src_uri
    if page.is_homepage:
        page.meta["hide"] = ["navigation"]  # it has one entry

    def moved(link: re.Match[str]) -> str:
        path = repository_path(here, link[0])
        if not (ROOT / path).exists():
            return link[0]  # mkdocs complains
        return posixpath.relpath(site_path(path), posixpath.dirname(here) or ".")

    return LINK.sub(moved, markdown)


def on_page_content(html: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Link names in code to the reference, except in headings and links, and except ambiguous words."""
    places = {}
    for file in files.documentation_pages():
        if file.src_uri.startswith("reference/"):
            places |= {name.rpartition(".")[2]: f"{file.url}#{name}" for name in DIRECTIVE.findall(file.content_string)}

    def linked(part: re.Match[str]) -> str:
        name = part["name"]
        if name not in places or (name.islower() and "_" not in name and name not in ("solve", "match", "certify")):
            return part[0]
        return f'<a href="{get_relative_url(places[name], page.url)}">{part[0]}</a>'

    return NAMED.sub(linked, html)


def on_post_page(output: str, page: Page, config: MkDocsConfig) -> None:
    """Complain about a page that loads anything from outside."""
    for tag in re.findall(r"<(?:script|img|iframe|source|link)\b[^>]*>", output):
        if re.search(r'(?:src|href)="(?:https?:)?//', tag) and 'rel="canonical"' not in tag:
            LOG.warning("%s loads something from outside: %s", page.file.src_uri, tag)


def repository_path(page: str, link: str) -> str:
    """The file of the repository that a link of a page of the site means."""
    origins = {name: origin for origin, name in PAGES.items()}
    origin = page.removeprefix(BESIDE) if page.startswith(BESIDE) else origins.get(page, f"docs/{page}")
    return posixpath.normpath(posixpath.join(posixpath.dirname(origin), link))


def site_path(path: str) -> str:
    """Where a file of the repository is on the site."""
    if path in PAGES or (path.startswith("docs/") and not path.endswith(".py")):
        return PAGES.get(path, path.removeprefix("docs/"))
    if (ROOT / path).is_dir():
        return f"{BESIDE}{path}/index.md"
    return f"{BESIDE}{path}.md" if Path(path).suffix in LANGUAGES else f"{BESIDE}{path}"


def add(files: Files, config: MkDocsConfig, path: str) -> None:
    """Make a file or folder of the repository part of the site, unless it is or does not exist."""
    origin, target = ROOT / path, site_path(path)
    if target in files.src_uris or not target.startswith(BESIDE) or not origin.exists():
        return
    if origin.is_dir():
        inside = sorted(entry.name for entry in origin.iterdir() if entry.is_file() and entry.name[0] not in "._")
        text = "".join(f"- [{name}]({name})\n" for name in inside)
        for name in inside:
            add(files, config, f"{path}/{name}")
    elif target.endswith(".md"):
        text = f"````{LANGUAGES[origin.suffix]}\n{origin.read_text(encoding='utf-8')}````\n"
    else:
        files.append(File.generated(config, target, abs_src_path=str(origin)))
        return
    files.append(
        File.generated(
            config,
            target,
            content=f"---\nsearch: {{exclude: true}}\nhide: [navigation, toc]\n---\n\n# {path}\n\n{text}",
        )
    )


def from_notebook(cells: list[dict]) -> tuple[str, dict[str, bytes]]:
    """A notebook as Markdown, with what its cells printed, and its pictures by name."""
    parts, pictures = [], {}
    for cell in cells:
        text = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            parts.append(text)
            continue
        parts.append(f"```python\n{text}\n```")
        for output in cell["outputs"]:
            data = output.get("data", {})
            if "image/png" in data:
                name = f"tutorial-{len(pictures) + 1}.png"
                pictures[name] = base64.b64decode("".join(data["image/png"]))
                parts.append(f"![]({name})")
            else:
                printed = "".join(output.get("text") or data["text/plain"]).rstrip()
                parts.append(f"```{{.text .printed}}\n{printed}\n```")
    parts.insert(1, '<a href="../tutorial.ipynb" download>Download this page as a notebook.</a>')
    return "\n\n".join(parts), pictures
