"""From lists and pixels to images with numbers, labels and names: what doesn't agree is refused."""

import io

import numpy as np
import pandas as pd
import pytest
from PIL import Image

from adds.data.digits import load_split, read
from adds.data.images import (
    COLUMNS,
    Form,
    Images,
    Picture,
    class_names,
    decode,
    describe,
    in_unit_interval,
    pixels_of,
    reader,
)
from adds.registry import DATASETS
from tests.test_imagenet import CONFIG

STORED = np.random.default_rng(0).integers(0, 256, (4, 1, 8, 8), dtype=np.uint8)
FILES = pd.DataFrame({"file": ["a.png", "b.png", "c.png", "d.png"]})


def encoded(image, kind="PNG"):
    buffer = io.BytesIO()
    image.save(buffer, kind)
    return buffer.getvalue()


def listed(**columns):
    return describe(FILES.assign(**columns), STORED, {0: "cat", 1: "dog"}, 3)


def saved(folder, table, stored=STORED):
    """Write images as the workflow's rule does, and open them."""
    table.to_csv(folder / "images.csv", index=False)
    np.save(folder / "images.npy", stored)
    return Images.read(folder / "images.csv", folder / "images.npy")


def test_every_data_set_of_the_registry_can_be_read():
    assert all(callable(reader(name).read) for name in DATASETS)


def test_photographs_are_resized_and_cropped():
    pixels = np.zeros((300, 600, 3), np.uint8)
    pixels[:, 250:350] = 255  # a white bar in the middle survives the crop
    image = decode(encoded(Image.fromarray(pixels)), "photo.png", Form(64, 3))
    assert image.shape == (3, 64, 64)
    assert image.dtype == np.uint8
    assert image.flags.c_contiguous
    assert image[:, :, 32].min() == 255
    assert image[:, :, 0].max() == 0


def test_the_shorter_side_becomes_the_size():
    photo = Image.fromarray(np.random.default_rng(0).integers(0, 256, (20, 31, 3), dtype=np.uint8))
    expected = photo.resize((25, 16), Image.Resampling.BICUBIC).crop((4, 0, 20, 16))  # 31 x 16 / 20 = 24.8
    assert np.array_equal(decode(encoded(photo), "photo.png", Form(16, 3)).transpose(1, 2, 0), expected)


@pytest.mark.parametrize("crop", [True, False])
def test_photographs_of_the_right_size_stay_as_they_are(crop):
    pixels = np.random.default_rng(0).integers(0, 256, (16, 16, 3), dtype=np.uint8)
    image = decode(encoded(Image.fromarray(pixels)), "photo.png", Form(16, 3, crop))
    assert np.array_equal(image, pixels.transpose(2, 0, 1))


@pytest.mark.parametrize("size", [(16, 17), (17, 16), (8, 8), (32, 32)])
def test_without_cropping_another_size_is_refused(size):
    with pytest.raises(ValueError, match=rf"photo\.png has {size[0]} x {size[1]} pixels instead of 16 x 16"):
        decode(encoded(Image.new("RGB", size)), "photo.png", Form(16, 3, crop=False))


@pytest.mark.parametrize("size", [(1, 1), (1, 500), (500, 1), (333, 17), (15, 16)])
def test_odd_sizes_become_square(size):
    assert decode(encoded(Image.new("RGB", size)), "photo.png", Form(16, 3)).shape == (3, 16, 16)


@pytest.mark.parametrize("mode", ["L", "RGB", "RGBA", "P", "1"])
@pytest.mark.parametrize("channels", [1, 3])
def test_photographs_get_the_channels_that_are_needed(mode, channels):
    white = Image.new("RGB", (40, 30), "white").convert(mode)
    image = decode(encoded(white), "photo.png", Form(16, channels))
    assert image.shape == (channels, 16, 16)
    assert image.min() == 255


def test_deep_grey_is_not_clipped():
    deep = np.linspace(0, 2**16 - 1, 256).astype(np.uint16).reshape(16, 16)
    image = decode(encoded(Image.fromarray(deep)), "deep.png", Form(16, 1))
    assert np.abs(image[0] - deep / 257.0).max() <= 1


@pytest.mark.parametrize("kind", ["PNG", "JPEG"])
def test_a_broken_photograph_is_named(kind):
    noise = np.random.default_rng(0).integers(0, 256, (64, 64, 3), dtype=np.uint8)
    whole = encoded(Image.fromarray(noise), kind)
    for length in (0, 3, 25, 200, len(whole) // 2):
        with pytest.raises(ValueError, match=r"broken\.jpeg is not a readable image"):
            decode(whole[:length], "broken.jpeg", Form(16, 3))


def test_a_photograph_with_a_short_header_is_named():
    damaged = bytearray(encoded(Image.new("RGB", (64, 64))))
    damaged[11] = 5
    with pytest.raises(ValueError, match=r"broken\.png is not a readable image"):
        decode(bytes(damaged), "broken.png", Form(16, 3))


def test_a_photograph_that_is_too_large_is_named(monkeypatch):
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 1000)
    with pytest.raises(ValueError, match=r"huge\.png is not a readable image"):
        decode(encoded(Image.new("RGB", (64, 64))), "huge.png", Form(16, 3))


def test_pixels_in_the_unit_interval_are_bytes_divided_by_255():
    every = np.arange(256, dtype=np.uint8)
    assert in_unit_interval(every).tobytes() == (every.astype(np.float32) / 255).tobytes()
    numbers = np.random.default_rng(0).uniform(size=100).astype(np.float32)
    assert in_unit_interval(numbers).tobytes() == numbers.tobytes()


def test_the_checksum_is_that_of_the_pixels():
    image = STORED[0]
    changed = image.copy()
    changed[0, 7, 7] ^= 1
    others = [changed, image.reshape(1, 4, 16), image.view(np.int8), in_unit_interval(image)]
    assert len({pixels_of(other) for other in [image, *others]}) == 5
    assert pixels_of(np.asfortranarray(image)) == pixels_of(image)


def test_numbers_are_the_lists():
    table = listed(number=[30, 10, 40, 20], label=[0, 1, 2, 0])
    assert list(table.columns) == COLUMNS
    assert list(table["number"]) == [30, 10, 40, 20]
    assert list(table["label"]) == [0, 1, 2, 0]
    assert list(table["class_name"]) == ["cat", "dog", "2", "cat"]
    assert list(table["pixels"]) == [pixels_of(image) for image in STORED]


def test_without_numbers_they_are_the_pixels_own():
    """Whatever the file is called and wherever it stands in the list."""
    numbers = listed()["number"]
    assert numbers.is_unique
    assert list(numbers) == [int(pixels_of(image)[:12], 16) for image in STORED]
    turned = describe(FILES.assign(file=["x", "y", "z", "w"]), STORED[::-1], {}, 3)
    assert list(turned["number"]) == list(numbers[::-1])
    assert numbers.between(0, 2**48 - 1).all()


def test_an_image_that_is_listed_twice_is_refused():
    with pytest.raises(ValueError, match=r"has number 7 twice: line 4 \(c\.png\)"):
        listed(number=[5, 7, 7, 8])
    with pytest.raises(ValueError, match=r"twice: line 5 \(d\.png\)"):
        describe(FILES, STORED[[0, 1, 2, 0]], {}, 3)
    with pytest.raises(ValueError, match=r"twice: line 3 \(9\)"):
        describe(pd.DataFrame({"number": [9, 9]}), STORED[:2], {}, 3)


@pytest.mark.parametrize("label", [3, -1])
def test_a_label_that_is_no_class_is_named_with_its_line(label):
    with pytest.raises(ValueError, match=rf"label {label} at line 4 \(c\.png\) is none of .* 3 classes, 0 to 2"):
        listed(label=[0, 1, label, 2])


def test_a_list_need_not_start_at_zero():
    rows = FILES.assign(label=[0, 1, 3, 2], number=range(4)).set_index(pd.Index([8, 2, 9, 4]))
    with pytest.raises(ValueError, match=r"label 3 at line 4 \(c\.png\)"):
        describe(rows, STORED, {}, 3)
    assert list(describe(rows, STORED, {}, 4)["label"]) == [0, 1, 3, 2]


@pytest.mark.parametrize("columns", [{}, {"label": None}, {"label": np.nan}])
def test_labels_may_be_missing_altogether(columns):
    table = listed(**columns)
    assert table["label"].isna().all()
    assert list(table["class_name"]) == [""] * 4


def test_labels_may_not_be_missing_here_and_there():
    with pytest.raises(ValueError, match=r"no label at line 3 \(b\.png\): give all of them one, or none"):
        listed(label=[0, None, 1, None])


@pytest.mark.parametrize(
    "columns",
    [{"number": [1, None, 2, 3]}, {"number": [1, 1.5, 2, 3]}, {"number": list("abcd")}, {"label": list("abcd")}],
    ids=["no number", "half a number", "names for numbers", "names for labels"],
)
def test_numbers_and_labels_that_are_none_are_named(columns):
    with pytest.raises(ValueError, match=r"line \d \(.\.png\)"):
        listed(**columns)


def test_images_come_back_as_they_were_listed(tmp_path):
    images = saved(tmp_path, listed(label=[2, 0, 1, 1]))
    assert isinstance(images.stored, np.memmap), "pixels stay on disk"
    assert len(images) == 4
    for picture, pixels, number, label, name in zip(
        images, STORED, listed()["number"], (2, 0, 1, 1), ("2", "cat", "dog", "dog"), strict=True
    ):
        assert picture.pixels.tobytes() == in_unit_interval(pixels).tobytes()
        assert picture.pixels.dtype == np.float32
        assert (picture.number, picture.label, picture.class_name) == (number, label, name)
        assert type(picture.label) is int
        assert picture.checksum == pixels_of(pixels)


def test_images_without_labels_come_back_without(tmp_path):
    assert [(picture.label, picture.class_name) for picture in saved(tmp_path, listed())] == [(None, "")] * 4


@pytest.mark.parametrize("names", [["NA", "nan", "a, b", "null"], ["007", "1.0", "2", "1e3"]])
def test_names_of_classes_come_back_as_text(tmp_path, names):
    names = dict(enumerate(names))
    images = saved(tmp_path, describe(FILES.assign(label=range(4)), STORED, names, 4))
    assert [picture.class_name for picture in images] == list(names.values())


def test_images_of_float32_come_back_bit_by_bit(tmp_path):
    stored = np.random.default_rng(0).uniform(size=(2, 3, 8, 8)).astype(np.float32)
    images = saved(tmp_path, describe(pd.DataFrame({"number": [4, 2]}), stored, {}, 3), stored)
    assert all(picture.pixels.tobytes() == kept.tobytes() for picture, kept in zip(images, stored, strict=True))


def test_a_part_is_some_positions(tmp_path):
    images = saved(tmp_path, listed(number=[30, 10, 40, 20]))
    parts = [images.part(0, 1), images.part(1, 3), images.part(3, 4)]
    assert [len(part) for part in parts] == [1, 2, 1]
    assert [picture.number for part in parts for picture in part] == [30, 10, 40, 20]
    assert [picture.checksum for picture in images.part(1, 3)] == [pixels_of(image) for image in STORED[1:3]]


@pytest.mark.parametrize(
    "changed",
    [STORED[[0, 1, 3, 2]], STORED ^ np.uint8([0, 0, 1, 0]).reshape(4, 1, 1, 1)],
    ids=["two exchanged", "one bit each"],
)
def test_changed_pixels_are_refused(tmp_path, changed):
    images = iter(saved(tmp_path, listed(number=[30, 10, 40, 20]), changed))
    assert [next(images).number for _ in range(2)] == [30, 10]
    with pytest.raises(ValueError, match="pixels of image 40 are not those that were listed"):
        next(images)


def test_pixels_that_are_too_few_are_refused(tmp_path):
    with pytest.raises(ValueError, match="shorter"):
        list(saved(tmp_path, listed(), STORED[:3]))


def test_names_are_the_files_else_the_lists_else_none(tmp_path):
    path = tmp_path / "classes.csv"
    path.write_text("label,name\n0,cat\n1,dog\n")
    rows = pd.DataFrame({"label": [1, 0, 1], "class_name": ["wolf", "lynx", "wolf"]})
    assert class_names(path, rows) == {0: "cat", 1: "dog"}
    assert class_names(None, rows) == {0: "lynx", 1: "wolf"}
    assert class_names(None, rows.assign(label=None)) == {}
    assert class_names(None, rows[["label"]]) == {}
    assert class_names(None) == {}
    path.write_text("label,synset\n0,n01440764\n")
    assert class_names(path, rows) == {}


def test_an_image_that_no_list_has():
    picture = Picture.of(np.full((1, 8, 8), 0.5), number=3, label=1)
    assert picture.pixels.dtype == np.float32
    assert (picture.number, picture.label, picture.class_name) == (3, 1, "1")
    assert picture.checksum == pixels_of(np.full((1, 8, 8), 0.5, np.float32))
    assert Picture.of(np.zeros((1, 8, 8))).class_name == ""


def test_digits():
    rows = pd.read_csv(CONFIG / "digits.csv")
    train, test = load_split()
    assert list(rows["number"]) == list(test.numbers), "the list is the held-out digits, in their order"
    assert list(rows["label"]) == list(test.labels)
    assert not set(rows["number"]) & set(train.numbers)
    assert len(train) + len(test) == 1797
    images = read(None, rows, Form(8, 1))
    assert images.shape == (400, 1, 8, 8)
    assert images.dtype == np.float32
    assert np.array_equal(images, test.images)
    assert images.min() == 0
    assert images.max() == 1
    assert np.array_equal(images * 16, (images * 16).round()), "sixteenths, as scikit-learn has them"


def test_other_lists_of_digits_are_refused():
    rows = pd.read_csv(CONFIG / "digits.csv").head(3)
    for number in (1797, -1):
        with pytest.raises(ValueError, match=f"scikit-learn's digits has no image {number}: it has 1797"):
            read(None, rows.assign(number=[0, number, 1]), Form(8, 1))
    with pytest.raises(ValueError, match=f"image {rows['number'][1]} has label 6, the list of images has 5"):
        read(None, rows.assign(label=[rows["label"][0], 5, rows["label"][2]]), Form(8, 1))
