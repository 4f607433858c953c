"""Images of one's own: a folder is listed and read; whatever is wrong with a file, the error has its name."""

import csv
import pickle
import sys

import numpy as np
import pandas as pd
import pytest
from PIL import Image

from adds.data.files import listing, main, read
from adds.data.images import Form, in_unit_interval
from tests.test_images import encoded
from tests.test_models import Bomb

FORM = Form(8, 3, crop=False)
PIXELS = np.random.default_rng(0).integers(0, 256, (3, 8, 8), dtype=np.uint8)
PHOTO = Image.fromarray(PIXELS.transpose(1, 2, 0))


def rows(*names):
    return pd.DataFrame({"file": names})


def save(path, array):
    path.parent.mkdir(parents=True, exist_ok=True)
    np.save(path, array, allow_pickle=True)


@pytest.fixture
def program(monkeypatch, capsys, tmp_path):
    """Run the program on a folder, its output into a file, as its documentation says."""

    def run(folder):
        monkeypatch.setattr(sys, "argv", ["files", str(folder)])
        main()
        (tmp_path / "list.csv").write_text(capsys.readouterr().out)
        return pd.read_csv(tmp_path / "list.csv")

    return run


@pytest.fixture
def folder(tmp_path):
    path = tmp_path / "images"
    path.mkdir()
    return path


def test_folders_are_classes(folder, program):
    save(folder / "dog/1.npy", PIXELS)
    (folder / "cat/deep").mkdir(parents=True)
    (folder / "cat/b, c.PNG").write_bytes(encoded(PHOTO))
    (folder / "cat/a.jpeg").write_bytes(encoded(PHOTO, "JPEG"))
    (folder / "cat/deep/0.JPG").write_bytes(encoded(PHOTO, "JPEG"))
    (folder / "cat/notes.txt").write_text("no image")
    table = program(folder)
    assert table.to_dict("list") == {
        "file": ["cat/a.jpeg", "cat/b, c.PNG", "cat/deep/0.JPG", "dog/1.npy"],
        "label": [0, 0, 0, 1],
        "class_name": ["cat", "cat", "cat", "dog"],
    }
    images = read(folder, table, FORM)
    assert images.shape == (4, 3, 8, 8)
    assert np.array_equal(images[[1, 3]], [PIXELS, PIXELS])


def test_a_flat_folder_has_no_labels(folder, program):
    for name in ("b.png", "a.png"):
        (folder / name).write_bytes(encoded(PHOTO))
    (folder / "nothing in it").mkdir()
    table = program(folder)
    assert table.to_dict("list") == {"file": ["a.png", "b.png"]}
    assert read(folder, table, FORM).shape == (2, 3, 8, 8)


def test_lists_go_through_any_csv_reader(folder, monkeypatch, capsys):
    (folder / 'a "fine" class').mkdir()
    (folder / 'a "fine" class/ü,1.png').write_bytes(encoded(PHOTO))
    monkeypatch.setattr(sys, "argv", ["files", str(folder)])
    main()
    out, err = capsys.readouterr()
    assert list(csv.reader(out.splitlines()))[1] == ['a "fine" class/ü,1.png', "0", 'a "fine" class']
    assert err == "1 images\n", "how many there are is no part of the list"


def test_what_can_not_be_listed_is_named(folder, tmp_path, program, capsys):
    with pytest.raises(SystemExit, match="1"):
        program(tmp_path / "nowhere")
    assert "nowhere is not a folder" in capsys.readouterr().err
    (folder / "notes.txt").write_text("no image")
    with pytest.raises(ValueError, match=r"images has no images: they must end in \.png"):
        listing(folder)


def test_hidden_files_are_not_listed(folder, program):
    for hidden in (".ipynb_checkpoints", "cat/.thumbnails", "cat"):
        (folder / hidden).mkdir(parents=True, exist_ok=True)
        for name in ("1.png", "._1.png"):
            (folder / hidden / name).write_bytes(encoded(PHOTO))
    assert program(folder).to_dict("list") == {"file": ["cat/1.png"], "label": [0], "class_name": ["cat"]}
    assert program(folder / "cat").to_dict("list") == {"file": ["1.png"]}


def test_photographs_are_bytes(folder):
    (folder / "a.png").write_bytes(encoded(PHOTO))
    (folder / "b.jpg").write_bytes(encoded(PHOTO, "JPEG"))
    with Image.open(folder / "b.jpg") as image:
        jpeg = np.asarray(image).transpose(2, 0, 1)
    images = read(folder, rows("b.jpg", "a.png"), FORM)
    assert images.dtype == np.uint8
    assert np.array_equal(images, [jpeg, PIXELS])


def test_arrays_are_as_they_are(folder):
    numbers = np.random.default_rng(0).uniform(size=(3, 8, 8)).astype(np.float32)
    for name, array in (("bytes", PIXELS), ("single", numbers), ("double", numbers.astype(np.float64))):
        save(folder / f"{name}.npy", array)
    images = read(folder, rows("bytes.npy"), FORM)
    assert images.dtype == np.uint8
    assert np.array_equal(images[0], PIXELS)
    images = read(folder, rows("single.npy", "double.npy"), FORM)
    assert images.dtype == np.float32
    assert np.array_equal(images, [numbers, numbers])


def test_arrays_may_leave_out_a_single_channel(folder):
    save(folder / "grey.npy", PIXELS[0])
    assert np.array_equal(read(folder, rows("grey.npy"), Form(8, 1)), PIXELS[:1][None])


def test_bytes_beside_numbers_become_numbers(folder):
    numbers = np.full((3, 8, 8), 0.25, np.float32)
    save(folder / "a.npy", numbers)
    (folder / "b.png").write_bytes(encoded(PHOTO))
    images = read(folder, rows("a.npy", "b.png"), FORM)
    assert images.dtype == np.float32
    assert images.tobytes() == np.stack([numbers, in_unit_interval(PIXELS)]).tobytes()


def test_photographs_are_cropped_where_they_may_be(folder):
    (folder / "wide.png").write_bytes(encoded(PHOTO.resize((20, 8), Image.Resampling.NEAREST)))
    with pytest.raises(ValueError, match=r"wide\.png has 20 x 8 pixels instead of 8 x 8: set dataset\.crop to true"):
        read(folder, rows("wide.png"), FORM)
    with Image.open(folder / "wide.png") as image:
        centre = np.asarray(image)[:, 6:14].transpose(2, 0, 1)
    assert np.array_equal(read(folder, rows("wide.png"), Form(8, 3))[0], centre)


def test_arrays_are_never_cropped(folder):
    save(folder / "large.npy", np.zeros((3, 9, 8), np.uint8))
    with pytest.raises(ValueError, match=r"large\.npy has the shape \(3, 9, 8\) instead of \(3, 8, 8\)"):
        read(folder, rows("large.npy"), Form(8, 3))


@pytest.mark.parametrize(
    ("array", "message"),
    [
        (np.zeros((8, 8, 3), np.uint8), r"has the shape \(8, 8, 3\)"),
        (np.zeros((8, 8), np.uint8), r"has the shape \(1, 8, 8\)"),
        (np.zeros((1, 3, 8, 8), np.uint8), r"has the shape \(1, 3, 8, 8\)"),
        (np.float32(0), r"has the shape \(\)"),
        (np.full((3, 8, 8), 1.001), r"has values outside \[0, 1\]"),
        (np.full((3, 8, 8), -0.001), r"has values outside \[0, 1\]"),
        (np.full((3, 8, 8), np.nan), r"has values outside \[0, 1\]"),
        (np.full((3, 8, 8), np.inf), r"has values outside \[0, 1\]"),
        (PIXELS.astype(np.int64), r"has values outside \[0, 1\]"),
        (np.full((3, 8, 8), None), "is not a readable array: Object arrays"),
    ],
)
def test_arrays_that_are_no_images_are_named(folder, array, message):
    save(folder / "good.npy", PIXELS)
    save(folder / "bad.npy", array)
    with pytest.raises(ValueError, match=rf"images/bad\.npy {message}"):
        read(folder, rows("good.npy", "bad.npy"), FORM)


@pytest.mark.parametrize("name", ["bad.png", "bad.jpg", "bad.npy"])
def test_broken_files_are_named(folder, name):
    if name.endswith("npy"):
        save(folder / name, PIXELS)
    else:
        (folder / name).write_bytes(encoded(PHOTO, {"bad.png": "PNG", "bad.jpg": "JPEG"}[name]))
    whole = (folder / name).read_bytes()
    for content in (b"", b"garbage", whole[: len(whole) // 3], whole[: -len(whole) // 3]):
        (folder / name).write_bytes(content)
        with pytest.raises(ValueError, match=rf"images/{name} is not a readable (image|array)"):
            read(folder, rows(name), FORM)


def test_arrays_can_not_run_code(folder, capsys):
    save(folder / "bomb.npy", np.array(Bomb(), dtype=object))
    (folder / "pickle.npy").write_bytes(pickle.dumps(Bomb()))
    for name in ("bomb.npy", "pickle.npy"):
        with pytest.raises(ValueError, match=f"{name} is not a readable array"):
            read(folder, rows(name), FORM)
    assert "a pickle ran code" not in capsys.readouterr().out


def test_missing_files_are_named(folder, tmp_path):
    (folder / "a.png").write_bytes(encoded(PHOTO))
    (folder / "folder.png").mkdir()
    with pytest.raises(ValueError, match=r"images lacks 2 of the 3 listed files, for example b\.png"):
        read(folder, rows("a.png", "b.png", "folder.png"), FORM)
    with pytest.raises(ValueError, match="the list of images has no column file"):
        read(folder, pd.DataFrame({"filename": ["a.png"]}), FORM)
    for source in (None, tmp_path / "nowhere", folder / "a.png"):
        with pytest.raises(ValueError, match=rf"dataset\.source is {source}: it must be the folder"):
            read(source, rows("a.png"), FORM)


def test_suffixes_may_be_capitals(folder, program):
    with (folder / "A.NPY").open("wb") as file:
        np.save(file, PIXELS)
    assert np.array_equal(read(folder, program(folder), FORM)[0], PIXELS)


def test_arrays_of_other_kinds_are_named(folder):
    with (folder / "many.npy").open("wb") as file:
        np.savez(file, PIXELS)
    (folder / "short.npy").write_bytes((folder / "many.npy").read_bytes()[:50])
    save(folder / "text.npy", np.full((3, 8, 8), "0.5x"))
    save(folder / "complex.npy", np.full((3, 8, 8), 0.5 + 2j))
    for name in ("many.npy", "short.npy", "text.npy", "complex.npy"):
        with pytest.raises(ValueError, match=f"images/{name}"):
            read(folder, rows(name), FORM)
