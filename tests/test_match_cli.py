"""``adaptive-ot match``: links from files of candidate pairs."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import adaptive_ot as aot
from adaptive_ot.workbench.cli import main
from commands import refused, summary

pa = pytest.importorskip("pyarrow")
parquet = pytest.importorskip("pyarrow.parquet")

PEOPLE = '''left,right,log odds,decoy
ann,007,3.5,false
ann,008,2,false
bob,007,3,false
"eve, ""e""",009,-1,false
eve,x1,0.5,true
'''


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("pairs.csv").write_text(PEOPLE)


def test_names_in_names_out(capsys):
    shown = summary(capsys, "match", "pairs.csv", "-o", "links.csv", "--margin")
    assert Path("links.csv").read_text() == (
        "source,target,score,margin\nann,008,2.0,1.5\nbob,007,3.0,1.5\neve,x1,0.5,0.5\n"
    )
    assert [shown[name] for name in ("pairs", "sources", "targets", "links", "score")] == [5, 4, 4, 3, 5.5]
    assert [shown[name] for name in ("unmatched_sources", "unmatched_targets", "output")] == [1, 1, "links.csv"]
    assert shown["gap"] <= 1e-14
    assert main(["match", "pairs.csv"]) == 0
    printed = capsys.readouterr().out
    assert "Matching of 4 sources to 4 targets" in printed
    assert "3 of 5 candidate pairs" in printed


def test_columns_by_name_and_costs(capsys):
    Path("costs.csv").write_text("cost,b,a\n1,2,1\n4,2,2\n9,1,2\n")
    named = ["--source", "a", "--target", "b", "--score", "cost"]
    shown = summary(capsys, "match", "costs.csv", *named, "--limit", "5", "--source-capacity", "2", "-o", "links.csv")
    assert Path("links.csv").read_text() == "source,target,score\n1,2,4.0\n"
    assert (shown["links"], shown["score"]) == (1, 4.0)


@pytest.mark.parametrize("kind", [pa.int64(), pa.string(), pa.large_string()])
def test_parquet_in_pieces_is_the_same_as_arrays(capsys, kind):
    rng = np.random.default_rng(0)
    rows, columns = np.divmod(rng.permutation(200 * 150)[:3000], 150)
    score = rng.normal(size=3000)
    table = pa.table({"i": pa.array(rows).cast(kind), "j": pa.array(columns).cast(kind), "s": score, "more": score})
    parquet.write_table(table, "pairs.parquet", row_group_size=500)
    summary(capsys, "match", "pairs.parquet", "-o", "links.parquet")
    found = parquet.read_table("links.parquet")
    links = {(int(i), int(j)) for i, j in zip(found["source"].to_pylist(), found["target"].to_pylist(), strict=True)}
    expected = aot.match(pairs=(rows, columns, score))
    assert links == set(map(tuple, expected.pairs.tolist()))
    np.testing.assert_allclose(sum(found["score"].to_pylist()), expected.score)


def test_error_rate(capsys):
    rng = np.random.default_rng(1)
    lines = ["s,t,score,is decoy"]
    for i in range(300):
        lines += [f"s{i},t{i},{rng.normal(6, 1):.3f},0"] if i < 200 else []
        others = rng.permutation(600)[:8]
        lines += [f"s{i},t{j},{rng.normal(0, 2):.3f},{int(j >= 300)}" for j in others if j != i]
    Path("linkage.csv").write_text("\n".join(lines))
    asked = ["match", "linkage.csv", "-o", "links.csv", "--error-rate", "0.05", "--decoy", "is decoy"]
    shown = summary(capsys, *asked)
    links = [line.split(",")[:2] for line in Path("links.csv").read_text().splitlines()[1:]]
    assert len(links) == shown["links"] > 150
    assert not any(int(target[1:]) >= 300 for _, target in links)
    assert np.mean([source[1:] != target[1:] for source, target in links]) < 0.1
    assert shown["error_rate"] <= 0.05 <= shown["error_rate_high"] + 0.05
    assert shown["price"] > 0
    assert main(asked) == 0
    assert "% estimated (" in capsys.readouterr().out


DECOYS = ["--decoy", "d", "--error-rate", "0.1"]
REFUSED = {
    "missing": (["missing.csv"], "must exist"),
    "kind": (["pairs.txt"], "must end in .csv or .parquet"),
    "column": (["pairs.csv", "--score", "odds"], "--score must be a column of 'pairs.csv'; got 'odds'. It has 'left'"),
    "one column": (["pairs.csv", "--source", "right"], "must have a column for each of"),
    "text": (
        ["pairs.csv", "--score", "left", "--source", "decoy"],
        "as the score in every line; got 'ann' in line 2, column 'left'. ",
    ),
    "order": (["order.csv"], "got 'score', 'left', 'right'. Write --score score --source left --target right."),
    "other names": (["odds.csv"], "got 'b' in line 2, column 'right'. Source, target and score were taken"),
    "comma": (["comma.csv"], "got '1,5' in line 3, column 'score'. Write decimals with a point, as in 1.5."),
    "words": (
        ["words.csv", *DECOYS],
        "have true or false in every line; got 'yes' in line 2, column 'd'. Write true or",
    ),
    "empty flag": (
        ["flags.csv", *DECOYS],
        "true or false in every line; got nothing in line 3, column 'd'. Write true",
    ),
    "no header": (
        ["bare.csv"],
        "must start with the names of its columns; got '4.5' for the scores. Line 1 looks like",
    ),
    "cost": (["cost.csv"], "got 'Cost'. Give --limit, the price of leaving both alone: score = limit - cost. If the"),
    "probability": (["probability.csv"], "got 'match_probability'. Convert it: score = log(p / (1 - p)). If the"),
    "probability and limit": (["probability.csv", "--limit", "1"], "got 'match_probability'. Convert it"),
    "two columns": (["two.csv"], "must have three columns; got 2"),
    "twice": (["twice.csv"], "'twice.csv' must not repeat; got 'a' and 'b' twice. Keep the best score of every pair."),
    "empty score": (["hole.csv"], "a number as the score in every line; got nothing in line 4, column 'score'. Fill"),
    "inf": (
        ["inf.csv"],
        "'inf.csv' must not have a score above 1e+100; got inf in line 3, column 'score'. Use a smaller",
    ),
    "inf cost": (["low.csv", "--limit", "1"], "must not have a cost below -1e+100; got -1e300 in line 2, column 'c'"),
    "nan": (["nan.csv"], "as the score in every line; got 'nan' in line 2, column 'score'. Fill it in"),
    "parquet hole": (["hole.parquet"], "must have a number as the score in every row; got none in 's'. Fill it in"),
    "parquet text": (
        ["text.parquet"],
        "got Failed to parse string: 'b' as a scalar of type double. Convert it, or name",
    ),
    "parquet flag": (["flag.parquet", *DECOYS], "must have true or false in every row; got none in 'd'. Fill it in"),
    "empty name": (["nameless.csv"], "must name every target; got an empty name"),
    "ragged": (["ragged.csv"], "must be a valid .csv file"),
    "no parquet": (["no.parquet"], "must be a valid .parquet file"),
    "capacity": (["pairs.csv", "--source-capacity", "-1"], "--source-capacity must hold whole numbers from 0"),
    "both sides": (["pairs.csv", "--source-capacity", "2", "--target-capacity", "2"], "--target-capacity must be"),
    "no decoys": (["pairs.csv", "--error-rate", "0.1"], "--error-rate needs --decoy"),
    "no rate": (["pairs.csv", "--decoy", "decoy"], "--decoy needs --error-rate"),
    "rate": (["pairs.csv", "--decoy", "decoy", "--error-rate", "2"], "--error-rate must be a number from"),
    "mixed": (["mixed.csv", "--decoy", "d", "--error-rate", "0.1"], "always or never; got both for 'b'"),
    "margin": (["pairs.csv", "--decoy", "decoy", "--error-rate", "0.1", "--margin"], "--margin does not go with"),
    "output": (["pairs.csv", "-o", "pairs.csv"], "must not be one of the inputs"),
    "output kind": (["pairs.csv", "-o", "links.txt"], "must end in .csv or .parquet"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refused(case, capfd):
    files = {
        "pairs.txt": "a",
        "bare.csv": "anna,ann,4.5\nbob,bob,6\n",
        "cost.csv": "s,t,Cost\na,b,1\n",
        "probability.csv": "s,t,match_probability\na,b,0.2\n",
        "two.csv": "a,b\n1,2\n",
        "twice.csv": "s,t,score\na,b,1\na,c,1\na,b,2\n",
        "hole.csv": "s,t,score\na,b,1\n\na,c,\n",
        "nan.csv": "s,t,score\na,b,nan\n",
        "inf.csv": "s,t,score\na,b,-inf\na,c,inf\n",
        "low.csv": "s,t,c\na,b,-1e300\n",
        "order.csv": "score,left,right\n1,2,3\n",
        "odds.csv": "odds,left,right\n1,a,b\n",
        "comma.csv": 's,t,score\na,b,1\na,c,"1,5"\n',
        "words.csv": "s,t,score,d\na,b,1,yes\n",
        "flags.csv": "s,t,score,d\na,b,1,true\na,c,1,\n",
        "nameless.csv": "s,t,score\na,,1\n",
        "ragged.csv": "s,t,score\na,b,1\na,c\n",
        "no.parquet": "s,t,score\na,b,1\n",
        "mixed.csv": "s,t,score,d\na,b,1,true\nc,b,1,false\n",
    }
    for name, text in files.items():
        Path(name).write_text(text)
    tables = {
        "hole.parquet": {"a": ["a", "a"], "b": ["b", "c"], "s": [1.0, None]},
        "text.parquet": {"o": [1.0], "a": ["a"], "t": ["b"]},
        "flag.parquet": {"a": ["a", "a"], "b": ["b", "c"], "s": [1.0, 2.0], "d": [True, None]},
    }
    for name, table in tables.items():
        parquet.write_table(pa.table(table), name)
    arguments, message = REFUSED[case]
    refused(capfd, ["match", *arguments], message)


def test_a_number_may_name_the_scores(capsys):
    Path("numbered.csv").write_text("0,1,2\nann,bob,3\n")
    assert summary(capsys, "match", "numbered.csv", "--score", "2")["score"] == 3


def test_a_column_named_cost_may_be_meant(capsys):
    Path("cost.csv").write_text("s,t,cost\na,b,1\n")
    assert summary(capsys, "match", "cost.csv", "--score", "cost")["score"] == 1
    assert summary(capsys, "match", "cost.csv", "--limit", "3")["score"] == 2


def test_nothing_to_match(capsys):
    Path("empty.csv").write_text("source,target,score\n")
    shown = summary(capsys, "match", "empty.csv", "-o", "links.csv")
    assert (shown["links"], shown["score"], shown["sources"]) == (0, 0.0, 0)
    assert Path("links.csv").read_text() == "source,target,score\n"
