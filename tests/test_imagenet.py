"""The every-200th subset from stand-in archives and folders under the real names."""

import io
import random
import tarfile
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from PIL import Image

from adds.data.imagenet import all_files, every_nth, extract, find_in_folder, main, prepare_imagenet, read_list
from adds.data.images import load_image

LIST = pd.read_csv(Path(__file__).parents[1] / "config/imagenet_every_200th.csv")


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


@pytest.fixture
def images():
    return LIST.head(12)


@pytest.mark.parametrize("order", ["sorted", "shuffled", "reversed"])
def test_the_tar_is_read_in_any_order(tmp_path, images, order):
    names = sorted([*images["filename"], *[f"ILSVRC2012_val_{n:08d}.JPEG" for n in range(40_000, 40_020)]])
    if order != "sorted":
        random.Random(0).shuffle(names) if order == "shuffled" else names.reverse()
    table = prepare_imagenet(archive(tmp_path / "val.tar", names), images, tmp_path / "images")
    assert list(table["index"]) == list(images["index"])
    assert all(load_image(file, size=16).shape == (3, 16, 16) for file in table["file"])
    assert len(list((tmp_path / "images").iterdir())) == len(images)


def test_reading_stops_when_all_are_there(tmp_path, images):
    path = archive(tmp_path / "val.tar", [*images["filename"], *[f"later{n}" for n in range(50)]])
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])  # the rest of the archive is missing, and not needed
    extract(path, images["filename"], tmp_path / "images")
    assert len(list((tmp_path / "images").iterdir())) == len(images)


@pytest.mark.parametrize("prefix", ["../../", "/tmp/evil/", "a/../../b/", "./val/"])
def test_member_names_can_not_lead_outside(tmp_path, images, prefix):
    (tmp_path / "in").mkdir()
    path = archive(tmp_path / "in/val.tar", [prefix + name for name in images["filename"]])
    before = set(tmp_path.rglob("*"))
    extract(path, images["filename"], tmp_path / "images")
    new = set(tmp_path.rglob("*")) - before
    assert new == {tmp_path / "images", *(tmp_path / "images" / name for name in images["filename"])}
    assert not Path("/tmp/evil").exists()


def test_links_are_not_followed(tmp_path, images):
    name = images["filename"][0]
    with tarfile.open(tmp_path / "val.tar", "w") as tar:
        link = tarfile.TarInfo(name)
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
        tar.addfile(link)
    with pytest.raises(ValueError, match="lacks 1 of the images"):
        extract(tmp_path / "val.tar", [name], tmp_path / "images")


def test_what_is_missing_or_broken_is_named(tmp_path, images):
    path = archive(tmp_path / "val.tar", images["filename"][:-1])
    with pytest.raises(ValueError, match=f"lacks 1 of the images, for example {images['filename'].iloc[-1]}"):
        extract(path, images["filename"], tmp_path / "images")
    path = archive(tmp_path / "bad.tar", images["filename"], contents=lambda _: b"not a jpeg")
    with pytest.raises(ValueError, match="is not a readable image"):
        extract(path, images["filename"], tmp_path / "others")
    garbage = tmp_path / "garbage.tar"
    garbage.write_bytes(b"garbage" * 1000)
    with pytest.raises(ValueError, match="not a readable tar"):
        extract(garbage, images["filename"], tmp_path / "more")
    with pytest.raises(FileNotFoundError):
        prepare_imagenet(tmp_path / "nowhere", images, tmp_path / "more")


def test_an_interrupted_extraction_goes_on(tmp_path, images):
    short = archive(tmp_path / "short.tar", images["filename"][:5])
    with pytest.raises(ValueError, match="lacks 7"):
        extract(short, images["filename"], tmp_path / "images")
    rest = archive(tmp_path / "rest.tar", images["filename"][5:])
    extract(rest, images["filename"], tmp_path / "images")
    assert len(list((tmp_path / "images").iterdir())) == 12


@pytest.mark.parametrize("tree", [False, True], ids=["flat folder", "ImageFolder tree"])
def test_folders_are_used_where_they_are(tmp_path, images, tree):
    for seed, row in enumerate(images.itertuples()):
        path = tmp_path / row.wnid / row.filename if tree else tmp_path / row.filename
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(jpeg(seed))
    table = prepare_imagenet(tmp_path, images, tmp_path / "unused")
    assert all(Path(file).parent in (tmp_path, *tmp_path.iterdir()) for file in table["file"])
    assert not (tmp_path / "unused").exists()
    Path(table["file"][3]).unlink()
    with pytest.raises(ValueError, match="lacks 1 of the 12 images"):
        find_in_folder(tmp_path, images)


def test_the_index_convention_gives_the_shipped_list():
    """50 stand-in files per class around the listed ones, in the listed classes' order."""
    classes = pd.read_csv(Path(__file__).parents[1] / "config/imagenet_classes.csv")
    listed = dict(zip(LIST["wnid"], LIST["filename"], strict=True))
    rows = []
    for wnid in classes["wnid"]:
        first = listed.get(wnid, f"ILSVRC2012_val_{0:08d}.JPEG")
        rows += [(wnid, first)] + [(wnid, f"{first}.later{n:02d}") for n in range(49)]
    files = pd.DataFrame(rows, columns=["wnid", "filename"]).sample(frac=1, random_state=0)
    chosen = every_nth(files, 200, classes)
    assert list(chosen["name"]) == list(LIST["name"])
    assert list(chosen["index"]) == list(LIST["index"])
    assert list(chosen["filename"]) == list(LIST["filename"])
    assert list(chosen["label"]) == list(LIST["label"])
    with pytest.raises(ValueError, match="stride is 0"):
        every_nth(files, 0, classes)


CLASSES = pd.read_csv(Path(__file__).parents[1] / "config/imagenet_classes.csv")


def test_a_list_of_another_stride_from_an_imagefolder_tree(tmp_path, monkeypatch, capsys):
    for wnid in CLASSES["wnid"][:4]:
        (tmp_path / "val" / wnid).mkdir(parents=True)
        for number in range(3):
            (tmp_path / "val" / wnid / f"{wnid}_{number}.JPEG").touch()
    target = tmp_path / "list.csv"
    command = ["subset", "--labels", str(tmp_path / "val"), "--stride", "5", "--output", str(target)]
    monkeypatch.setattr("sys.argv", command)
    main()
    assert "lists 3 images" in capsys.readouterr().out
    chosen = read_list(target, CLASSES)
    assert list(chosen["index"]) == [0, 5, 10]
    assert list(chosen["label"]) == [0, 1, 3]
    assert list(chosen["name"]) == list(CLASSES["name"].iloc[[0, 1, 3]])
    table = all_files(tmp_path / "val")
    table.to_csv(tmp_path / "labels.csv", index=False)
    assert every_nth(all_files(tmp_path / "labels.csv"), 5, CLASSES).equals(every_nth(table, 5, CLASSES))


def test_lists_that_make_no_sense_are_refused(tmp_path):
    LIST.assign(label=LIST["label"] + 1).to_csv(tmp_path / "wrong.csv", index=False)
    with pytest.raises(ValueError, match="the class list has 0"):
        read_list(tmp_path / "wrong.csv", CLASSES)
    LIST.drop(columns="wnid").to_csv(tmp_path / "short.csv", index=False)
    with pytest.raises(ValueError, match="has no column wnid"):
        read_list(tmp_path / "short.csv", CLASSES)
    (tmp_path / "empty").mkdir()
    with pytest.raises(ValueError, match="doesn't tell the images' classes"):
        all_files(tmp_path / "empty")
