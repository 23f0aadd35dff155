"""A spec becomes a target, or one clear line says why not."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from targets.base.errors import InputError, TargetError
from targets.base.hashing import file_digest
from targets.catalogue import available, describe, load_target

SMILE = """
import numpy as np

class SmileNet:
    concepts = ("smile", "teeth")

    def __init__(self, gain=1.0):
        self.gain = gain

    def score(self, images):
        return np.array([[self.gain * np.asarray(image).mean() / 255, 0.5] for image in images])
"""


def smile_net(folder: Path, text: str = SMILE) -> Path:
    path = folder / "my_model.py"
    path.write_text(text, encoding="utf-8")
    return path


def test_a_class_in_a_file(tmp_path: Path) -> None:
    path = smile_net(tmp_path)
    loaded = load_target(f"{path}:SmileNet", {"gain": 2.0})
    assert loaded.card.kind == "concepts"
    assert loaded.card.concepts == ("smile", "teeth")
    assert loaded.card.settings == {"gain": 2.0}
    assert loaded.card.code is not None
    assert not loaded.card.pinned
    assert loaded.card.spec.endswith("my_model.py:SmileNet")


def test_a_toml_file_names_the_target_and_its_settings(tmp_path: Path) -> None:
    path = smile_net(tmp_path)
    toml = tmp_path / "target.toml"
    toml.write_text(f'[target]\nspec = "{path}:SmileNet"\n[target.settings]\ngain = 3.0\n', encoding="utf-8")
    assert load_target(str(toml)).card.settings == {"gain": 3.0}
    assert load_target(str(toml), {"gain": 4.0}).card.settings == {"gain": 4.0}


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ("sfase", "did you mean 'sface'?"),
        ("nothing", "FILE.py:CLASS"),
        ("{dir}/none.py:X", "no such file"),
        ("{dir}/my_model.py", "name the class after a colon"),
        ("{dir}/my_model.py:SmileNte", "did you mean 'SmileNet'?"),
        ("captured:{dir}/none.log", "no such file"),
        ("captured", "captured:FILE"),
        ("{dir}/none.toml", "no such file"),
    ],
)
def test_a_bad_spec_is_named(tmp_path: Path, spec: str, words: str) -> None:
    smile_net(tmp_path)
    with pytest.raises(InputError) as caught:
        load_target(spec.format(dir=tmp_path))
    assert words in str(caught.value)


def test_unknown_keys_name_the_nearest_one(tmp_path: Path) -> None:
    toml = tmp_path / "target.toml"
    toml.write_text('[target]\nspec = "sface"\n[target.setings]\nx = 1\n', encoding="utf-8")
    with pytest.raises(InputError, match=r"unknown key 'target\.setings' \(did you mean 'settings'\?\)"):
        load_target(str(toml))
    log = tmp_path / "a.log"
    log.write_text("a.png\nface,0.5\t\n", encoding="utf-8")
    with pytest.raises(InputError, match=r"unknown key 'manifst' \(did you mean 'manifest'\?\)"):
        load_target(f"captured:{log}", {"manifst": "x"})


def test_a_missing_extra_holds_the_install_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name, package=None: None)
    with pytest.raises(InputError, match=r"pip install 'facedelta\[face\]'"):
        load_target("sface")


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("concepts = ('a',)", "exactly one of score, embed and lookup, found none"),
        ("def score(self, images): ...\n    def embed(self, images): ...", "found concepts and embedding"),
        ("def score(self, images): ...", "must have 'concepts'"),
        ("concepts = 'smile'\n    def score(self, images): ...", "must have 'concepts'"),
        ("concepts = ('a', 'a')\n    def score(self, images): ...", "'a' is listed twice"),
        ("concepts = ('a', '')\n    def score(self, images): ...", "non-empty text"),
        ("batch_size = 0\n    def embed(self, images): ...", "batch_size must be a positive"),
        ("card = 3\n    def embed(self, images): ...", "card must be"),
        ("card = {'nme': 'x'}\n    def embed(self, images): ...", "did you mean 'name'?"),
    ],
)
def test_a_target_that_breaks_the_protocol_is_refused(tmp_path: Path, body: str, words: str) -> None:
    path = smile_net(tmp_path, f"class Broken:\n    {body}\n")
    with pytest.raises(InputError) as caught:
        load_target(f"{path}:Broken")
    assert words in str(caught.value)


def test_entry_points_add_names_and_duplicates_raise(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "smile_plugin.py").write_text(
        SMILE + "\ndef load(argument, settings):\n    return SmileNet(**settings)\n", encoding="utf-8"
    )
    register(tmp_path, "one", "smile-net")
    monkeypatch.syspath_prepend(str(tmp_path))
    loaded = load_target("smile-net")
    assert loaded.card.concepts == ("smile", "teeth")
    assert loaded.card.code == file_digest(tmp_path / "smile_plugin.py")
    register(tmp_path, "two", "smile-net")
    with pytest.raises(TargetError, match="'smile-net' is registered by one and by two"):
        available()
    sys.modules.pop("smile_plugin", None)


def test_the_code_is_all_of_the_folder_that_a_file_imports(tmp_path: Path) -> None:
    """By hand: the numbers come from a third file, which a second one asks for when it is called."""
    (tmp_path / "parts").mkdir()
    (tmp_path / "parts" / "__init__.py").write_text("")
    (tmp_path / "parts" / "far.py").write_text("MEAN = 1.0\n")
    (tmp_path / "near_helper.py").write_text("def mean():\n    from parts.far import MEAN\n    return MEAN\n")
    (tmp_path / "unused_helper.py").write_text("x = 1\n")
    path = smile_net(tmp_path, "import json\nimport near_helper\n" + SMILE)
    before = load_target(f"{path}:SmileNet").card.code
    (tmp_path / "unused_helper.py").write_text("x = 2\n")
    assert load_target(f"{path}:SmileNet").card.code == before
    (tmp_path / "parts" / "far.py").write_text("MEAN = 2.0\n")
    assert load_target(f"{path}:SmileNet").card.code != before
    sys.modules.pop("near_helper", None)


def register(folder: Path, package: str, name: str) -> None:
    info = folder / f"{package}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n", encoding="utf-8"
    )
    (info / "entry_points.txt").write_text(
        f"[facedelta.targets]\n{name} = smile_plugin:load\n", encoding="utf-8"
    )


def test_a_plug_in_may_give_its_card_as_a_mapping() -> None:
    class Net:
        card = {"name": "My net", "weights": {"w": "00"}, "licence": "MIT"}  # noqa: RUF012

        def embed(self, images: object) -> object:
            return images

    loaded = describe(Net(), "net")
    assert loaded.card.pinned
    assert (loaded.card.name, loaded.card.licence, loaded.card.kind) == ("My net", "MIT", "embedding")
