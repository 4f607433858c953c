"""What networks do on images that are for choices: how well they denoise in one step, and whether classes survive it.

    python -m studies.held_out weights/fashion --source /usr/share/datasets/fashion-mnist

prints for every sigma the mean squared error of a pixel that was denoised in one step (in the model's units, [-1, 1])
and that of the best linear filter, and how often the class is right: by Carlini et al.'s method with the clean
classifier, with the one trained on denoised images, and by the classifier trained on noise. Each of the held-out
images is noised once.
"""

import argparse
from collections.abc import Callable, Iterator
from pathlib import Path

import torch
from torch import Tensor

from adds.data.images import Examples, training_of
from adds.diffusion.denoiser import Denoiser
from adds.diffusion.schedule import Schedule, model_sigma, to_model
from adds.methods.carlini import denoise
from adds.models.pipeline import untrained_classifier
from adds.models.training import accuracy
from adds.models.unet import load_unet
from adds.models.weights import load_weights, made_by

SEED = 0


def noised(images: Tensor, sigma: float) -> Tensor:
    """Add noise to images in the model's units, the same each time."""
    generator = torch.Generator().manual_seed(SEED)
    return images + model_sigma(sigma) * torch.randn(images.shape, generator=generator)


def error(denoised: Tensor, images: Tensor) -> float:
    """Return the mean squared error of a pixel."""
    return float((denoised - images).square().mean())


def linear_filter(train: Tensor, sigma: float) -> Callable[[Tensor], Tensor]:
    """Return Wiener's filter, y to m + C (C + s^2 I)^-1 (y - m), with mean and covariance of the training images."""
    flat = train.flatten(1).double()
    mean, covariance = flat.mean(dim=0), flat.T.cov()
    noise = model_sigma(sigma) ** 2 * torch.eye(len(mean), dtype=torch.float64)
    gain = torch.linalg.solve(covariance + noise, covariance)

    def apply(y: Tensor) -> Tensor:
        filtered: Tensor = mean + (y.flatten(1).double() - mean) @ gain
        return filtered.clamp(-1, 1).float().view_as(y)

    return apply


def load_denoiser(weights: Path) -> Denoiser:
    """Load a diffusion model by what its file says of itself."""
    recipe = made_by(weights)
    network = load_unet(weights, recipe["unet"])
    return Denoiser(network, Schedule.named(recipe["schedule"], recipe["timesteps"]), batch_size=64)


def load_classifier(weights: Path) -> torch.nn.Module:
    """Load a classifier by what its file says of itself."""
    network = untrained_classifier(made_by(weights))
    assert network is not None
    load_weights(network, weights)
    return network.eval()


def right(network: torch.nn.Module, images: Tensor, held_out: Examples) -> float:
    """Return how often a classifier is right about what is left of the held-out images, in percent."""
    with torch.inference_mode():
        predicted = torch.cat([network(part).argmax(dim=1) for part in images.split(500)])
    return 100 * float((predicted == torch.from_numpy(held_out.labels)).double().mean())


def lines(folder: Path, train: Examples, held_out: Examples) -> Iterator[str]:
    """Yield what stands in weights/README.md."""
    denoiser = load_denoiser(folder / "diffusion.safetensors")
    clean = load_classifier(folder / "classifier.safetensors")
    images, known = (to_model(torch.from_numpy(part.images)) for part in (held_out, train))
    yield f"The classifier has {100 * accuracy(clean, held_out):.1f}% of the {len(held_out):,} held-out images right."
    yield ""
    yield "| sigma | error in one step | linear filter's | Carlini et al. | trained on denoised | trained on noise |"
    yield "|---|---|---|---|---|---|"
    for sigma in (path.stem.partition("-")[2] for path in sorted(folder.glob("noised-*"))):
        seen = noised(images, float(sigma))
        with torch.inference_mode():
            denoised = denoise(denoiser, seen, float(sigma))
        errors = [error(denoised, images), error(linear_filter(known, float(sigma))(seen), images)]
        shares = [
            right(clean, denoised, held_out),
            right(load_classifier(folder / f"denoised-{sigma}.safetensors"), denoised, held_out),
            right(load_classifier(folder / f"noised-{sigma}.safetensors"), seen, held_out),
        ]
        cells = [sigma, *(f"{value:.4f}" for value in errors), *(f"{value:.1f}%" for value in shares)]
        yield f"| {' | '.join(cells)} |"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="published weights")
    parser.add_argument("--source", type=Path, help="where the images are")
    arguments = parser.parse_args()
    dataset = made_by(arguments.folder / "diffusion.safetensors")["dataset"]
    for line in lines(arguments.folder, *training_of(dataset, arguments.source)):
        print(line)


if __name__ == "__main__":
    main()
