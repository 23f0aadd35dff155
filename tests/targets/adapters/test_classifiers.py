"""torchvision, timm and imagenet: labels as concepts."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from targets.base.errors import InputError
from targets.catalogue import load_target
from targets.drawn_pictures import drawn_faces
from targets.torch_tools import distinct_names
from tests.targets.tools import conforms, scores_of

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
