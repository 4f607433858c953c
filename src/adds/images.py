"""Loading images from disk as [C, H, W] in [0, 1]; needs no torch."""

from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image, UnidentifiedImageError

Pixels = NDArray[np.float32]


def load_image(path: Path | str, *, size: int) -> Pixels:
    """Load an image in [0, 1]: a .npy array as it is, anything else resized and cropped.

    As for ImageNet's evaluation: the shorter side becomes ``size`` (bicubic), then the centre is cut out.
    """
    path = Path(path)
    if path.suffix == ".npy":
        stored: Pixels = np.load(path, allow_pickle=False)
        return stored.astype(np.float32)
    try:
        with Image.open(path) as file:
            image = file.convert("RGB")
    except (UnidentifiedImageError, OSError) as error:
        raise ValueError(f"{path} is not a readable image: {error}") from error
    scale = size / min(image.size)
    width, height = (max(size, round(side * scale)) for side in image.size)
    image = image.resize((width, height), Image.Resampling.BICUBIC)
    left, top = (width - size) // 2, (height - size) // 2
    image = image.crop((left, top, left + size, top + size))
    pixels = np.asarray(image, dtype=np.float32) / 255
    return np.ascontiguousarray(pixels.transpose(2, 0, 1))
