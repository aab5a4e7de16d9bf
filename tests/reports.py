"""Pages read as a program reads them: for tests of what stands in them."""

import json
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

# Names that would do harm if anybody took them for more than names.
HOSTILE = (
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "</style></script><b>x",
    "{{ 7 * 7 }} ${x} $^$",
    "a\nb\tc\x1b[2Jd",
    "\u202eevil & <!-- -->",
)


class Read(HTMLParser):
    """The text, elements, attributes and explorer data of a page."""

    def __init__(self, path):
        super().__init__()
        self.tags, self.attributes, self.words, self._inside = [], [], [], []
        self.policy, self.title = "", ""
        self.data: Any = None
        self.feed(Path(path).read_text(encoding="utf-8"))
        self.text = " ".join(" ".join(self.words).split())

    def handle_starttag(self, tag, attrs):
        given: Any = dict(attrs)
        self.tags.append(tag)
        self.attributes += [(tag, name) for name in given]
        self._inside.append((tag, given))
        if given.get("http-equiv") == "Content-Security-Policy":
            self.policy = given["content"]
        for name in ("src", "href"):
            assert re.match(r"data:image/|#", given.get(name, "#")), given[name]

    def handle_data(self, data):
        tag, attributes = self._inside[-1] if self._inside else ("", {})
        if tag == "script" and attributes.get("type") == "application/json":
            self.data = json.loads(data)
        elif tag == "title":
            self.title = data
        elif tag not in ("script", "style"):
            self.words.append(data)

    def handle_endtag(self, tag):
        while self._inside and self._inside.pop()[0] != tag:
            pass


def read_page(path):
    """A page that lets nothing in: its policy is there, and so is one script of ours at most."""
    page = Read(path)
    assert page.policy.startswith("default-src 'none'; img-src data:; ")
    assert "unsafe" not in page.policy
    assert not [name for _, name in page.attributes if name.startswith("on")]
    return page
