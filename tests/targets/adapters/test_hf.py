"""hf on tiny models of transformers with random weights, saved as a hub model would be."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from targets.base.errors import InputError
from targets.catalogue import load_target
from targets.drawn_pictures import drawn_faces
from tests.support import call
from tests.targets.tools import audited, conforms, pairs_folder, scores_of

torch = pytest.importorskip("torch", reason="needs torch")
transformers = pytest.importorskip("transformers", reason="needs the extra 'hf'")

SMALL = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2}
VISION = {**SMALL, "image_size": 32, "patch_size": 16}


def save_processor(folder: Path) -> None:
    transformers.ViTImageProcessor(size={"height": 32, "width": 32}).save_pretrained(folder)


@pytest.fixture(scope="module")
def classifier(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("hf") / "classifier"
    torch.manual_seed(0)
    labels = {0: "smile", 1: "neutral", 2: "smile"}
    config = transformers.ViTConfig(**VISION, id2label=labels, label2id={"smile": 0, "neutral": 1})
    transformers.ViTForImageClassification(config).save_pretrained(folder)
    save_processor(folder)
    return folder


@pytest.fixture(scope="module")
def embedder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("hf") / "embedder"
    torch.manual_seed(0)
    transformers.ViTModel(transformers.ViTConfig(**VISION)).save_pretrained(folder)
    save_processor(folder)
    return folder


@pytest.fixture(scope="module")
def clip(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("hf") / "clip"
    letters = "abcdefghijklmnopqrstuvwxyz.,-"
    words = ["<|startoftext|>", "<|endoftext|>", *letters, *(f"{letter}</w>" for letter in letters)]
    vocabulary = {word: number for number, word in enumerate(words)}
    tokenizer = transformers.CLIPTokenizer(vocab=vocabulary, merges=[], model_max_length=32)
    tokenizer.save_pretrained(folder)
    text = {
        **SMALL,
        "vocab_size": len(words),
        "max_position_embeddings": 32,
        "eos_token_id": 1,
        "bos_token_id": 0,
    }
    torch.manual_seed(0)
    config = transformers.CLIPConfig(text_config=text, vision_config=VISION, projection_dim=8)
    transformers.CLIPModel(config).save_pretrained(folder)
    transformers.CLIPImageProcessor(
        size={"shortest_edge": 32}, crop_size={"height": 32, "width": 32}
    ).save_pretrained(folder)
    return folder


def test_a_classifier_conforms_and_its_labels_are_concepts(classifier: Path) -> None:
    conforms(f"hf:{classifier}")
    assert load_target(f"hf:{classifier}").card.concepts == ("smile #0", "neutral", "smile #2")


def test_an_embedder_conforms(embedder: Path) -> None:
    conforms(f"hf:{embedder}")
    assert load_target(f"hf:{embedder}").card.kind == "embedding"
    assert scores_of(f"hf:{embedder}").shape == (3, 16)


@pytest.mark.parametrize("output", ["cosine", "softmax"])
def test_a_zero_shot_model_conforms(clip: Path, output: str) -> None:
    conforms(f"hf:{clip}", {"output": output, "concepts": ["smile", "hat"]})


def test_a_zero_shot_model_embeds_too(clip: Path) -> None:
    conforms(f"hf:{clip}", {"task": "embedding"})


def test_the_classifier_answers_as_the_pipeline_of_transformers(classifier: Path) -> None:
    model = transformers.AutoModelForImageClassification.from_pretrained(classifier)
    processor = transformers.AutoImageProcessor.from_pretrained(classifier)
    with torch.no_grad():
        logits = model(**processor(images=drawn_faces(3), return_tensors="pt")).logits
    assert np.allclose(scores_of(f"hf:{classifier}"), logits.softmax(-1).numpy(), atol=1e-6)


def test_the_softmax_is_that_of_the_model(clip: Path) -> None:
    model = transformers.AutoModel.from_pretrained(clip)
    processor = transformers.AutoImageProcessor.from_pretrained(clip)
    tokenizer = transformers.AutoTokenizer.from_pretrained(clip)
    tokens = tokenizer(["smile", "hat"], padding="max_length", return_tensors="pt")
    with torch.no_grad():
        pixels = processor(images=drawn_faces(3), return_tensors="pt")
        expected = model(**tokens, **pixels).logits_per_image.softmax(-1).numpy()
    asked = {"smile": "smile", "hat": "hat"}
    settings = {"concepts": asked, "templates": ["{}"], "output": "softmax"}
    assert np.allclose(scores_of(f"hf:{clip}", settings), expected, atol=1e-5)


def test_the_length_of_vectors_does_not_move_a_cosine(clip: Path, tmp_path: Path) -> None:
    settings = {"concepts": {"smile": "smile", "hat": "hat"}, "output": "cosine"}
    expected = scores_of(f"hf:{clip}", settings)
    scaled = tmp_path / "scaled"
    shutil.copytree(clip, scaled)
    model = transformers.AutoModel.from_pretrained(clip)
    with torch.no_grad():
        for projection in (model.visual_projection, model.text_projection):
            projection.weight *= 1e22
    model.save_pretrained(scaled)
    assert scores_of(f"hf:{scaled}", settings) == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"concepts": ["frown"]}, "has no concept 'frown'"),
        ({"output": "cosine"}, "is a classifier: output must be"),
        ({"concepts": {"smile": "a smile"}}, "must be a list of its labels"),
    ],
)
def test_settings_that_a_classifier_has_not(classifier: Path, settings: dict, words: str) -> None:
    with pytest.raises(InputError) as caught:
        load_target(f"hf:{classifier}", settings)
    assert words in str(caught.value)


@pytest.mark.parametrize(
    ("settings", "words"),
    [({"output": "logits"}, "must be cosine or softmax"), ({"concepts": []}, "at least one name")],
)
def test_settings_that_a_zero_shot_model_has_not(clip: Path, settings: dict, words: str) -> None:
    with pytest.raises(InputError) as caught:
        load_target(f"hf:{clip}", settings)
    assert words in str(caught.value)


def test_missing_files_say_how_to_get_them(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="hf download MODEL --local-dir FOLDER"):
        load_target(f"hf:{tmp_path}")


def test_weights_in_pickle_are_not_read(classifier: Path, tmp_path: Path) -> None:
    for name in ("config.json", "preprocessor_config.json"):
        (tmp_path / name).write_bytes((classifier / name).read_bytes())
    torch.save({}, tmp_path / "pytorch_model.bin")
    with pytest.raises(InputError, match="safetensors"):
        load_target(f"hf:{tmp_path}")


def change(path: Path, **values: object) -> None:
    """Set keys of a JSON file."""
    path.write_text(json.dumps({**json.loads(path.read_text()), **values}))


@pytest.mark.parametrize("name", ["preprocessor_config.json", "config.json"])
def test_every_file_of_the_folder_belongs_to_the_key(classifier: Path, tmp_path: Path, name: str) -> None:
    folder = tmp_path / "model"
    shutil.copytree(classifier, folder)
    first = audited(tmp_path / "cache", f"hf:{folder}")
    change(folder / name, image_mean=[0, 0, 0], image_std=[1, 1, 1], hidden_act="relu")
    again = audited(tmp_path / "cache", f"hf:{folder}")
    assert not np.allclose(first, again)
    assert np.array_equal(again, audited(tmp_path / "fresh", f"hf:{folder}"))
    settings = load_target(f"hf:{folder}").card.settings
    assert (settings["preprocessing"]["image_mean"] == [0, 0, 0]) == (name == "preprocessor_config.json")
    assert settings["activation"] == {"model": "relu" if name == "config.json" else "gelu"}


def test_compare_shows_the_preprocessing_that_changed(
    classifier: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, pairs = tmp_path / "model", pairs_folder(tmp_path / "pairs")
    shutil.copytree(classifier, folder)
    shared = ("--target", f"hf:{folder}", "--set", 'concepts=["neutral"]', "--cache", tmp_path / "cache")
    assert call(capsys, "audit", pairs, *shared, "--out", tmp_path / "base").status == 0
    change(folder / "preprocessor_config.json", image_mean=[0.25, 0.25, 0.25])
    assert call(capsys, "audit", pairs, *shared, "--out", tmp_path / "new").status == 0
    result = call(capsys, "compare", tmp_path / "base", tmp_path / "new")
    assert result.status == 0, result.err
    lines = [line for line in result.out.splitlines() if "target." in line]
    assert any("preprocessing.image_mean" in line and "0.25, 0.25, 0.25" in line for line in lines)
    assert any("weights.preprocessor_config.json" in line for line in lines)


def test_a_classifier_that_the_checkpoint_lacks_is_named(embedder: Path) -> None:
    with pytest.raises(InputError) as caught:
        load_target(f"hf:{embedder}", {"task": "classification"})
    assert "the checkpoint lacks 2 weights (classifier.bias, classifier.weight)" in str(caught.value)
    assert "pooler.dense.bias" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_weights_of_another_shape_are_named(classifier: Path, tmp_path: Path) -> None:
    folder = tmp_path / "model"
    shutil.copytree(classifier, folder)
    change(folder / "config.json", id2label={"0": "a", "1": "b"}, label2id={"a": 0, "b": 1})
    with pytest.raises(InputError, match=r"has in another shape 2 weights \(classifier\.bias, classifier"):
        load_target(f"hf:{folder}")


def test_without_a_pooler_the_vector_is_the_mean_of_the_last_hidden_states(classifier: Path) -> None:
    """A classifier's checkpoint holds no pooler; transformers would make one up anew at each run."""
    asked = {"task": "embedding"}
    conforms(f"hf:{classifier}", asked)
    model = transformers.AutoModelForImageClassification.from_pretrained(classifier)
    processor = transformers.AutoImageProcessor.from_pretrained(classifier)
    with torch.no_grad():
        states = model.vit(**processor(images=drawn_faces(3), return_tensors="pt")).last_hidden_state
    assert np.allclose(scores_of(f"hf:{classifier}", asked), states.mean(1).numpy(), atol=1e-6)
    first, again = (load_target(f"hf:{classifier}", asked).card for _ in range(2))
    assert first == again
    assert first.settings["pooling"] == "mean"


def test_a_pooler_that_is_there_is_used(embedder: Path) -> None:
    model = transformers.AutoModel.from_pretrained(embedder)
    processor = transformers.AutoImageProcessor.from_pretrained(embedder)
    with torch.no_grad():
        pooled = model(**processor(images=drawn_faces(3), return_tensors="pt")).pooler_output
    assert np.allclose(scores_of(f"hf:{embedder}"), pooled.numpy(), atol=1e-6)
    assert load_target(f"hf:{embedder}").card.settings["pooling"] == "own"


@pytest.fixture(scope="module")
def siglip(clip: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Mean, standard deviation and squashing as SigLIP has them, the letters' tokenizer of ``clip``."""
    folder = tmp_path_factory.mktemp("hf") / "siglip"
    transformers.AutoTokenizer.from_pretrained(clip).save_pretrained(folder)
    torch.manual_seed(1)
    text = {**SMALL, "vocab_size": 64, "max_position_embeddings": 16, "projection_size": 16}
    model = transformers.SiglipModel(transformers.SiglipConfig(text_config=text, vision_config=VISION))
    with torch.no_grad():
        model.logit_scale.fill_(1.5)
        model.logit_bias.fill_(-2.0)
    model.save_pretrained(folder)
    transformers.SiglipImageProcessor(size={"height": 32, "width": 32}).save_pretrained(folder)
    return folder


def test_siglip_gives_its_sigmoid_with_its_bias(siglip: Path) -> None:
    settings = {"concepts": {"smile": "smile", "hat": "hat"}, "templates": ["{}"], "output": "sigmoid"}
    conforms(f"hf:{siglip}", settings)
    model = transformers.AutoModel.from_pretrained(siglip)
    tokens = transformers.AutoTokenizer.from_pretrained(siglip)(
        ["smile", "hat"], padding="max_length", max_length=16, return_tensors="pt"
    )
    pixels = transformers.AutoImageProcessor.from_pretrained(siglip)(drawn_faces(3), return_tensors="pt")
    with torch.no_grad():
        expected = model(**tokens, **pixels).logits_per_image.sigmoid().numpy()
    assert np.allclose(scores_of(f"hf:{siglip}", settings), expected, atol=1e-5)
    card = load_target(f"hf:{siglip}", settings).card
    assert card.settings["preprocessing"]["image_mean"] == [0.5, 0.5, 0.5]


def test_each_kind_of_model_gives_its_own_probability(siglip: Path, clip: Path) -> None:
    with pytest.raises(InputError, match=r"trained with a sigmoid .*: set output=sigmoid"):
        load_target(f"hf:{siglip}", {"output": "softmax"})
    with pytest.raises(InputError, match=r"trained with a softmax .*: set output=softmax"):
        load_target(f"hf:{clip}", {"output": "sigmoid"})


def test_a_quickgelu_mismatch_is_said(clip: Path, tmp_path: Path) -> None:
    folder = tmp_path / "model"
    shutil.copytree(clip, folder)
    beside = folder / "open_clip_config.json"
    beside.write_text(json.dumps({"model_cfg": {"quick_gelu": True}}))
    assert load_target(f"hf:{folder}").card.settings["activation"]["vision"] == "quick_gelu"
    beside.write_text(json.dumps({"model_cfg": {}}))
    with pytest.raises(InputError, match=r"QuickGELU mismatch: .*open_clip_config.json beside it quick_gelu"):
        load_target(f"hf:{folder}")
    beside.unlink()
    config = json.loads((folder / "config.json").read_text())
    change(folder / "config.json", vision_config={**config["vision_config"], "hidden_act": "gelu"})
    with pytest.raises(InputError, match=r"QuickGELU mismatch: config.json says hidden_act 'gelu' for pict"):
        load_target(f"hf:{folder}")
