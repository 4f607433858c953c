"""The every-200th subset from stand-in archives and folders under the real names."""

import io
import random
import tarfile
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from PIL import Image

from adds.data.imagenet import all_files, every_nth, main, read
from adds.data.images import Form, check_labels, decode

CONFIG = Path(__file__).parents[1] / "config"
LIST = pd.read_csv(CONFIG / "imagenet_every_200th.csv")
CLASSES = pd.read_csv(CONFIG / "imagenet_classes.csv")
FORM = Form(16, 3)


def jpeg(seed):
    pixels = np.random.default_rng(seed).integers(0, 255, (20, 30, 3), dtype=np.uint8)
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, "JPEG")
    return buffer.getvalue()


def archive(path, names, contents=jpeg, mode="w"):
    with tarfile.open(path, mode) as tar:
        for seed, name in enumerate(names):
            data = contents(seed)
            member = tarfile.TarInfo(name)
            member.size = len(data)
            tar.addfile(member, io.BytesIO(data))
    return path


def pixels(seeds):
    return np.stack([decode(jpeg(seed), f"image {seed}", FORM) for seed in seeds])


@pytest.fixture
def images():
    return LIST.head(12)


@pytest.mark.parametrize("order", ["sorted", "shuffled", "reversed"])
def test_the_tar_is_read_in_any_order(tmp_path, images, order):
    names = sorted([*images["filename"], *[f"ILSVRC2012_val_{n:08d}.JPEG" for n in range(40_000, 40_020)]])
    if order != "sorted":
        random.Random(0).shuffle(names) if order == "shuffled" else names.reverse()
    found = read(archive(tmp_path / "val.tar", names), images, FORM)
    assert found.dtype == np.uint8
    assert np.array_equal(found, pixels(names.index(name) for name in images["filename"]))


def test_reading_stops_when_all_are_there(tmp_path, images):
    path = archive(tmp_path / "val.tar", [*images["filename"], *[f"later{n}" for n in range(50)]])
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])  # the rest of the archive is missing, and not needed
    assert np.array_equal(read(path, images, FORM), pixels(range(12)))


def test_a_tar_that_ends_too_early_is_named(tmp_path, images):
    path = archive(tmp_path / "val.tar", images["filename"])
    whole = path.read_bytes()
    for length in (len(whole) // 3, len(whole) // 2 // 512 * 512, 700):
        path.write_bytes(whole[:length])
        with pytest.raises(ValueError, match=r"val\.tar (lacks|is not a readable tar)"):
            read(path, images, FORM)


@pytest.mark.parametrize("prefix", ["../../", "{outside}/evil/", "a/../../b/", "./val/"])
def test_member_names_lead_nowhere(tmp_path, monkeypatch, images, prefix):
    (tmp_path / "in/deep").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "in/deep")
    names = [prefix.format(outside=tmp_path) + name for name in images["filename"]]
    path = archive(tmp_path / "in/val.tar", names)
    before = set(tmp_path.rglob("*"))
    assert np.array_equal(read(path, images, FORM), pixels(range(12)))
    assert set(tmp_path.rglob("*")) == before


@pytest.mark.parametrize("kind", ["SYMTYPE", "LNKTYPE", "FIFOTYPE", "CHRTYPE", "DIRTYPE"])
def test_only_files_are_read(tmp_path, images, kind):
    secret = tmp_path / "secret.jpeg"
    secret.write_bytes(jpeg(0))
    member = tarfile.TarInfo(images["filename"][0])
    member.type, member.linkname = getattr(tarfile, kind), str(secret)
    with tarfile.open(tmp_path / "val.tar", "w") as tar:
        tar.addfile(member)
    with pytest.raises(ValueError, match="lacks 1 of the images"):
        read(tmp_path / "val.tar", images.head(1), FORM)
    archive(tmp_path / "val.tar", images["filename"][:1], mode="a")
    assert np.array_equal(read(tmp_path / "val.tar", images.head(1), FORM), pixels([0]))


def test_what_is_missing_or_broken_is_named(tmp_path, images):
    path = archive(tmp_path / "val.tar", images["filename"][:-1])
    with pytest.raises(ValueError, match=f"lacks 1 of the images, for example {images['filename'].iloc[-1]}"):
        read(path, images, FORM)
    for number, content in enumerate((b"not a jpeg", b"", jpeg(0)[:-200])):
        path = archive(tmp_path / f"bad{number}.tar", images["filename"], contents=lambda _, data=content: data)
        with pytest.raises(ValueError, match=rf"{images['filename'][0]} in .*bad{number}\.tar is not a readable image"):
            read(path, images, FORM)
    garbage = tmp_path / "garbage.tar"
    garbage.write_bytes(b"garbage" * 1000)
    with pytest.raises(ValueError, match=r"garbage\.tar is not a readable tar"):
        read(garbage, images, FORM)
    with pytest.raises(FileNotFoundError, match="nowhere: it doesn't exist"):
        read(tmp_path / "nowhere", images, FORM)
    with pytest.raises(FileNotFoundError, match=r"dataset\.source is None"):
        read(None, images, FORM)


@pytest.mark.parametrize("tree", [False, True], ids=["flat folder", "ImageFolder tree"])
def test_folders_are_used_where_they_are(tmp_path, images, tree):
    paths = [tmp_path / row.wnid / row.filename if tree else tmp_path / row.filename for row in images.itertuples()]
    for seed, path in enumerate(paths):
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(jpeg(seed))
    before = set(tmp_path.rglob("*"))
    assert np.array_equal(read(tmp_path, images, FORM), pixels(range(12)))
    assert set(tmp_path.rglob("*")) == before
    paths[5].write_bytes(b"not a jpeg")
    with pytest.raises(ValueError, match=f"{paths[5]} is not a readable image"):
        read(tmp_path, images, FORM)
    paths[3].unlink()
    with pytest.raises(ValueError, match=f"lacks 1 of the 12 images, for example {paths[3].name}"):
        read(tmp_path, images, FORM)


def test_the_number_convention_gives_the_shipped_list():
    """50 stand-in files per class around the listed ones, in the listed classes' order."""
    listed = dict(zip(LIST["wnid"], LIST["filename"], strict=True))
    rows = []
    for wnid in CLASSES["wnid"]:
        first = listed.get(wnid, f"ILSVRC2012_val_{0:08d}.JPEG")
        rows += [(wnid, first)] + [(wnid, f"{first}.later{n:02d}") for n in range(49)]
    files = pd.DataFrame(rows, columns=["wnid", "filename"]).sample(frac=1, random_state=0)
    chosen = every_nth(files, 200, CLASSES)
    assert list(chosen["name"]) == list(LIST["name"])
    assert list(chosen["number"]) == list(LIST["number"])
    assert list(chosen["filename"]) == list(LIST["filename"])
    assert list(chosen["label"]) == list(LIST["label"])
    with pytest.raises(ValueError, match="stride is 0"):
        every_nth(files, 0, CLASSES)


def test_a_list_of_another_stride_from_an_imagefolder_tree(tmp_path, monkeypatch, capsys):
    for wnid in CLASSES["wnid"][:4]:
        (tmp_path / "val" / wnid).mkdir(parents=True)
        for number in range(3):
            (tmp_path / "val" / wnid / f"{wnid}_{number}.JPEG").touch()
    target = tmp_path / "list.csv"
    command = ["imagenet", "--labels", str(tmp_path / "val"), "--stride", "5", "--output", str(target)]
    monkeypatch.setattr("sys.argv", [*command, "--classes", str(CONFIG / "imagenet_classes.csv")])
    main()
    assert "lists 3 images" in capsys.readouterr().out
    chosen = pd.read_csv(target)
    check_labels(chosen, CONFIG / "imagenet_classes.csv")
    assert list(chosen["number"]) == [0, 5, 10]
    assert list(chosen["label"]) == [0, 1, 3]
    assert list(chosen["name"]) == list(CLASSES["name"].iloc[[0, 1, 3]])
    table = all_files(tmp_path / "val")
    table.to_csv(tmp_path / "labels.csv", index=False)
    assert every_nth(all_files(tmp_path / "labels.csv"), 5, CLASSES).equals(every_nth(table, 5, CLASSES))


def test_the_shipped_list_agrees_with_the_shipped_classes():
    check_labels(LIST, CONFIG / "imagenet_classes.csv")
    check_labels(LIST.drop(columns="wnid"), CONFIG / "cifar10_classes.csv")  # nothing to compare


def test_lists_that_make_no_sense_are_refused(tmp_path, images):
    with pytest.raises(ValueError, match=f"{LIST['filename'][0]} the class n01440764 with label 1: .*csv has 0"):
        check_labels(LIST.assign(label=LIST["label"] + 1), CONFIG / "imagenet_classes.csv")
    with pytest.raises(ValueError, match=r"the class n0 with label 0: .* has no such class"):
        check_labels(LIST.assign(wnid="n0"), CONFIG / "imagenet_classes.csv")
    with pytest.raises(ValueError, match="has no column filename, wnid"):
        read(tmp_path, images[["number", "label"]], FORM)
    (tmp_path / "empty").mkdir()
    with pytest.raises(ValueError, match="doesn't tell the images' classes"):
        all_files(tmp_path / "empty")
    LIST.drop(columns="wnid").to_csv(tmp_path / "labels.csv")
    with pytest.raises(ValueError, match="doesn't tell the images' classes"):
        all_files(tmp_path / "labels.csv")
