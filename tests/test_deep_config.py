"""Configs: presets, files and arguments, and everything that is wrong with them, by name."""

import dataclasses
import json
import re
from importlib.resources import files
from pathlib import Path
from typing import Any, get_type_hints

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adaptive_ot.deep import Config, configure
from adaptive_ot.deep.methods import METHODS
from adaptive_ot.errors import InvalidInput

PLACE: dict[str, Any] = {"dataset": "pacs", "root": "data", "source": "a", "target": "b", "output": "run"}
PRESETS = sorted(
    each.name.removesuffix(".toml")
    for each in (files("adaptive_ot.deep") / "presets").iterdir()
    if each.name.endswith(".toml")
)


def configured(**changes: Any) -> Config:
    return configure(**PLACE | changes)


def written(folder: Path, content: str | bytes) -> Path:
    (folder / "run.toml").write_bytes(content if isinstance(content, bytes) else content.encode())
    return folder / "run.toml"


# Presets


def test_there_is_a_preset_for_every_layout():
    from adaptive_ot.deep.data.domain import DATASETS

    assert set(PRESETS) == set(DATASETS)


@pytest.mark.parametrize("dataset", PRESETS)
@pytest.mark.parametrize("method", METHODS)
def test_every_preset_configures_every_method(dataset, method):
    config = configured(dataset=dataset, method=method)
    assert (config.dataset, config.method) == (dataset, method)
    assert set(config.settings) == set(vars(METHODS[method].defaults()))
    assert json.loads(json.dumps(config.record())) == config.record()
    assert set(config.record()) == {each.name for each in dataclasses.fields(Config)}


@pytest.mark.parametrize(
    ("dataset", "batch", "iterations", "beta", "epsilon"),
    [("visda", 72, 2000, 1.8, 0.1), ("office-home", 65, 5000, 6.0, 1.0), ("office31", 62, 5000, 5.0, 1.0)],
)
def test_constants_of_the_paper(dataset, batch, iterations, beta, epsilon):
    config = configured(dataset=dataset, published=True)
    assert (config.batch, config.iterations) == (batch, iterations)
    assert config.settings["cost"] == "published"
    assert (config.settings["rooms"], config.settings["neighbours"]) == ("equal", 0)
    assert [config.settings[name] for name in ("alpha", "beta", "epsilon")] == [0.01, beta, epsilon]
    recipe = {
        **{"learning_rate": 0.001, "learning_rate_decay": 0.001, "learning_rate_power": 0.75, "head_factor": 10.0},
        **{"momentum": 0.9, "weight_decay": 5e-4, "bottleneck": 512, "network": "resnet50", "passes": "two"},
        **{"resize": 256, "crop": 224},
    }
    assert {name: getattr(config, name) for name in recipe} == recipe
    ours = configured(dataset=dataset)
    assert ours.settings["cost"] == "scale-free"
    assert dataclasses.replace(config, settings=ours.settings) == ours


@pytest.mark.parametrize(("method", "more"), [("deepjdot", {}), ("jumbot", {"tau": 0.3}), ("mpot", {"mass": 0.75})])
def test_methods_have_settings_for_datasets(method, more):
    expected = {"visda": {"alpha": 0.005, "beta": 1.0, **more}, "office31": {"alpha": 0.01, "beta": 0.5}}
    expected["office31"] |= dict.fromkeys(more, 0.5)
    for dataset, settings in expected.items():
        found = configured(dataset=dataset, method=method).settings
        assert {name: found[name] for name in settings} == settings


@pytest.mark.parametrize("change", [{"dataset": "pacs"}, {"dataset": "digits"}, {"dataset": "visda", "method": "dann"}])
def test_published_is_refused_where_nothing_is(change):
    with pytest.raises(InvalidInput, match="published needs a method with published settings for") as error:
        configured(published=True, **change)
    assert ("'aot'" if change["dataset"] == "visda" else "none") in error.value.remedy


# Layers


def test_what_is_nearer_to_the_user_wins(tmp_path):
    file = written(tmp_path, "batch = 31\nseed = 4\n[settings]\nbeta = 2\nepsilon = 3\n")
    config = configured(dataset="office31", config_file=file, published=True, seed=5, settings={"epsilon": 7})
    assert (config.iterations, config.batch, config.seed) == (5000, 31, 5)
    assert [config.settings[name] for name in ("alpha", "beta", "epsilon")] == [0.01, 2.0, 7.0]
    assert all(type(config.settings[name]) is float for name in ("beta", "epsilon"))
    file = written(tmp_path, 'method = "mpot"\ntarget_classes = ["dog"]\n')
    config = configured(dataset="visda", config_file=file)
    assert (config.method, config.settings["mass"], config.target_classes) == ("mpot", 0.75, ("dog",))


# What is refused


KNOWN = "Known are: dataset, root, "


@pytest.mark.parametrize("where", ["file", "argument"])
@pytest.mark.parametrize(
    ("name", "remedy"),
    [
        *[(name, KNOWN) for name in ("colour", "published_aot")],
        *[("Passes", "passes"), ("itertions", "iterations"), ("learning-rate", "learning_rate"), ("Batch", "batch")],
        *[("batch_size", "batch"), ("checkpoint", "checkpoint_every"), ("methods", "method")],
        *[(name, "Put it under settings.") for name in ("neighbours", "epsilon")],
    ],
)
def test_unknown_fields(tmp_path, where, name, remedy):
    """The nearest one is suggested; settings of the method have another place."""
    file = written(tmp_path, f'"{name}" = 1\n' if where == "file" else "# nothing")
    with pytest.raises(InvalidInput, match=f"'{name}' must be a known field of a run") as error:
        configured(config_file=file, **({name: 1} if where == "argument" else {}))
    if " " not in remedy:
        remedy = f"Did you mean '{remedy}'? {KNOWN}"
    assert error.value.remedy.startswith(remedy)
    assert error.value.given == ("a setting of method 'aot'" if "settings" in remedy else "an unknown name")


@pytest.mark.parametrize(
    ("change", "meant"),
    [
        ({"settings": {"bta": 1}}, "beta"),
        ({"method": "alda", "settings": {"treshold": 0.5}}, "threshold"),
        ({"method": "AOT"}, "aot"),
        ({"method": "DeepJDOT"}, "deepjdot"),
        ({"dataset": "office-31"}, "office31"),
        ({"precision": "bf-16"}, "bf16"),
        ({"settings": {"marginals": "at_most"}}, "at-most"),
    ],
    ids=str,
)
def test_the_nearest_name_is_suggested(change, meant):
    with pytest.raises(InvalidInput) as error:
        configured(**change)
    assert error.value.remedy.startswith(f"Did you mean '{meant}'? ")


@pytest.mark.parametrize("where", ["file", "argument"])
@pytest.mark.parametrize("method", METHODS)
def test_unknown_settings(tmp_path, where, method):
    file = written(tmp_path, "[settings]\nfrobnicate = 1\n" if where == "file" else "# nothing")
    given = {"frobnicate": 1} if where == "argument" else None
    with pytest.raises(InvalidInput, match=f"'frobnicate' must be a known setting of method '{method}'"):
        configured(config_file=file, method=method, settings=given)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"batch = = 1", "must be valid TOML"),
        (b"\xff\xfe", "must be valid TOML"),
        (b"batch = 1\nbatch = 2", "must be valid TOML"),
        (b"a = " + b"[" * 10000, "must be valid TOML"),
        (b"settings = 3", "must hold 'settings' as a table"),
        (b"[[settings]]\nbeta = 1", "must hold 'settings' as a table"),
        (b"[settings.beta]\nx = 1", "beta must be a number"),
        (b"batch = 1979-05-27", "batch must be a whole number"),
        (b"learning_rate = nan", "learning_rate must be a number"),
        (b"learning_rate = inf", "learning_rate must be a number"),
        *[(f'{name} = "x"'.encode(), f"must not hold '{name}'") for name in PLACE],
    ],
    ids=str,
)
def test_broken_files(tmp_path, content, message):
    with pytest.raises(InvalidInput, match=message):
        configured(config_file=written(tmp_path, content))
    for path in (tmp_path / "missing.toml", tmp_path, tmp_path / "run.yaml"):
        with pytest.raises(InvalidInput, match="config file"):
            configured(config_file=path)


WRONG: list[tuple[str, Any]] = [
    *[("dataset", value) for value in ("mnist", "", None, 3, ["pacs"])],
    *[("root", value) for value in (None, 3, b"data", ["data"])],
    *[("output", value) for value in (None, 1.5, {"a": 1})],
    *[("source", value) for value in (None, 3, ["a"])],
    *[("target", value) for value in (None, True)],
    *[("target_classes", value) for value in ("dog", 3, [1], {"dog": 1}, None, [["dog"]])],
    *[("source_classes", value) for value in ("dog", [1], None)],
    *[("unknown", value) for value in ("ignore", True, None, ["keep"])],
    *[("on_bad_image", value) for value in ("ignore", None, True, ["skip"])],
    *[("method", value) for value in ("AOT", "", None, 7, ["aot"], {"aot": 1})],
    *[("settings", value) for value in ("beta", 3, [("beta", 1)], ["beta"], True)],
    *[("network", value) for value in (None, 50, ["resnet50"])],
    *[("weights", value) for value in (3, True, ["w.pth"])],
    *[("bottleneck", value) for value in (0, -1, 1.5, "512", None, 2**70)],
    *[("iterations", value) for value in (0, -5, "many", None, 10.0, True)],
    *[("batch", value) for value in (0, -1, None, [62])],
    *[("learning_rate", value) for value in (-0.1, "fast", None, float("nan"), float("inf"), [1], True)],
    *[("learning_rate_decay", value) for value in (-1.0, None)],
    *[("learning_rate_power", value) for value in ("x", None, float("nan"), -0.5)],
    *[("head_factor", value) for value in (-1, None)],
    *[("momentum", value) for value in (1.0, -0.1, 2, None)],
    *[("weight_decay", value) for value in (-1, "none")],
    *[("passes", value) for value in ("three", 2, None)],
    *[("precision", value) for value in ("fp16", 32, None)],
    *[("deterministic", value) for value in (1, "yes", None)],
    *[("compile", value) for value in (0, "false")],
    *[("resize", value) for value in (0, 2.5, "256", 10**6)],
    *[("crop", value) for value in (0, 257, None)],
    *[("crop_kind", value) for value in ("center", None, "none")],  # 224 of 256 is a crop
    *[("flip", value) for value in (1, "true")],
    *[("test_crops", value) for value in ("five", 10)],
    *[("storage", value) for value in ("disk", None)],
    *[("workers", value) for value in (-1, 1.5, "all")],
    *[("seed", value) for value in (-1, 0.5, "0", None, 2**64)],
    *[("device", value) for value in (0, None)],
    *[("evaluate_every", value) for value in (0, None)],
    *[("checkpoint_every", value) for value in (0, -3)],
]


@pytest.mark.parametrize(("name", "value"), WRONG, ids=str)
def test_values_that_are_wrong(name, value):
    """Refused by the name of the field (dimensions that contradict each other, by one of them)."""
    with pytest.raises(InvalidInput, match=r"^crop " if name == "crop_kind" and value == "none" else f"^{name} "):
        configured(**{name: value})


def test_every_field_was_tried():
    assert {name for name, _ in WRONG} == {each.name for each in dataclasses.fields(Config)}


# Just below what makes sense, and just above it.
LIMITS: dict[str, dict[str, tuple[Any, ...]]] = {
    "source-only": {},
    **{
        name: {
            **{"alpha": (-1e-9,), "kappa": (-1e-9,), "beta": (-1e-9,), "mass": (-1e-9, 1 + 1e-9)},
            **{"tau": (0.0, -1.0), "epsilon": (0.0, -1.0), "neighbours": (-1, 701)},
        }
        for name in ("aot", "deepjdot", "jumbot", "mpot")
    },
    "rot": {"rho": (-1e-9,), "strength": (-1e-9,)},
    "dann": {"trade_off": (-1e-9,)},
    "cdan": {"trade_off": (-1e-9,), "largest_product": (-1,), "projections": (0,)},
    "alda": {"trade_off": (-1e-9,), "threshold": (-1e-9, 1 + 1e-9)},
    "caco": {
        **{"trade_off": (-1e-9,), "keys": (0,), "temperature": (0.0, -1.0), "momentum": (-1e-9, 1 + 1e-9)},
        **{"threshold": (-1e-9, 1 + 1e-9), "reliability_margin": (-1e-9, 1.0)},
    },
}
SETTINGS: list[tuple[str, dict[str, Any]]] = [
    *[("aot", {name: value}) for name in ("alpha", "beta", "kappa", "epsilon") for value in ("x", None, [1], True)],
    *[("aot", {name: "other"}) for name in ("cost", "marginals", "solver", "entropy", "rooms")],
    *[(method, {name: each}) for method, of in LIMITS.items() for name, values in of.items() for each in values],
    ("rot", {"loss": "hinge"}),
    ("dann", {"trade_off": "large"}),
    ("cdan", {"entropy_conditioning": 1}),
    ("cdan", {"projections": True}),
    ("caco", {"keys": 1.5}),
    ("aot", {"neighbours": 1.5}),
]


def test_every_number_of_every_method_has_its_limits():
    for name, method in METHODS.items():
        numbers = {key for key, kind in get_type_hints(type(method.defaults())).items() if kind in (int, float)}
        assert set(LIMITS[name]) == numbers, name


@pytest.mark.parametrize(
    ("method", "settings"),
    [
        ("alda", {"threshold": 1, "trade_off": 0}),
        ("alda", {"threshold": 0}),
        ("caco", {"momentum": 1, "threshold": 0, "reliability_margin": 0, "keys": 1}),
        ("caco", {"momentum": 0, "threshold": 1}),
        ("mpot", {"mass": 1}),
        ("mpot", {"mass": 0}),
        ("cdan", {"largest_product": 0, "projections": 1}),
        ("rot", {"rho": 0, "strength": 0}),
        ("aot", {"beta": 0, "kappa": 0, "neighbours": 700}),
        ("aot", {"neighbours": 0}),
        ("deepjdot", {"alpha": 0, "beta": 0}),
    ],
    ids=str,
)
def test_the_ends_of_ranges_belong_to_them(method, settings):
    found = configured(method=method, settings=settings).settings
    assert {name: found[name] for name in settings} == settings


@pytest.mark.parametrize(("method", "wrong"), SETTINGS, ids=str)
def test_settings_that_are_wrong(method, wrong):
    (name,) = wrong
    with pytest.raises(InvalidInput, match=f"^{name} "):
        configured(method=method, settings=wrong)


def test_settings_that_no_solver_solves():
    rule = "setting 'solver' must be 'entropic' with marginals 'soft-kl'; got 'exact'. Change one of them."
    with pytest.raises(InvalidInput, match=f"^{re.escape(rule)}$"):
        configured(method="aot", settings={"marginals": "soft-kl", "solver": "exact"})


@pytest.mark.parametrize(
    ("method", "idle", "rule"),
    [
        ("aot", {"alpha": 100}, "setting 'alpha' needs cost 'published' or 'cross-entropy'; got cost 'scale-free'"),
        ("aot", {"marginals": "soft-kl", "rooms": "grown"}, "setting 'rooms' needs marginals 'at-most'"),
        ("aot", {"cost": "published", "kappa": 1}, "setting 'kappa' needs cost 'scale-free'; got cost 'published'"),
        ("aot", {"mass": 0.5}, "setting 'mass' needs marginals 'fixed-mass'; got marginals 'at-most'"),
        ("mpot", {"tau": 0.5}, "setting 'tau' needs marginals 'soft-kl'; got marginals 'fixed-mass'"),
        ("deepjdot", {"epsilon": 1}, "setting 'epsilon' needs solver 'entropic'; got solver 'exact'"),
        ("aot", {"solver": "exact", "entropy": "product"}, "setting 'entropy' needs solver 'entropic'; got solver"),
    ],
    ids=str,
)
def test_settings_that_would_have_no_effect(tmp_path, method, idle, rule):
    """From Python or from a file; those of a preset are nobody's wish."""
    file = written(tmp_path, "\n".join(["[settings]", *(f"{name} = {json.dumps(idle[name])}" for name in idle)]))
    for place in ({"settings": idle}, {"config_file": file}):
        with pytest.raises(InvalidInput, match=f"^{re.escape(rule)}.*Omit it"):
            configured(method=method, **place)
    assert configured(dataset="office31", published=True, settings={"cost": "scale-free"}).settings["alpha"] == 0.01


@pytest.mark.parametrize(
    ("name", "value"), [("learning_rate", float("nan")), ("iterations", 0), ("root", 3), ("crop", 300)]
)
def test_a_config_checks_itself(name, value):
    assert Config(**PLACE).root == Path("data")
    with pytest.raises(InvalidInput, match=f"^{name} must"):
        Config(**PLACE | {name: value})
    with pytest.raises(InvalidInput, match=f"^{name} must"):
        dataclasses.replace(configured(), **{name: value})


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.binary(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=4,
)


FIELDS = [each.name for each in dataclasses.fields(Config)]


@pytest.mark.parametrize("name", [each for each in FIELDS if each != "settings"])  # some would have no effect
def test_every_field_is_taken_as_it_is(name):
    assert configured(**{name: getattr(configured(), name)}) == configured()


def record_or_refusal(**changes):
    """What a config writes down, which JSON gives back as it was, or None and the argument that is refused."""
    try:
        record = configured(**changes).record()
    except InvalidInput as refusal:
        return None, refusal.argument
    assert json.loads(json.dumps(record, allow_nan=False)) == record
    return record, None


@given(st.sampled_from(FIELDS), ANYTHING)
def test_anything_at_all(name, value):
    """A config, or a complaint about this very field; never another error."""
    record, refused = record_or_refusal(**{name: value})
    assert record or refused == name or name == "settings"


@given(st.sampled_from(sorted(METHODS)), st.data())
def test_any_settings_at_all(method, data):
    name = data.draw(st.sampled_from(sorted(get_type_hints(type(METHODS[method].defaults()))) or ["none"]))
    record, refused = record_or_refusal(method=method, settings={name: data.draw(ANYTHING)})
    assert record or name in refused


def test_paths_and_words_are_kept(tmp_path):
    config = configured(root=tmp_path, output="runs/a", target_classes=["dog", "cat"], weights=None, source="é \n")
    assert (config.root, config.output, config.target_classes) == (tmp_path, Path("runs/a"), ("dog", "cat"))
    assert config.source == "é \n"


# Protocols


@pytest.mark.parametrize(("dataset", "kept"), [("office-home", 25), ("office31", 10), ("visda", 6)])
def test_partial_protocols(dataset, kept, tmp_path):
    config = configured(dataset=dataset, protocol="partial")
    assert len(set(config.target_classes)) == kept
    assert config.test_crops == "ten"
    assert configured(dataset=dataset, protocol="partial", test_crops="centre").test_crops == "centre"
    assert dataclasses.replace(config, target_classes=(), test_crops="centre") == configured(dataset=dataset)
    file = written(tmp_path, "target_classes = ['a']")
    for named in ({"config_file": file}, {"target_classes": ["a"]}):
        with pytest.raises(InvalidInput, match="target_classes does not go with a protocol"):
            configured(dataset=dataset, protocol="partial", **named)


def test_protocols_that_do_not_exist():
    with pytest.raises(InvalidInput, match="protocol must be a protocol of 'pacs': there is none; got 'partial'"):
        configured(protocol="partial")
    with pytest.raises(InvalidInput, match="protocol must be a protocol of 'visda': partial; got 'open'"):
        configured(dataset="visda", protocol="open")
