"""A page is judged by what a parser makes of it, and its explorer by counting again, slowly."""

import base64
import hashlib
import re
import sys
from collections import defaultdict
from fractions import Fraction
from typing import Any
from unittest import mock

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from adaptive_ot.errors import InvalidInput, MissingDependency
from adaptive_ot.workbench.report import pictures
from adaptive_ot.workbench.report.contents import Explorer, Facts, Match, Page, Picture, Samples, Table
from adaptive_ot.workbench.report.html import explorer, groups
from adaptive_ot.workbench.report.html.explorer import explore
from adaptive_ot.workbench.report.html.page import _environment, render
from reports import HOSTILE, RESULTS, Read, digits_page, page_of, pairs, png, samples

BLACK = png(np.zeros((8, 8)))


def rendered(*parts: Any) -> str:
    return render(Page("Title", "Subtitle", parts))


def explored(match: Match) -> Read:
    return Read(rendered(Explorer("What was matched", match)))


def plain() -> Match:
    source = samples(["a", "b", "c"], labels=["cat", "dog", "owl"])
    return pairs(source, samples(["d", "e"], labels=["cat", "fox"]), (0, 0, 0.5), (1, 1, 1.0))


class TestPage:
    def test_everything_is_there(self):
        page = Read(render(digits_page(plain())))
        for text in ("Digits through noise", "status", "0.77 of at most 1", "One run is not finished.", "Percent."):
            assert text in page.text
        headings = ["Summary", "Results", "Masses", "What was matched", "Configuration"]
        assert page.texts("h2") == page.texts("a") == headings
        ids = [given["id"] for given in page.all("section") if "id" in given]
        assert [given["href"] for given in page.all("a")] == [f"#{name}" for name in ids]
        notes = [given["class"] for _, given in page.elements if given.get("role") == "note"]
        assert notes == ["note information", "note warning", "note warning"]  # the last for browsers without scripts
        assert page.tags.count("details") == 1

    def test_the_policy_admits_our_style_and_script_and_nothing_else(self):
        html = render(digits_page(plain()))
        page = Read(html)
        (policy,) = (given["content"] for given in page.all("meta") if "http-equiv" in given)
        rules = dict(rule.strip().split(" ", 1) for rule in policy.split(";"))

        def allowed(text: str) -> str:
            return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"

        assert rules == {
            "default-src": "'none'",
            "img-src": "data:",
            "style-src": allowed("".join(page.texts("style"))),
            "script-src": allowed(page.texts("script")[-1]),
            "base-uri": "'none'",
            "form-action": "'none'",
        }
        assert html.index("Content-Security-Policy") < html.index("<style")

    def test_nothing_is_loaded_and_nothing_runs_from_attributes(self):
        addresses = {"href", "src", "srcset", "action", "data", "poster", "background"}
        for tag, attributes in Read(render(digits_page(plain()))).elements:
            for name, value in attributes.items():
                assert name != "style"
                assert not name.startswith("on")
                assert name not in addresses or value.startswith(("data:image/", "#part-")), (tag, name, value)

    def test_scripts_never_parse_text(self):
        (script,) = (text for text in Read(render(digits_page(plain()))).texts("script") if "use strict" in text)
        assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\b|Function\(", script)

    def test_cells_of_tables(self):
        html = rendered(RESULTS)
        cells, texts = Read(html).all("td"), re.findall(r"<td[^>]*>(?:<strong>)?([^<]*)", html)
        accuracy = slice(1, None, 4)
        assert texts[accuracy] == ["60.25", "7.50", "−3.00", "–", "∞", "–"]
        assert [cell.get("data-number") for cell in cells[accuracy]] == ["60.25", "7.5", "-3.0", None, "Infinity", None]
        assert [k for k, cell in enumerate(cells) if "data-missing" in cell] == [7, 13, 21, 23]
        assert Read(html).texts("strong") == ["60.25"]
        assert [header.get("class") for header in Read(html).all("th")] == [None, "number", "number", "number"]

    @pytest.mark.parametrize(
        ("values", "expected"),
        [
            ([1e-9, 1234.5], ["1e−09", "1234"]),
            ([0.45, 102.5, 14.2], ["0.45", "102.50", "14.20"]),
            ([3.0, 4.0], ["3", "4"]),
            ([np.float32(0.5), np.int64(7)], ["0.5", "7"]),
            ([10**400, 0.25], [str(10**400), "0.25"]),
            ([True, "–"], ["True", "–"]),
        ],
    )
    def test_numbers_are_written_for_people(self, values, expected):
        assert Read(rendered(Table("Numbers", ["x"], [(value,) for value in values]))).texts("td") == expected

    def test_empty_page_and_empty_parts(self):
        assert "<nav" not in rendered()
        html = rendered(Facts("Nothing", []), Table("None", [], []), Table("No rows", ["a"], []))
        assert html.count("There are no rows.") == 2

    @pytest.mark.parametrize(("text", "expected"), [("A line.", "A line."), ("The caption.", "")])
    def test_a_caption_is_not_said_twice(self, text, expected):
        (image,) = Read(rendered(Picture("Heading", BLACK, BLACK, text, "The caption."))).all("img")
        assert image["alt"] == expected

    def test_without_jinja(self):
        _environment.cache_clear()
        with mock.patch.dict(sys.modules, {"jinja2": None}), pytest.raises(MissingDependency, match=r"jinja2.*report"):
            rendered()

    @pytest.mark.parametrize(
        ("part", "argument"),
        [
            ("a string", r"parts\[0\]"),
            (Table("Uneven", ["a", "b"], [(1.0, 2.0), (1.0,)]), r"parts\[0\]\.rows\[1\]"),
            (Picture("Neither", b"GIF89a", BLACK, "a GIF"), r"parts\[0\]\.light"),
            (Picture("Nothing", BLACK, b"", "nothing"), r"parts\[0\]\.dark"),
            (Picture("A part", BLACK[:-1], BLACK, "less"), r"parts\[0\]\.light must be a whole PNG or JPEG"),
            (Picture("A part", BLACK, b"\xff\xd8\xff\xe0 cut", "less"), r"parts\[0\]\.dark must be a whole"),
        ],
    )
    def test_parts_that_cannot_be_shown(self, part, argument):
        with pytest.raises(InvalidInput, match=f"^{argument}"):
            rendered(part)


class TestHostileStrings:
    @staticmethod
    def shape(html: str) -> list[Any]:
        """Elements and attributes, without the text of the one attribute that carries some."""
        return [
            (tag, attributes | ({"alt": None} if "alt" in attributes else {}))
            for tag, attributes in Read(html).elements
        ]

    def test_they_change_no_element_and_no_attribute(self):
        assert len(HOSTILE) > 200
        # A letter tells classes apart, so that there are as many of them.
        harmless = self.shape(render(page_of(lambda which: f"harmless{which[-1]}")))
        for text in HOSTILE:
            html = render(page_of(lambda which, text=text: f"{text}{which[-1]}"))
            assert self.shape(html) == harmless, text
            html.encode()

    def test_they_arrive_as_text_and_data_cannot_leave_its_script(self):
        for text in HOSTILE:
            html = render(page_of(lambda which, text=text: text))
            page = Read(html)
            shown = re.sub("\r\n?", "\n", text)
            shown = re.sub("[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff]", "\ufffd", shown)
            assert "".join(page.texts("h1")) == "".join(page.texts("dd")) == shown
            assert page.data["classes"] == [text]
            assert page.data["source"]["names"] == [text] * 3
            assert page.data["source"]["columns"] == [text] * 2
            inside = html.partition('<script type="application/json">')[2].partition("</script>")[0]
            assert inside.isascii()
            assert not set("<>&") & set(inside)
            (image,) = Read(rendered(Picture("Heading", BLACK, BLACK, text, "Caption"))).all("img")
            assert image["alt"] == shown


class TestMatches:
    @pytest.mark.parametrize(
        ("field", "value"),
        [
            *(("weights", np.array(value)) for value in ([1.0, 1.0], [1.0, -1.0, 1.0], [1.0, np.nan, 1.0], [*"abc"])),
            *(("labels", ["x"]), ("labels[2]", ["x", "y", 3]), ("predicted", ["x"] * 4)),
            *(("images", [BLACK]), ("images[2]", [BLACK, BLACK, b"<svg/>"]), ("images[1]", [BLACK, None, BLACK])),
            *(("values", np.ones((2, 2))), ("values", np.ones(3)), ("columns", ["x"])),
        ],
    )
    @pytest.mark.parametrize("which", ["source", "target"])
    def test_sides_that_do_not_fit(self, which, field, value):
        given = {"values": np.ones((3, 2)), "columns": ["x", "y"]} | {field.partition("[")[0]: value}
        wrong, right = Samples(**{"names": ["a", "b", "c"], "weights": np.ones(3), **given}), samples(["a", "b", "c"])
        with pytest.raises(InvalidInput, match=rf"^match\.{which}\.{re.escape(field)} "):
            explored(pairs(wrong, right) if which == "source" else pairs(right, wrong))

    @pytest.mark.parametrize(
        ("field", "value"),
        [
            *(("rows", value) for value in ([0, 3], [-1, 0], [0], [0.0, 1.0])),
            *(("columns", value) for value in ([0, 2], [[0, 1]])),
            *(("mass", value) for value in ([1.0, -1e-12], [1.0, np.inf], [np.nan, 1.0], [1.0], ["1", "2"])),
        ],
    )
    def test_pairs_that_cannot_be(self, field, value):
        fields: dict[str, Any] = {"rows": [0, 2], "columns": [0, 1], "mass": [1.0, 0.5], field: value}
        source, target = samples(["a", "b", "c"]), samples(["d", "e"])
        match = Match(source=source, target=target, **{name: np.array(column) for name, column in fields.items()})
        with pytest.raises(InvalidInput, match=rf"^match\.{'rows' if value == [1.0] else field} "):
            explored(match)

    def test_not_a_match(self):
        with pytest.raises(InvalidInput, match=r"^match "):
            explore("a match")  # pyright: ignore[reportArgumentType]


@st.composite
def matches(draw, dust=0.0):
    """Sides with and without classes, and pairs some of which occur twice; masses whose sums are exact."""
    sides = []
    for _ in range(2):
        size = draw(st.integers(0, 9))
        classes = st.lists(st.sampled_from(["cat", "dog", "owl 9", "owl 10", "Fox"]), min_size=size, max_size=size)
        weights = st.lists(st.integers(0, 16), min_size=size, max_size=size)
        sides.append(
            Samples(
                names=[f"sample {k}" for k in range(size)],
                weights=np.array(draw(weights), dtype=float) / 8,
                labels=draw(st.none() | classes),
                predicted=draw(st.none() | classes),
            )
        )
    n, m = (len(side.names) for side in sides)
    pair = st.tuples(st.integers(0, max(0, n - 1)), st.integers(0, max(0, m - 1)), st.integers(0, 5))
    chosen = draw(st.lists(pair, max_size=80)) if n and m else []
    everywhere = ((row, column, dust * (1 + row)) for row in range(n) for column in range(m) if dust)
    return pairs(*sides, *((row, column, mass / 8) for row, column, mass in chosen), *everywhere)


class Judge:
    """Everything an explorer tells, from a dictionary of pairs."""

    def __init__(self, match: Match):
        self.mass: dict[tuple[int, int], Fraction] = defaultdict(Fraction)
        for row, column, mass in zip(match.rows, match.columns, match.mass, strict=True):
            self.mass[int(row), int(column)] += Fraction(float(mass))
        self.mass = {pair: mass for pair, mass in self.mass.items() if mass}
        self.match = match
        self.worth = {pair for pair in self.mass if any(self.stands_out(side, pair) for side in (0, 1))}
        self.order = sorted(self.mass, key=lambda pair: (-self.mass[pair], pair))

    def stands_out(self, side: int, pair: tuple[int, int]) -> bool:
        """Whether it is at least a hundredth of the strongest of its sample, which moves not much less than others."""
        weights = (self.match.source, self.match.target)[side].weights
        share = {
            k: min(1, self.moved(side, k) / Fraction(float(weights[k]))) if weights[k] else 1
            for k, _ in self.ends(side)
        }
        strongest = max(mass for k, mass in self.ends(side) if k == pair[side])
        return 100 * self.mass[pair] >= strongest and 100 * share[pair[side]] >= max(share.values())

    def ends(self, side: int) -> list[tuple[int, Fraction]]:
        return [(pair[side], mass) for pair, mass in self.mass.items()]

    def strongest(self, wanted, count: int) -> list[tuple[int, int]]:
        return [pair for pair in self.order if pair in self.worth and wanted(pair)][:count]

    def moved(self, side: int, sample: int) -> Fraction:
        return sum((mass for pair, mass in self.mass.items() if pair[side] == sample), Fraction(0))

    def left(self, side: int, weights: np.ndarray) -> list[int]:
        rest = {k: Fraction(float(weight)) - self.moved(side, k) for k, weight in enumerate(weights)}
        return sorted((k for k in rest if 2 * rest[k] > Fraction(float(weights[k]))), key=lambda k: (-rest[k], k))

    def plan_label(self, target: int, names: list[str]) -> int:
        labels = self.match.source.labels
        assert labels is not None
        received = [
            sum((mass for (i, j), mass in self.mass.items() if j == target and labels[i] == name), Fraction(0))
            for name in names
        ]
        return received.index(max(received)) if any(j == target for _, j in self.worth) else -1


def first(data: dict[str, Any], wanted, count: int) -> list[tuple[int, int]]:
    """The first pairs that somebody who reads the page finds."""
    kept = zip(data["pairs"]["source"], data["pairs"]["target"], strict=True)
    return [pair for pair in kept if wanted(pair)][:count]


class TestExplorer:
    @given(matches(), st.integers(1, 4), st.integers(1, 6), st.integers(1, 7))
    def test_sums_and_strongest_pairs(self, match, partners, of_block, most_cells):
        self.check(match, partners, of_block, most_cells)

    @pytest.mark.parametrize("limits", [(3, 1, 1), (1, 9, 1), (1, 1, 5)])
    def test_where_every_pair_carries_mass(self, limits):
        """Most are left out, and the few that are kept are kept for one reason only."""
        rng = np.random.default_rng(0)
        source, target = (samples([*"abcdefghijkl"], labels=rng.choice(["cat", "dog"], 12).tolist()) for _ in "st")
        self.check(pairs(source, target, *((k // 12, k % 12, rng.integers(1, 64) / 8) for k in range(144))), *limits)

    @given(matches(dust=2.0**-20), st.integers(1, 4), st.integers(1, 6), st.integers(1, 7))
    def test_traces_count_in_sums_only(self, match, partners, of_block, most_cells):
        self.check(match, partners, of_block, most_cells)

    def check(self, match, partners, of_block, most_cells):
        limits = {"PARTNERS": partners, "PAIRS_OF_BLOCK": of_block, "PAIRS_OF_ALL": 2, "MOST_CELLS": most_cells}
        with (
            mock.patch.multiple(explorer, **limits),
            mock.patch.multiple(groups, MOST_GROUPS=3, MOST_STRETCHES=2),
        ):
            data = explore(match)
        judge = Judge(match)
        assert data["count"] == len(judge.worth)
        assert data["traces"] == len(judge.mass) - len(judge.worth)
        assert data["mass"] == pytest.approx(float(sum(judge.mass.values())), rel=1e-5)
        mass = dict(zip(first(data, lambda pair: True, 10**6), data["pairs"]["mass"], strict=True))
        assert all(float(judge.mass[pair]) == pytest.approx(given, rel=1e-5) for pair, given in mass.items())
        assert first(data, lambda pair: True, 2) == judge.strongest(lambda pair: True, 2)
        for side, name in enumerate(("source", "target")):
            own = data[name]
            for k in range(len(own["names"])):
                mine = lambda pair, side=side, k=k: pair[side] == k  # noqa: E731
                assert own["moved"][k] == pytest.approx(float(judge.moved(side, k)), rel=1e-5)
                assert own["partners"][k] == sum(mine(pair) for pair in judge.worth)
                assert first(data, mine, partners) == judge.strongest(mine, partners)
            assert own["left"] == judge.left(side, getattr(match, name).weights)
        self.check_regions(data, judge, of_block, most_cells)

    def check_regions(self, data, judge, of_block, most_cells):
        """Blocks and cells."""
        group = data["source"]["group"], data["target"]["group"]
        wide = len(data["target"]["groups"])
        sizes = len(group[0]), len(group[1])
        place = [{k: at for at, k in enumerate(sorted(range(len(own)), key=lambda k: (own[k], k)))} for own in group]
        height, width = data["map"]["height"], data["map"]["width"]
        assert (height, width) == (min(most_cells, sizes[0]), min(most_cells, sizes[1]))

        def block_of(pair):
            return group[0][pair[0]] * wide + group[1][pair[1]]

        def cell_of(pair):
            row, column = (place[side][pair[side]] * count // sizes[side] for side, count in ((0, height), (1, width)))
            return row * width + column

        assert len(data["blocks"]["mass"]) == len(data["source"]["groups"]) * wide
        assert data["map"]["cells"] == sorted({cell_of(pair) for pair in judge.worth})
        regions = [(block_of, range(len(data["blocks"]["mass"])), data["blocks"], of_block, set(judge.mass))]
        regions.append((cell_of, data["map"]["cells"], data["map"], 1, judge.worth))
        for region_of, regions_here, told, count, summed in regions:
            for k, region in enumerate(regions_here):
                inside = lambda pair, of=region_of, region=region: of(pair) == region  # noqa: E731
                mass = float(sum(judge.mass[pair] for pair in summed if inside(pair)))
                assert told["mass"][k] == pytest.approx(mass, rel=1e-5)  # the page knows six digits
                assert told["count"][k] == sum(inside(pair) for pair in judge.worth)
                assert first(data, inside, count) == judge.strongest(inside, count)

    @given(matches())
    def test_plan_labels_and_disagreements(self, match):
        data, judge = explore(match), Judge(match)
        if match.source.labels is None:
            assert data["plan"] is None
            assert data["disagreements"] is None
            return
        plan = [judge.plan_label(k, data["classes"]) for k in range(len(match.target.names))]
        assert data["plan"] == plan
        if match.target.predicted is None:
            assert data["disagreements"] is None
        else:
            said = [data["classes"].index(name) for name in match.target.predicted]
            assert data["disagreements"] == [k for k in range(len(plan)) if plan[k] >= 0 and plan[k] != said[k]]

    @given(matches())
    def test_groups(self, match):
        data = explore(match)
        for name in ("source", "target"):
            side, own = getattr(match, name), data[name]
            known = side.predicted if side.labels is None else side.labels
            assert own["sizes"] == np.bincount(np.array(own["group"], int), minlength=len(own["groups"])).tolist()
            if known is None:
                assert own["kind"] == "samples"
                assert own["groups"] == [f"sample {k}" for k in range(len(side.names))]
            else:
                assert own["kind"] == ("predicted class" if side.labels is None else "class")
                assert [own["groups"][k] for k in own["group"]] == list(known)
        if "samples" not in (data["source"]["kind"], data["target"]["kind"]):
            assert data["source"]["groups"] == data["target"]["groups"]

    def test_stretches_of_samples(self):
        nobody = pairs(samples([str(k) for k in range(230)]), samples(["a"]))
        assert explore(nobody)["source"]["groups"][:2] == ["samples 0–19", "samples 20–39"]
        assert explore(nobody)["source"]["groups"][-1] == "samples 220–229"

    def test_many_classes_share_the_last_row(self):
        labels = [f"class {k}" for k in range(100) for _ in range(2 if k % 2 else 1)]
        side = samples([str(k) for k in range(150)], labels=labels)
        data = explore(pairs(side, side, (0, 0, 1.0)))
        assert len(data["source"]["groups"]) == groups.MOST_GROUPS
        assert data["source"]["groups"][-1] == "41 other classes"
        assert data["source"]["groups"][:3] == ["class 0", "class 1", "class 2"]  # 9 of those with one sample
        assert data["source"]["sizes"][-1] == 41
        assert len(data["classes"]) == 100

    def test_ten_thousand_samples(self):
        rng = np.random.default_rng(0)
        sides = [
            samples([f"images/{name}/{k:05d}.jpg" for k in range(10_000)], labels=[str(k % 30) for k in range(10_000)])
            for name in ("amazon", "webcam")
        ]
        rows, columns = rng.integers(0, 10_000, (2, 100_000))
        match = Match(source=sides[0], target=sides[1], rows=rows, columns=columns, mass=rng.random(100_000))
        html = rendered(Explorer("Big", match))
        assert len(html) < 10e6

    def test_infinite_values_are_words(self):
        side = samples(["a"], values=np.array([[np.nan, -np.inf, 1.0]]), columns=["x", "y", "z"])
        assert explore(pairs(side, side))["source"]["values"] == [["nan", "-inf", 1.0]]

    def test_only_some_values_are_kept_and_that_is_said(self):
        side = samples(["a"], values=np.ones((1, 2048)), columns=[str(k) for k in range(2048)])
        page = explored(pairs(side, samples(["b"]), (0, 0, 1.0)))
        assert "first 24 of 2,048 values" in page.text
        assert len(page.data["source"]["values"][0]) == 24


class TestImages:
    def test_each_is_stored_once_and_as_it_is(self):
        own = [png(np.full((8, 8), 30 * k)) for k in range(3)]
        jpeg = b"\xff\xd8\xff\xe0 not much of a picture"
        match = pairs(samples(["a", "b", "c"], images=own), samples(["d"], images=[jpeg]), (0, 0, 1.0), (1, 0, 0.5))
        html = rendered(Explorer("Images", match))
        data = Read(html).data
        kept = [*data["source"]["images"], *data["target"]["images"]]
        assert [base64.b64decode(uri.partition(",")[2]) for uri in kept] == [*own, jpeg]
        assert [uri.partition(";")[0] for uri in kept] == ["data:image/png"] * 3 + ["data:image/jpeg"]
        assert all(html.count(uri) == 1 for uri in kept)

    def test_those_in_the_lists_first(self):
        own = [png(np.full((8, 8), k)) for k in range(200)]
        source = samples([str(k) for k in range(200)], np.r_[np.zeros(150), np.ones(50)], images=own)
        match = pairs(source, samples(["z"], [1.0], images=own[:1]), (7, 0, 1.0))
        with mock.patch.object(pictures, "MOST_BYTES", 10 * len(own[0])):
            page = explored(match)
        kept = [k for k, uri in enumerate(page.data["source"]["images"]) if uri]
        assert 7 in kept
        assert kept[1:4] == [150, 151, 152]  # left alone, and most mass left
        assert f"no room for the images of {200 - len(kept)} samples" in page.text


class TestWords:
    def test_what_moved_and_who_is_missing(self):
        told = explored(plain()).text
        assert (
            "3 sources and 2 targets. 2 pairs carry mass 1.5: 50\xa0% of the source and 75\xa0% of the target." in told
        )
        assert "Classes only in the source: dog, owl. Classes only in the target: fox." in told
        assert "1 of 3 sources has less than half of its mass matched; 1 sends nothing. Most mass left first." in told
        assert "None: at least half of the mass of every target is matched." in told

    def test_traces_and_who_moves_little(self):
        """All that an entropic plan leaves where an exact one moves nothing."""
        source = samples(["a", "b", "c"], labels=["cat", "dog", "owl"])
        dust = ((i, j, 1e-9 * (1 + i)) for i in range(3) for j in range(2))
        told = explored(
            pairs(source, samples(["d", "e"], labels=["cat", "dog"]), (0, 0, 0.25), (1, 1, 1.0), *dust)
        ).text
        assert "2 pairs, and traces on 4 others, carry mass 1.25: 41.7\xa0% of the source and" in told
        assert "Traces are less than 1\xa0% of the strongest pair of the source and of the target, and" in told
        assert "All 2 pairs that carry more than traces of mass, the strongest first." in told
        assert "2 of 3 sources have less than half of their mass matched. Most mass left first." in told
        assert "1 of 2 targets has less than half of its mass matched. Most" in told

    def test_groups_without_classes(self):
        match = pairs(samples(["a", "b"]), samples(["d", "e"], labels=["cat", "dog"]), (0, 0, 0.25))
        told = explored(match).text
        assert "Rows: sources without classes, so in groups of consecutive samples. Columns: targets by class." in told
        assert "Rows: all sources in their order. Columns: all targets by class." in told

    def test_who_is_right(self):
        source = samples(["a", "b"], labels=["cat", "dog"])
        target = samples(
            [*"stuvwx"], labels=[*["cat"] * 4, "dog", "cat"], predicted=["dog", "dog", "owl", "cat", "owl", "cat"]
        )
        match = pairs(source, target, (0, 0, 1.0), (1, 1, 1.0), (0, 2, 1.0), (1, 3, 1.0), (0, 4, 1.0))
        told = explored(match).text
        assert (
            "They differ on 4 of 5 matched targets. The plan is right on 2 of them, the prediction on 1, neither on 1."
            in told
        )

    @pytest.mark.parametrize(
        ("match", "sentence"),
        [
            (pairs(samples([]), samples([])), "0 sources and 0 targets. Nothing was matched"),
            (pairs(samples(["a"]), samples([])), "1 source and 0 targets. Nothing was matched"),
            (pairs(samples(["a"]), samples(["b"])), "Nothing was matched: no pair carries mass."),
            (pairs(samples(["a"]), samples(["b"]), (0, 0, 0.0)), "Nothing was matched: no pair carries mass."),
            (pairs(samples(["a"]), samples(["b"]), (0, 0, 1.0)), "1 pair carries mass 1: 100\xa0% of the source"),
            (pairs(samples(["a"], [0.0]), samples(["b"]), (0, 0, 1.0)), "nothing of the source and 100\xa0%"),
        ],
    )
    def test_odd_matches(self, match, sentence):
        assert sentence in explored(match).text
