"""torchvision, timm and imagenet: labels as concepts."""

from __future__ import annotations

import json
from argparse import Namespace
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from targets.base.errors import InputError
from targets.catalogue import load_target
from targets.drawn_pictures import drawn_faces
from targets.torch_tools import distinct_names
from tests.targets.tools import audited, conforms, scores_of

torch = pytest.importorskip("torch", reason="needs torch")
pytest.importorskip("torchvision", reason="needs the extra 'torchvision'")

SEED = {"random_seed": 0}
NET = "torchvision:mobilenet_v3_small"


@pytest.mark.parametrize("output", ["softmax", "sigmoid", "logits", "embedding"])
def test_torchvision_conforms(output: str) -> None:
    conforms(NET, {**SEED, "output": output})


def test_torchvision_labels_are_concepts() -> None:
    loaded = load_target(NET, SEED)
    assert len(loaded.card.concepts) == 1000
    assert loaded.card.concepts[836] == "sunglass"


def test_repeated_labels_get_their_number() -> None:
    assert distinct_names(["crane", "wig", "crane"]) == ("crane #0", "wig", "crane #2")


def test_chosen_concepts_are_columns_of_the_softmax_over_all() -> None:
    loaded = load_target(NET, SEED)
    whole = scores_of(NET, SEED)
    some = scores_of(NET, {**SEED, "concepts": ["lipstick", "sunglass"]})
    columns = [loaded.card.concepts.index(name) for name in ("lipstick", "sunglass")]
    assert np.allclose(some, whole[:, columns])
    assert whole.sum(axis=1) == pytest.approx(1, abs=1e-5)


def test_a_local_checkpoint_is_read_without_pickle(tmp_path: Path) -> None:
    models = pytest.importorskip("torchvision.models")
    torch.manual_seed(5)
    net = models.mobilenet_v3_small()
    torch.save(net.state_dict(), tmp_path / "net.pth")
    given = {"weights_file": tmp_path / "net.pth", "output": "logits"}
    weights = models.MobileNet_V3_Small_Weights.DEFAULT
    with torch.no_grad():
        expected = net.eval()(weights.transforms()(drawn_faces(1)[0]).unsqueeze(0))[0].numpy()
    assert np.allclose(scores_of(NET, given, 1)[0], expected, atol=1e-5)


class Bomb:
    def __reduce__(self):
        return (print, ("the pickle ran",))


def test_a_pickle_is_refused_and_not_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    torch.save({"weight": Bomb()}, tmp_path / "net.pth")
    with pytest.raises(InputError, match="loads without pickle"):
        load_target(NET, {"weights_file": tmp_path / "net.pth"})
    assert "ran" not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("spec", "settings", "words"),
    [
        ("torchvision", {}, "name the model"),
        ("torchvision:resnet15", SEED, "did you mean 'resnet152'"),
        (f"{NET}/IMAGENET1K_V9", SEED, "did you mean 'IMAGENET1K_V1'"),
        (NET, {**SEED, "concepts": ["sunglasess"]}, "did you mean 'sunglass"),
        (NET, {"weights_file": "nowhere.pth"}, "no such checkpoint: nowhere.pth"),
        ("timm", {}, "name the model"),
        ("timm:test_vitt", SEED, "did you mean 'test_vit"),
        ("timm:test_vit", {**SEED, "labels": ["one", "two"]}, "1000 classes, but 2 labels came"),
        ("imagenet:b0", {}, "takes no argument"),
    ],
)
def test_bad_input_is_one_line(spec: str, settings: dict, words: str) -> None:
    pytest.importorskip("timm", reason="needs the extra 'timm'")
    with pytest.raises(InputError) as caught:
        load_target(spec, settings)
    assert words in str(caught.value)


def test_published_weights_come_with_the_scale_they_need(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """GoogLeNet's were trained on another scale than its transform gives, and torchvision converts."""
    models = pytest.importorskip("torchvision.models")
    torch.manual_seed(6)
    state = models.googlenet(init_weights=False).state_dict()
    monkeypatch.setattr("torchvision.models._api.load_state_dict_from_url", lambda *_, **__: dict(state))
    weights = models.GoogLeNet_Weights.DEFAULT
    with torch.no_grad():
        pixels = weights.transforms()(drawn_faces(1)[0]).unsqueeze(0)
        expected = models.googlenet(weights=weights).eval()(pixels).numpy()
    torch.save({key: tensor for key, tensor in state.items() if "aux" not in key}, tmp_path / "net.pth")
    for more in ({}, {"weights_file": tmp_path / "net.pth"}):
        assert np.allclose(scores_of("torchvision:googlenet", {"output": "logits", **more}, 1), expected)
    with pytest.raises(InputError, match="has 1000 classes, but 2 labels came"):
        load_target("torchvision:googlenet", {"labels": ["smile", "neutral"]})


def test_weights_missing_offline_name_the_file_and_the_way(monkeypatch: pytest.MonkeyPatch) -> None:
    def unreachable(*_: object, **__: object) -> None:
        raise OSError("urlopen error: no route to mobilenet_v3_small-047dcff4.pth")

    monkeypatch.setattr("torchvision.models._api.load_state_dict_from_url", unreachable)
    with pytest.raises(InputError, match=r"mobilenet_v3_small-047dcff4\.pth.*--set weights_file=FILE"):
        load_target(NET)


def test_a_checkpoint_of_another_architecture_is_named(tmp_path: Path) -> None:
    torch.save({"fc.weight": torch.zeros(2, 2)}, tmp_path / "other.pth")
    with pytest.raises(InputError, match="belongs to another architecture"):
        load_target(NET, {"weights_file": tmp_path / "other.pth"})


WRAPPED: dict[str, Callable[[dict], dict]] = {
    "data parallel": lambda state: {"state_dict": {f"module.{key}": value for key, value in state.items()}},
    "compiled": lambda state: {f"_orig_mod.{key}": value for key, value in state.items()},
    "both": lambda state: {f"_orig_mod.module.{key}": value for key, value in state.items()},
    "the reverse": lambda state: {f"module._orig_mod.{key}": value for key, value in state.items()},
    "a compiled part": lambda state: {
        key.replace("features.", "features._orig_mod."): value for key, value in state.items()
    },
    "a training script": lambda state: {
        "model_state_dict": state,
        "optimizer": {"state": {}},
        "epoch": 3,
        "args": Namespace(lr=0.1),
    },
    "twice": lambda state: {"checkpoint": 1, "model": {"state_dict": state}},
    "averaged only": lambda state: {"model_ema": {f"module.{key}": value for key, value in state.items()}},
    "averaged beside": lambda state: {
        "model_ema": {key: value * 0 for key, value in state.items()},
        "model": state,
    },
    "Lightning": lambda state: {
        "state_dict": {**{f"model.{key}": value for key, value in state.items()}, "loss.w": torch.ones(1)}
    },
}


@pytest.fixture(scope="module")
def fine_tuned() -> tuple[dict, np.ndarray]:
    """A network with two classes of its own, and its logits for a face."""
    models = pytest.importorskip("torchvision.models")
    torch.manual_seed(2)
    net = models.mobilenet_v3_small(num_classes=2).eval()
    transform = models.MobileNet_V3_Small_Weights.DEFAULT.transforms()
    with torch.no_grad():
        return net.state_dict(), net(transform(drawn_faces(1)[0]).unsqueeze(0)).numpy()


@pytest.mark.parametrize("how", WRAPPED)
def test_a_fine_tuned_classifier_is_read_as_it_was_saved(
    fine_tuned: tuple[dict, np.ndarray], tmp_path: Path, how: str
) -> None:
    state, expected = fine_tuned
    torch.save(WRAPPED[how](state), tmp_path / "net.pth")
    given = {"weights_file": tmp_path / "net.pth", "labels": ["smile", "neutral"], "output": "logits"}
    assert load_target(NET, given).card.concepts == ("smile", "neutral")
    assert np.allclose(scores_of(NET, given, 1), expected, atol=1e-5)


def in_parts(folder: Path, state: dict) -> list[Path]:
    """A checkpoint in two files of safetensors with their index."""
    safetensors = pytest.importorskip("safetensors.torch")
    names = sorted(state)
    parts = [names[::2], names[1::2]]
    files = [f"model-0000{number}-of-00002.safetensors" for number in (1, 2)]
    for file, part in zip(files, parts, strict=True):
        safetensors.save_file({name: state[name].contiguous() for name in part}, folder / file)
    index = {name: file for file, part in zip(files, parts, strict=True) for name in part}
    (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": index}))
    return [folder, folder / "model.safetensors.index.json", folder / files[1]]


def test_a_checkpoint_in_several_files(fine_tuned: tuple[dict, np.ndarray], tmp_path: Path) -> None:
    state, expected = fine_tuned
    given = {"labels": ["smile", "neutral"], "output": "logits"}
    for path in in_parts(tmp_path, state):
        assert np.allclose(scores_of(NET, {**given, "weights_file": path}, 1), expected, atol=1e-5)
    (tmp_path / "model-00001-of-00002.safetensors").unlink()
    with pytest.raises(InputError, match=r"lacks 1 part: model-00001-of-00002\.safetensors"):
        load_target(NET, {**given, "weights_file": tmp_path})


def without(state: dict, name: str) -> dict:
    return {key: value for key, value in state.items() if key != name}


@pytest.mark.parametrize(
    ("change", "labels", "words"),
    [
        (lambda s: s, [], "has 2 classes and the model 1000: name its classes, all 2 in their order, with"),
        (lambda s: s, ["a", "b", "c"], "has 2 classes and the model 3"),
        (lambda s: without(s, "classifier.3.bias"), ["a", "b"], "1 weight missing (classifier.3.bias)"),
        (lambda s: {**s, "extra.w": torch.ones(1)}, ["a", "b"], "1 weight too many (extra.w)"),
        (
            lambda s: {**s, "classifier.0.bias": torch.ones(7)},
            ["a", "b"],
            "1 weight of another shape (classifier.0.bias is 7 and should be 1024)",
        ),
        (lambda s: {"epoch": 3, "best": {"loss": 1.0}}, ["a", "b"], "it holds epoch, best"),
        (lambda s: {}, ["a", "b"], "it holds nothing"),
    ],
)
def test_the_real_cause_is_named(
    fine_tuned: tuple[dict, np.ndarray], tmp_path: Path, change: Callable, labels: list[str], words: str
) -> None:
    torch.save(change(fine_tuned[0]), tmp_path / "net.pth")
    with pytest.raises(InputError) as caught:
        load_target(NET, {"weights_file": tmp_path / "net.pth", "labels": labels})
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


def test_an_embedder_needs_no_names_of_classes(fine_tuned: tuple[dict, np.ndarray], tmp_path: Path) -> None:
    torch.save(fine_tuned[0], tmp_path / "net.pth")
    given = {"weights_file": tmp_path / "net.pth", "output": "embedding"}
    assert scores_of(NET, given, 1).shape == (1, 1024)


@pytest.mark.parametrize("output", ["softmax", "embedding"])
def test_timm_conforms(output: str) -> None:
    pytest.importorskip("timm", reason="needs the extra 'timm'")
    conforms("timm:test_vit", {**SEED, "output": output})


def test_timm_takes_label_names_of_the_user(tmp_path: Path) -> None:
    timm = pytest.importorskip("timm", reason="needs the extra 'timm'")
    names = [f"label {number}" for number in range(1000)]
    torch.manual_seed(1)
    torch.save(timm.create_model("test_vit").state_dict(), tmp_path / "net.pth")
    loaded = load_target("timm:test_vit", {"weights_file": tmp_path / "net.pth", "labels": names})
    assert loaded.card.concepts == tuple(names)
    assert loaded.card.source == "net.pth"


def tiny_timm(folder: Path, *, classes: int = 2, mean: float = 0.5) -> Path:
    """A model with its config.json, as timm saves it for the hub."""
    timm = pytest.importorskip("timm", reason="needs the extra 'timm'")
    from timm.models._hub import save_for_hf

    torch.manual_seed(3)
    net = timm.create_model("test_vit", num_classes=2)
    names = {"num_classes": classes, "label_names": ["smile", "neutral"][:classes], "mean": [mean] * 3}
    save_for_hf(net, folder, model_config=names, safe_serialization=True)
    config = json.loads((folder / "config.json").read_text())
    config["pretrained_cfg"].update(mean=[mean] * 3, num_classes=classes)
    (folder / "config.json").write_text(json.dumps(config))
    return folder


def test_timm_takes_classes_of_the_user_and_the_configuration_beside(tmp_path: Path) -> None:
    folder = tiny_timm(tmp_path / "net")
    whole = scores_of(f"timm:local-dir:{folder}", {"output": "logits"})
    given = {"weights_file": folder / "model.safetensors", "output": "logits"}
    loaded = load_target("timm:test_vit", given)
    assert loaded.card.concepts == ("smile", "neutral")
    assert tuple(loaded.card.settings["preprocessing"]["mean"]) == (0.5, 0.5, 0.5)
    assert np.allclose(scores_of("timm:test_vit", given), whole)
    (folder / "config.json").unlink()
    named = {**given, "labels": ["happy", "calm"]}
    assert load_target("timm:test_vit", named).card.concepts == ("happy", "calm")


def test_a_changed_configuration_of_timm_is_asked_anew(tmp_path: Path) -> None:
    spec, given = f"timm:local-dir:{tiny_timm(tmp_path / 'net')}", {"output": "logits"}
    first = audited(tmp_path / "cache", spec, given)
    tiny_timm(tmp_path / "net", mean=0.1)
    again = audited(tmp_path / "cache", spec, given)
    assert not np.allclose(first, again)
    assert np.array_equal(again, audited(tmp_path / "fresh", spec, given))
    assert load_target(spec, given).card.settings["preprocessing"]["mean"] == [0.1] * 3


def test_a_classifier_that_timm_would_leave_at_random_is_an_error(tmp_path: Path) -> None:
    """Where the configuration has other classes than model_args, timm says so in a log only."""
    folder = tiny_timm(tmp_path / "net")
    config = json.loads((folder / "config.json").read_text())
    config["model_args"] = {"num_classes": 3}
    (folder / "config.json").write_text(json.dumps(config))
    with pytest.raises(InputError, match=r"lacks 2 weights \(head\.bias, head\.weight\)"):
        load_target(f"timm:local-dir:{folder}", {"labels": ["a", "b", "c"]})


def test_a_folder_of_timm_in_several_files(tmp_path: Path) -> None:
    safetensors = pytest.importorskip("safetensors.torch")
    folder = tiny_timm(tmp_path / "net")
    spec, given = f"timm:local-dir:{folder}", {"output": "logits"}
    whole = scores_of(spec, given)
    in_parts(folder, safetensors.load_file(folder / "model.safetensors"))
    for file in ("model.safetensors", "pytorch_model.bin"):
        (folder / file).unlink(missing_ok=True)
    assert np.array_equal(scores_of(spec, given), whole)


def test_imagenet_conforms_on_its_real_weights() -> None:
    pytest.importorskip("efficientnet_lite_pytorch", reason="needs the extra 'imagenet'")
    conforms("imagenet")
    digest = load_target("imagenet").card.weights["state"]
    assert digest == "68b118241d73e54a8df7b05b5503a4ebcc6aeda868c5f212db978a79810ee04c"


def test_imagenet_sees_sunglasses_on_a_real_pair() -> None:
    pytest.importorskip("efficientnet_lite_pytorch", reason="needs the extra 'imagenet'")
    from PIL import Image

    faces = Path(__file__).resolve().parents[4] / "shared" / "faces" / "images"
    pairs = [
        (path.with_name(path.name.replace("sunglasses", "source")), path)
        for path in faces.glob("*sunglasses.jpg")
    ][:6]
    if not pairs:
        pytest.skip(f"the reference pictures {faces} are not beside this checkout")
    target = load_target("imagenet", {"concepts": ["sunglass"]}).target
    before, after = (
        target.score([Image.open(pair[side]).convert("RGB") for pair in pairs]).values for side in (0, 1)
    )
    assert (after - before).mean() > 0.05
