"""hf on tiny models of transformers with random weights, saved as a hub model would be."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest

from targets.base.errors import InputError
from targets.catalogue import load_target
from targets.drawn_pictures import drawn_faces
from tests.targets.tools import conforms, scores_of

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
