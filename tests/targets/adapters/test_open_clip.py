"""open-clip on a tiny model with random weights, in a folder as a hub model would be."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from PIL import Image

from targets.base.errors import InputError
from targets.catalogue import load_target
from targets.drawn_pictures import drawn_faces
from targets.prompts import FACE_PHRASES
from targets.scoring import PictureRef, score_pictures
from tests.support import command, drawn_pairs
from tests.targets.tools import audited, conforms, scores_of

open_clip = pytest.importorskip("open_clip", reason="needs the extra 'clip' (open_clip_torch and torch)")
torch = pytest.importorskip("torch")
safetensors = pytest.importorskip("safetensors.torch")

TWO = {"concepts": ["smile", "glasses"]}


def write_model(folder: Path, width: int = 32, seed: int = 0) -> Path:
    """A vision and a text tower of one layer each."""
    folder.mkdir(parents=True, exist_ok=True)
    config = {
        "model_cfg": {
            "embed_dim": 16,
            "vision_cfg": {"image_size": 48, "layers": 1, "width": width, "head_width": 16, "patch_size": 16},
            "text_cfg": {"context_length": 77, "vocab_size": 49408, "width": 32, "heads": 2, "layers": 1},
        },
        "preprocess_cfg": {"size": 48, "mean": [0.4, 0.45, 0.5], "std": [0.25, 0.3, 0.2]},
    }
    (folder / "open_clip_config.json").write_text(json.dumps(config))
    torch.manual_seed(seed)
    model = open_clip.create_model(f"local-dir:{folder}", load_weights=False)
    safetensors.save_file(model.state_dict(), folder / "open_clip_model.safetensors")
    return folder


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_model(tmp_path_factory.mktemp("clip") / "tiny")


@pytest.mark.parametrize("output", ["cosine", "softmax", "embedding"])
def test_conforms(model: Path, output: str) -> None:
    conforms(f"open-clip:{model}", {"output": output})


def test_the_face_concepts_are_asked_where_none_are_given(model: Path) -> None:
    loaded = load_target(f"open-clip:local-dir:{model}")
    assert loaded.card.concepts == tuple(FACE_PHRASES)
    assert loaded.card.weights["state"]
    assert loaded.card.settings["precision"] == "float32"


def test_an_audit_asks_about_each_attribute_in_its_taxonomys_words(model: Path, tmp_path: Path) -> None:
    """Attribute "glasses" with the taxonomy's words, "hat" with its own; each row is its own concept's."""
    taxonomy = tmp_path / "mine.toml"
    taxonomy.write_text(
        'name = "mine"\nextends = "paper"\n'
        '[attributes.glasses]\ntitle = "Glasses"\ncategory = "worn"\nclip = ["a face behind lenses"]\n'
        '[attributes.hat]\ntitle = "Hat"\ncategory = "worn"\n',
        encoding="utf-8",
    )
    table = drawn_pairs(tmp_path, identities=2)
    table.write_text(table.read_text(encoding="utf-8").replace("BF,glasses", "BF,hat"), encoding="utf-8")
    run = tmp_path / "run"
    audit = ("audit", table, "--target", f"open-clip:{model}", "--taxonomy", taxonomy, "--out", run)
    result = command(*audit)
    assert result.status == 0, result.err
    record = json.loads((run / "record.json").read_text(encoding="utf-8"))
    assert [row for row in record["rows"] if row[0] in ("glasses", "hat")] == [["glasses"] * 2, ["hat"] * 2]
    asked = record["targets"][0]["settings"]["concepts"]
    assert (asked["glasses"], asked["hat"]) == (["a face behind lenses"], ["hat"])
    first = drawn_faces(5)[1].copy()
    first.putpixel((1, 80), (1, 0, 0))
    one = {"concepts": {"glasses": ["a face behind lenses"]}}
    pairs = pq.read_table(run / "pairs.parquet").column("source:glasses").to_pylist()
    expected = score_pictures_of(model, one, first)
    assert min(abs(value - expected) for value in pairs) < 1e-6


def score_pictures_of(model: Path, settings: dict, picture: Image.Image) -> float:
    loaded = load_target(f"open-clip:{model}", settings)
    (row,) = loaded.target.score([picture]).values  # type: ignore[union-attr]
    return float(row[0])


def test_the_cosine_is_that_of_open_clip_itself(model: Path) -> None:
    tower, _, preprocess = open_clip.create_model_and_transforms(f"local-dir:{model}")
    tokenizer = open_clip.get_tokenizer(f"local-dir:{model}")
    face = drawn_faces(1)[0]
    with torch.no_grad():
        image = tower.encode_image(preprocess(face).unsqueeze(0), normalize=True)
        texts = tower.encode_text(tokenizer(["a photo of no hat.", "a cap, seen."]), normalize=True)
        expected = (image @ texts.T).numpy()[0]
    mine = {"concepts": {"bare": "no hat"}, "templates": ["a photo of {}."]}
    other = {"concepts": {"cap": ["cap"]}, "templates": ["a {}, seen."]}
    assert scores_of(f"open-clip:{model}", mine)[0, 0] == pytest.approx(expected[0], abs=1e-6)
    assert scores_of(f"open-clip:{model}", other)[0, 0] == pytest.approx(expected[1], abs=1e-6)


@pytest.mark.parametrize("factor", [1e22, 1e-22])
def test_the_length_of_vectors_does_not_move_a_cosine(model: Path, tmp_path: Path, factor: float) -> None:
    expected = scores_of(f"open-clip:{model}", TWO)
    state = safetensors.load_file(model / "open_clip_model.safetensors")
    scaled = {k: v * factor if k in ("visual.proj", "text_projection") else v for k, v in state.items()}
    safetensors.save_file(scaled, tmp_path / "open_clip_model.safetensors")
    (tmp_path / "open_clip_config.json").write_bytes((model / "open_clip_config.json").read_bytes())
    assert scores_of(f"open-clip:{tmp_path}", TWO) == pytest.approx(expected, abs=1e-5)


def test_softmax_sums_to_one_over_the_concepts(model: Path) -> None:
    values = scores_of(f"open-clip:{model}", {**TWO, "output": "softmax"})
    assert values.sum(axis=1) == pytest.approx(1)
    assert not np.allclose(values, 0.5)


@pytest.mark.parametrize("templates", ["face", "simple", "imagenet"])
def test_each_template_set_asks_something_else(model: Path, templates: str) -> None:
    own = scores_of(f"open-clip:{model}", {**TWO, "templates": ["{}"]})
    assert not np.allclose(own, scores_of(f"open-clip:{model}", {**TWO, "templates": templates}), atol=1e-7)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"concepts": []}, "at least one name"),
        ({"concepts": ["smile", "smile"]}, "concept 'smile' is listed twice"),
        ({"concepts": ["smile", " "]}, "must be a non-empty text"),
        ({"concepts": {"smile": []}}, "needs at least one phrase"),
        ({"templates": ["no braces"]}, "exactly one {}"),
        ({"templates": []}, "at least one sentence"),
        ({"template": "face"}, "did you mean 'templates'"),
        ({"device": "cuda"}, "sees no GPU"),
    ],
)
def test_bad_settings_are_one_line(model: Path, settings: dict, words: str) -> None:
    if "device" in settings and torch.cuda.is_available():
        pytest.skip("there is a GPU")
    with pytest.raises(InputError) as caught:
        load_target(f"open-clip:{model}", settings)
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


def test_missing_weights_say_which_file_and_how_to_get_it(model: Path, tmp_path: Path) -> None:
    (tmp_path / "open_clip_config.json").write_text((model / "open_clip_config.json").read_text())
    with pytest.raises(InputError, match=r"can't be loaded.*open_clip_model\.safetensors"):
        load_target(f"open-clip:{tmp_path}")


def test_a_checkpoint_of_another_architecture_is_named(model: Path, tmp_path: Path) -> None:
    wide = write_model(tmp_path / "wide", width=64)
    mixed = tmp_path / "mixed"
    mixed.mkdir()
    (mixed / "open_clip_config.json").write_text((model / "open_clip_config.json").read_text())
    (mixed / "open_clip_model.safetensors").write_bytes((wide / "open_clip_model.safetensors").read_bytes())
    with pytest.raises(InputError, match="belongs to another architecture"):
        load_target(f"open-clip:{mixed}")


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ("open-clip", "name the model"),
        ("open-clip:ViT-B-23/openai", "did you mean 'ViT-B-32'"),
        ("open-clip:ViT-B-32", "name the weights as ViT-B-32/TAG"),
        ("open-clip:ViT-B-32/no-such-tag", "can't be loaded"),
    ],
)
def test_a_model_that_is_not_there(spec: str, words: str) -> None:
    with pytest.raises(InputError) as caught:
        load_target(spec)
    assert words in str(caught.value)


def change(folder: Path, part: str, **values: object) -> None:
    """Set keys of a part of open_clip_config.json."""
    path = folder / "open_clip_config.json"
    config = json.loads(path.read_text())
    config[part] |= values
    path.write_text(json.dumps(config))


def test_a_changed_preprocessing_is_asked_anew(tmp_path: Path) -> None:
    folder = write_model(tmp_path / "net")
    spec = f"open-clip:{folder}"
    first = audited(tmp_path / "cache", spec, TWO)
    change(folder, "preprocess_cfg", mean=[0.5] * 3, std=[0.5] * 3, resize_mode="squash")
    again = audited(tmp_path / "cache", spec, TWO)
    assert not np.allclose(first, again)
    assert np.array_equal(again, audited(tmp_path / "fresh", spec, TWO))
    settings = load_target(spec, TWO).card.settings
    assert settings["preprocessing"]["resize_mode"] == "squash"
    assert settings["activation"] == "gelu"


ARCHITECTURE = {
    "embed_dim": 16,
    "vision_cfg": {"image_size": 48, "layers": 1, "width": 32, "head_width": 16, "patch_size": 16},
    "text_cfg": {"context_length": 77, "vocab_size": 49408, "width": 32, "heads": 2, "layers": 1},
}
CLIP_WAY = {
    "mean": (0.4, 0.4, 0.4),
    "std": (0.2, 0.2, 0.2),
    "interpolation": "bicubic",
    "resize_mode": "shortest",
}
SIGLIP_WAY = {
    "mean": (0.5, 0.5, 0.5),
    "std": (0.5, 0.5, 0.5),
    "interpolation": "bicubic",
    "resize_mode": "squash",
}


@pytest.fixture
def architectures(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of architectures as small as those of open_clip are large, and what is published of each."""
    folder = tmp_path_factory.mktemp("architectures")
    kinds = {
        "small": {},
        "small-quickgelu": {"quick_gelu": True},
        "small-sigmoid": {"init_logit_bias": -10},
        "small-new": {},
    }
    for name, more in kinds.items():
        (folder / f"{name}.json").write_text(json.dumps({**ARCHITECTURE, **more}))
    published = {
        "small": {"ours": CLIP_WAY, "openai": {**CLIP_WAY, "quick_gelu": True}},
        "small-sigmoid": {"webli": SIGLIP_WAY},
    }
    monkeypatch.setattr("open_clip.pretrained._PRETRAINED", published)
    monkeypatch.setattr("open_clip.factory._MODEL_CONFIG_PATHS", [folder])
    monkeypatch.setattr("open_clip.factory._MODEL_CONFIGS", {})
    open_clip.factory._rescan_model_configs()
    return folder


def random_state(name: str) -> dict:
    torch.manual_seed(4)
    state = open_clip.create_model(name, load_weights=False).state_dict()
    if "logit_bias" in state:
        state["logit_bias"].fill_(-3.0)
        state["logit_scale"].fill_(1.5)
    return state


def in_force(spec: str, settings: dict | None = None) -> dict:
    return load_target(spec, {**TWO, **(settings or {})}).card.settings["preprocessing"]


def test_a_file_keeps_the_preprocessing_of_its_architecture(architectures: Path, tmp_path: Path) -> None:
    torch.save(random_state("small-sigmoid"), tmp_path / "net.pt")
    spec = f"open-clip:small-sigmoid/{tmp_path / 'net.pt'}"
    conforms(spec, TWO)
    assert {name: in_force(spec)[name] for name in SIGLIP_WAY} == SIGLIP_WAY


def test_a_file_keeps_the_preprocessing_beside_it(architectures: Path, tmp_path: Path) -> None:
    torch.save(random_state("small-sigmoid"), tmp_path / "net.pt")
    spec = f"open-clip:small-sigmoid/{tmp_path / 'net.pt'}"
    beside = {"model_cfg": ARCHITECTURE, "preprocess_cfg": {"size": 99, "mean": [0.1] * 3, "std": [0.3] * 3}}
    (tmp_path / "open_clip_config.json").write_text(json.dumps(beside))
    assert in_force(spec)["mean"] == [0.1, 0.1, 0.1]
    first = audited(tmp_path / "cache", spec, TWO)
    change(tmp_path, "preprocess_cfg", mean=[0.7] * 3)
    assert not np.allclose(first, audited(tmp_path / "cache", spec, TWO))


def test_a_file_of_which_nothing_says_its_preprocessing(architectures: Path, tmp_path: Path) -> None:
    torch.save(random_state("small-new"), tmp_path / "net.pt")
    spec = f"open-clip:small-new/{tmp_path / 'net.pt'}"
    with pytest.raises(InputError, match="which preprocessing was it trained with") as caught:
        load_target(spec)
    assert "\n" not in str(caught.value)
    table = {"mean": [0.5] * 3, "std": [0.25] * 3, "resize_mode": "squash"}
    assert in_force(spec, {"preprocessing": table})["std"] == (0.25, 0.25, 0.25)
    with pytest.raises(InputError, match="no weights 'ours' of small-new"):
        load_target(spec, {"preprocessing": "ours"})


def test_published_weights_of_two_ways_must_be_told_apart(
    architectures: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ways = {"one": CLIP_WAY, "other": SIGLIP_WAY}
    monkeypatch.setitem(open_clip.pretrained._PRETRAINED, "small-new", ways)
    torch.save(random_state("small-new"), tmp_path / "net.pt")
    spec = f"open-clip:small-new/{tmp_path / 'net.pt'}"
    with pytest.raises(InputError, match=r"the published weights have 2; .* a tag \(one, other\)"):
        load_target(spec)
    assert in_force(spec, {"preprocessing": "other"})["resize_mode"] == "squash"


def test_siglip_gives_its_sigmoid_with_its_bias(architectures: Path, tmp_path: Path) -> None:
    torch.save(random_state("small-sigmoid"), tmp_path / "net.pt")
    spec = f"open-clip:small-sigmoid/{tmp_path / 'net.pt'}"
    asked = {"concepts": {"smile": "smile", "hat": "hat"}, "templates": ["{}"], "output": "sigmoid"}
    tower = open_clip.create_model("small-sigmoid", str(tmp_path / "net.pt")).eval()
    preprocess = open_clip.transform.image_transform(
        48, is_train=False, mean=(0.5,) * 3, std=(0.5,) * 3, resize_mode="squash", interpolation="bicubic"
    )
    tokens = open_clip.get_tokenizer("small")(["smile", "hat"])
    with torch.no_grad():
        image = tower.encode_image(torch.stack([preprocess(face) for face in drawn_faces(3)]), normalize=True)
        texts = tower.encode_text(tokens, normalize=True)
        logits = image @ texts.T * tower.logit_scale.exp() + tower.logit_bias
    target = load_target(spec, asked).target
    assert target.concepts == ("smile", "hat")
    assert np.allclose(scores_of(spec, asked), logits.sigmoid().numpy(), atol=1e-5)
    with pytest.raises(InputError, match="trained with a sigmoid"):
        load_target(spec, {**asked, "output": "softmax"})


@pytest.mark.parametrize("prefix", ["module.", "_orig_mod.", "module._orig_mod."])
def test_a_file_with_prefixes(architectures: Path, tmp_path: Path, prefix: str) -> None:
    state = random_state("small")
    torch.save(state, tmp_path / "plain.pt")
    wrapped = {"epoch": 2, "model_state_dict": {f"{prefix}{key}": value for key, value in state.items()}}
    torch.save(wrapped, tmp_path / "wrapped.pt")
    with pytest.warns(UserWarning, match="which activation"):
        plain, other = (
            scores_of(f"open-clip:small/{tmp_path / name}.pt", TWO) for name in ("plain", "wrapped")
        )
    assert np.array_equal(plain, other)


def test_a_quickgelu_mismatch_is_said(architectures: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"QuickGELU mismatch: .* small computes GELU: name small-quickgelu"):
        load_target("open-clip:small/openai")
    state = random_state("small-quickgelu")
    torch.save(state, tmp_path / "net.pt")
    quick, plain = (f"open-clip:{name}/{tmp_path / 'net.pt'}" for name in ("small-quickgelu", "small"))
    config = {
        "model_cfg": {**ARCHITECTURE, "quick_gelu": True},
        "preprocess_cfg": {"mean": [0.5] * 3, "std": [0.5] * 3},
    }
    (tmp_path / "open_clip_config.json").write_text(json.dumps(config))
    assert load_target(quick, TWO).card.settings["activation"] == "quick_gelu"
    with pytest.raises(InputError, match=r"QuickGELU mismatch: .* name small-quickgelu"):
        load_target(plain, TWO)
    change(tmp_path, "model_cfg", quick_gelu=False)
    with pytest.raises(InputError, match=r"QuickGELU mismatch: .* computes QuickGELU: name small"):
        load_target(quick, TWO)


def test_a_folder_of_which_nothing_says_its_preprocessing(tmp_path: Path) -> None:
    """open_clip would take CLIP's for any model."""
    folder = write_model(tmp_path / "net")
    path = folder / "open_clip_config.json"
    path.write_text(json.dumps({"model_cfg": json.loads(path.read_text())["model_cfg"]}))
    with pytest.raises(InputError, match="must have a 'preprocess_cfg' with mean and std"):
        load_target(f"open-clip:{folder}", TWO)
    table = {"mean": [0.5] * 3, "std": [0.25] * 3}
    assert in_force(f"open-clip:{folder}", {"preprocessing": table})["std"] == (0.25, 0.25, 0.25)


def test_a_folder_whose_configurations_differ_in_quickgelu(tmp_path: Path) -> None:
    folder = write_model(tmp_path / "net")
    beside = {"model_type": "clip", "vision_config": {"hidden_act": "gelu"}}
    (folder / "config.json").write_text(json.dumps(beside))
    assert load_target(f"open-clip:{folder}", TWO).card.settings["activation"] == "gelu"
    (folder / "config.json").write_text(json.dumps({"model_type": "clip", "vision_config": {}}))
    with pytest.raises(InputError, match=r"QuickGELU mismatch: .* hidden_act 'quick_gelu'"):
        load_target(f"open-clip:{folder}", TWO)


def test_weights_of_openai_are_known_by_what_lies_beside_them(architectures: Path, tmp_path: Path) -> None:
    beside = {name: torch.tensor(1) for name in ("input_resolution", "context_length", "vocab_size")}
    torch.save({**random_state("small"), **beside}, tmp_path / "net.pt")
    with (
        pytest.warns(UserWarning, match="which activation"),
        pytest.raises(InputError, match="holds OpenAI's weights, trained with QuickGELU"),
    ):
        load_target(f"open-clip:small/{tmp_path / 'net.pt'}", TWO)


def test_overflow_is_counted_as_no_answer_with_the_hint(model: Path, tmp_path: Path) -> None:
    loaded = load_target(f"open-clip:{model}", TWO)
    with torch.no_grad():
        loaded.target._model.visual.conv1.weight[:] = torch.inf
    picture = tmp_path / "face.png"
    drawn_faces(1)[0].save(picture)
    seen = score_pictures(
        loaded, [PictureRef("face", picture.read_bytes)], tmp_path / "cache", show_progress=False
    )
    assert seen["face"].reason == "no_answer"
    assert "--set precision=float32" in seen["face"].detail


def test_the_gpu_route_equals_the_reference_on_pictures_of_all_shapes(model: Path) -> None:
    from targets.gpu_batches import GpuBatches

    loaded = load_target(f"open-clip:{model}", {**TWO, "batch_size": 6})
    target = loaded.target
    assert GpuBatches.fits(target._model.visual.preprocess_cfg)
    batches = GpuBatches(target._compute, target._model.visual.preprocess_cfg, "cpu", torch.float32, 6)
    sizes = [(64, 64), (90, 50), (48, 48), (31, 80)]
    faces = [face.resize(size) for face, size in zip(drawn_faces(4), sizes, strict=True)]
    whole, small = (
        batches.start(batches.stage([np.asarray(face) for face in given]))().values
        for given in (faces, [batches.frame.resized(face) for face in faces])
    )
    assert np.abs(whole - target.score(faces).values).max() < 1e-6
    assert np.array_equal(whole, small)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("sizes", [[(64, 64)] * 4, [(64, 64), (90, 50), (48, 48), (31, 80)]])
def test_a_batch_is_launched_without_waiting_for_the_gpu(model: Path, sizes: list[tuple[int, int]]) -> None:
    target = load_target(f"open-clip:{model}", {**TWO, "batch_size": 4}).target
    faces = [np.asarray(face.resize(size)) for face, size in zip(drawn_faces(4), sizes, strict=True)]
    first = target.start(target.stage(faces))().values
    staged = target.stage(faces)
    torch.cuda.set_sync_debug_mode("error")
    try:
        answer = target.start(staged)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert np.array_equal(answer().values, first)


def test_attention_on_views_equals_torchs_own(model: Path) -> None:
    from targets.torch_attention import without_copies

    tower = open_clip.create_model(f"local-dir:{model}").eval()
    batch = torch.randn(2, 3, 48, 48, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        before = tower.encode_image(batch)
        assert without_copies(tower.visual) == 1
        assert torch.allclose(before, tower.encode_image(batch), atol=1e-6)


def test_attention_on_views_is_what_a_loaded_model_computes(
    model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from targets.torch_attention import without_copies

    def copying(*_: object, **__: object) -> None:
        raise AssertionError("torch's own attention was asked")

    tower = open_clip.create_model(f"local-dir:{model}").eval()
    without_copies(tower.visual)
    monkeypatch.setattr(torch.nn.MultiheadAttention, "forward", copying)
    with torch.no_grad():
        assert tower.encode_image(torch.zeros(1, 3, 48, 48)).isfinite().all()


def test_random_weights_need_no_file_and_depend_on_the_seed_only(model: Path) -> None:
    first, again, other = (
        scores_of(f"open-clip:{model}", {**TWO, "random_seed": seed}) for seed in (1, 1, 2)
    )
    assert np.array_equal(first, again)
    assert not np.allclose(first, other)


def test_rgb_reaches_the_model(model: Path) -> None:
    red, blue = Image.new("RGB", (48, 48), (255, 0, 0)), Image.new("RGB", (48, 48), (0, 0, 255))
    prepared = load_target(f"open-clip:{model}", TWO).target.prepare(red)
    assert prepared[0].mean() == pytest.approx((1 - 0.4) / 0.25, abs=1e-5)
    assert load_target(f"open-clip:{model}", TWO).target.prepare(blue)[2].mean() == pytest.approx(
        0.5 / 0.2, abs=1e-5
    )
