"""Pages to test with: matches small and large, hostile strings, and a parser of pages."""

import io
import json
import re
from collections.abc import Callable, Sequence
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np

import adaptive_ot as aot
from adaptive_ot.workbench.report.contents import Explorer, Facts, Match, Note, Page, Picture, Samples, Table


def png(pixels: np.ndarray, size: int = 24) -> bytes:
    from PIL import Image

    file = io.BytesIO()
    Image.fromarray(pixels.astype(np.uint8)).resize((size, size), Image.Resampling.NEAREST).save(file, "PNG")
    return file.getvalue()


def digits_match(count: int = 300) -> Match:
    """Digits without a 7, matched with noisy ones without a 3, by what a classifier that never saw these says."""
    from sklearn.datasets import load_digits
    from sklearn.linear_model import LogisticRegression

    rng = np.random.default_rng(0)
    data, labels = load_digits(return_X_y=True)
    order = rng.permutation(len(data))
    source = order[:900][labels[order[:900]] != 7][:count]
    target = order[900:][labels[order[900:]] != 3][:count]
    x, z = data[source] / 16, np.clip(data[target] / 16 * 0.7 + rng.normal(scale=0.13, size=(count, 64)), 0, 1)
    scores = np.zeros((count, 10))
    model = LogisticRegression(max_iter=500).fit(x, labels[source])
    scores[:, model.classes_] = model.predict_proba(z)
    rows, columns, mass = aot.solve(aot.JointCost(x, z, np.eye(10)[labels[source]], scores)).support
    sides = []
    for name, chosen, points in (("digit", source, x), ("noisy", target, z)):
        sides.append(
            Samples(
                names=[f"{name}-{k:04d}.png" for k in chosen],
                weights=np.full(count, 1 / count),
                labels=[str(label) for label in labels[chosen]],
                predicted=[str(label) for label in scores.argmax(axis=1)] if name == "noisy" else None,
                images=[png(255 - 255 * point.reshape(8, 8)) for point in points],
            )
        )
    return Match(source=sides[0], target=sides[1], rows=rows, columns=columns, mass=mass)


RESULTS = Table(
    "Results",
    ["method", "accuracy", "seeds", "time"],
    [
        ("method 10", 60.25, 3, 12.5),
        ("method 9", 7.5, 3, None),
        ("Alpha", -3.0, 2, 102.25),
        ("beta", None, 3, 0.5),
        ("alpha", float("inf"), 2, 12.5),
        ("gamma", float("nan"), 1, None),
    ],
    note="Percent.",
    bold=frozenset({(0, 1)}),
)


def digits_page(match: Match) -> Page:
    grey = np.linspace(0, 255, 64).reshape(8, 8)
    return Page(
        "Digits through noise",
        "300 digits without a 7, matched with 300 without a 3",
        [
            Facts("Summary", [("status", "optimal"), ("mass", "0.77 of at most 1")]),
            Note("One run is not finished."),
            Note("The gap is larger than it should be.", "warning"),
            RESULTS,
            Picture("Masses", png(grey, 400), png(255 - grey, 400), "From black to white.", "As grey as can be."),
            Explorer("What was matched", match, "Without a look at the classes of targets."),
            Facts("Configuration", [("data", "/data/" + "a-long-way/" * 30 + "digits.npz")], folded=True),
        ],
    )


def samples(names: Sequence[str], weights: Any = None, **fields: Any) -> Samples:
    return Samples(names=names, weights=np.ones(len(names)) if weights is None else np.asarray(weights), **fields)


def pairs(source: Samples, target: Samples, *triples: tuple[int, int, float]) -> Match:
    rows, columns, mass = zip(*triples, strict=True) if triples else ((), (), ())
    return Match(
        source=source,
        target=target,
        rows=np.array(rows, dtype=int),
        columns=np.array(columns, dtype=int),
        mass=np.array(mass, dtype=float),
    )


def page_of(text: Callable[[str], str]) -> Page:
    """A page all of whose strings come from elsewhere; `text` is told which one is meant."""
    source = samples(
        [text("name a"), text("name b"), text("name c")],
        labels=[text("class a"), text("class b"), text("class b")],
        values=np.arange(6.0).reshape(3, 2),
        columns=[text("column a"), text("column b")],
    )
    target = samples(
        [text("name d"), text("name e")],
        labels=[text("class a"), text("class c")],
        predicted=[text("class b"), text("class a")],
        images=[png(np.zeros((8, 8))), png(np.eye(8) * 255)],
    )
    return Page(
        text("title"),
        text("subtitle"),
        [
            Facts(text("heading"), [(text("fact"), text("value"))], folded=True),
            Table(text("heading"), [text("column a"), text("column b")], [(text("cell"), 1.5), (None, text("cell"))]),
            Picture(text("heading"), png(np.zeros((8, 8))), png(np.eye(8)), text("alternative"), text("caption")),
            Note(text("note"), "warning"),
            Explorer(text("heading"), pairs(source, target, (0, 0, 0.5), (1, 1, 0.25)), text("caption")),
        ],
    )


# Names that would do harm if they were taken for more than names.
HOSTILE_NAMES = (
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "</style></script><b>x",
    "{{ 7 * 7 }} ${x} $^$",
    "a\nb\tc\x1b[2Jd",
    "\u202eevil & <!-- -->",
)

SCRIPT = "<script>window.hacked = 1</script>"
PAYLOADS = [
    SCRIPT,
    *(f"</{tag}>{SCRIPT}" for tag in ("script", "style", "title")),
    *("<!--", "-->", "<!-- <script>", "]]>", "<![CDATA[", "<?php echo 1 ?>"),
    "<img src=x onerror='window.hacked = 1'>",
    "<svg onload=window.hacked=1>",
    "<iframe srcdoc='<script>parent.hacked=1</script>'>",
    "<base href=//evil.example>",
    "<meta http-equiv=refresh content='0;url=//evil.example'>",
    *("<style>*{display:none}</style>", "<plaintext>", "<textarea>"),
    "<noscript><p title='</noscript><img src=x onerror=window.hacked=1>'>",
    "<details open ontoggle=window.hacked=1>",
    *("<a href=javascript:window.hacked=1>x</a>", "javascript:window.hacked=1"),
    "data:text/html,<script>window.hacked=1</script>",
    *('" onmouseover="window.hacked=1', "' onfocus='window.hacked=1' autofocus='", "` onload=`window.hacked=1"),
    *('"><b>', "'><b>", "&lt;b&gt;", "&#60;b&#62;", "&amp;quot;", *"&<>\"'=\\", "\\u003cb>", "\\x3cscript\\x3e"),
    *("{{ 7 * 7 }}", "{% for x in y %}", "{# comment #}", "{{ config.__class__ }}", "{{ page.title | safe }}"),
    *("${window.hacked=1}", "`${window.hacked=1}`", "#{1+1}", "%s%n%x"),
    *("'; window.hacked=1; //", '"; window.hacked=1; //', "*/ window.hacked=1 /*", "/* */", "// comment"),
    *["__proto__", "constructor", "toString", "null", "undefined", "NaN", "true", "0", "-1", "1e999", "–"],
    *("", " ", "\t", "\n", "\r", "\r\n", "a\u2028b", "a\u2029b", "a\x00b", "\x00<script>"),
    *("a\x07\x08\x0b\x0c\x1b[31m\x7f\x85b", "\ufeffbyte order", "\ufffe\uffff", "\ud800", "\udfff<b>", "a\udcffb"),
    *("\u202eright to left\u202c", "\u2066isolated", "\u200f\u200e\u061c", "שלום <b> עולם", "مرحبا"),
    *("👩‍👩‍👧‍👦", "🏳️‍🌈", "e\u0301" * 40, "Z̷̧͝a̴l̶g̵o̵", "\u200b\u200c\u200d\u2060", "𝕊𝕔𝕣𝕚𝕡𝕥", "<script>", "ſcript"),
    *("long" * 5000, "<" * 3000, "no-break" * 100, "a b " * 1000),
    *("../../../etc/passwd", "C:\\windows\\system32", "file:///etc/passwd", "https://evil.example/x.js"),
    *("//evil.example", "@import url(//evil.example)", "expression(window.hacked=1)", "url(javascript:1)"),
]

# Each as it is, and in the middle of something else.
HOSTILE = list(dict.fromkeys(PAYLOADS + [f"cats {payload} dogs" for payload in PAYLOADS]))


class Read(HTMLParser):
    """A page as a parser sees it: elements and their attributes, texts by element, and the data of an explorer."""

    def __init__(self, html: str) -> None:
        super().__init__(convert_charrefs=True)
        self.elements: list[tuple[str, dict[str, Any]]] = []
        self.inside: list[tuple[str, str]] = []
        self.data: Any = None
        self._open: list[tuple[str, dict[str, Any]]] = [("", {})]
        self.feed(html)
        self.close()
        assert self._open == [("", {})], self._open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in {"meta", "link", "img", "source", "br"}:
            self._open.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop()[0] == tag, tag
        self.elements.append((f"/{tag}", {}))

    def handle_data(self, data: str) -> None:
        tag, attributes = self._open[-1]
        self.inside.append((tag, data))
        if self.data is None and attributes.get("type") == "application/json":
            self.data = json.loads(data)

    def handle_comment(self, data: str) -> None:
        self.elements.append(("!--", {}))

    def unknown_decl(self, data: str) -> None:
        self.elements.append(("![", {}))

    def handle_pi(self, data: str) -> None:
        self.elements.append(("?", {}))

    def all(self, tag: str) -> list[dict[str, Any]]:
        """The attributes of all elements of a kind."""
        return [attributes for name, attributes in self.elements if name == tag]

    def texts(self, tag: str) -> list[str]:
        return [text for inside, text in self.inside if inside == tag]

    @property
    def tags(self) -> list[str]:
        return [tag for tag, _ in self.elements if tag[0] != "/"]

    @property
    def text(self) -> str:
        """All that a reader sees."""
        words = [text for tag, text in self.inside if tag not in ("script", "style", "title")]
        return re.sub("[ \\t\\n]+", " ", " ".join(words)).strip()


def read_page(path: Any) -> Read:
    """A page on disk that loads nothing, and runs nothing but our script."""
    page = Read(Path(path).read_text(encoding="utf-8"))
    (policy,) = (given["content"] for given in page.all("meta") if "http-equiv" in given)
    assert policy.startswith("default-src 'none'; img-src data:; ")
    assert "unsafe" not in policy
    for _, attributes in page.elements:
        assert not [name for name in attributes if name.startswith("on")]
        for name in ("src", "href"):
            assert re.match(r"data:image/|#", attributes.get(name, "#")), attributes[name]
    return page
