"""ADDS: guided denoising under a privacy filter (Algorithm 2), then unguided denoising with votes."""

from collections.abc import Callable
from dataclasses import dataclass, replace

from torch import Tensor

from adds.diffusion.reverse import Continuations, Purified, reverse_step
from adds.diffusion.schedule import Grid, Schedule, to_model
from adds.methods.base import Ballots, Query, Work, poll
from adds.methods.guidance import Guided, PaidStep, guided_steps, walk
from adds.methods.release import Subject, image_of
from adds.models.pipeline import Pipeline


@dataclass(frozen=True)
class GuidedStep:
    """One guided step as it was really taken, for audits and for the figure of the budget.

    ``samples`` are the numbers of the trajectories that are still guided; tensors have one row for each.
    """

    step: int
    samples: Tensor
    x_t: Tensor
    x0: Tensor
    scale: Tensor
    std: Tensor
    x_prev: Tensor
    spent: Tensor


Observer = Callable[[GuidedStep], None]


def guide(pipeline: Pipeline, query: Query, subject: Subject, observe: Observer | None = None) -> Guided:
    """Algorithm 2 (Clean Image Guided Denoising) up to the step at which the budget is spent.

    Start from x_T ~ N(0, I). At each step move the predicted x0 towards the image,
    x0 <- x0 + s (x - x0), with the scale s that Algorithm 1 allows each coordinate, and take the step.

    Whatever the networks compute in, states and noise are float32, and the image enters in float64: the guided mean is
    off by float64's rounding only, which `covered_radius` bounds.
    """
    denoiser, grid, noise = pipeline.denoiser, pipeline.grid, subject.noise
    image = to_model(subject.image.to(denoiser.device).double())
    samples = subject.samples.to(denoiser.device)

    def take(paid: PaidStep) -> Tensor:
        x0, seen = paid.x0.double(), samples[paid.active]
        x_prev = reverse_step(
            x_t=paid.x_t,
            x0=x0 + paid.scale.double() * (image_of(image, seen) - x0),
            std=paid.std,
            normal=noise.normal(subject.shape, samples=seen, timestep=grid.timesteps[paid.step]),
            grid=grid,
            step=paid.step,
        )
        if observe is not None:
            observe(GuidedStep(paid.step, seen, paid.x_t, paid.x0, paid.scale, paid.std, x_prev, paid.spent))
        return x_prev

    start = noise.normal(subject.shape, samples=samples, timestep=len(denoiser.schedule))
    return walk(pipeline, query, start, take)


def continuations(pipeline: Pipeline, subject: Subject, guided: Guided) -> Continuations:
    """Return the unguided continuations of the guided trajectories.

    They see the image only through the state they start from, so they are post-processing and cost no budget; K
    guided trajectories would cost it K times.
    """
    return Continuations(
        pipeline.denoiser,
        pipeline.grid,
        states=guided.states,
        steps=guided.steps,
        samples=subject.samples.to(guided.states.device),
        noise=subject.noise,
    )


def purify(pipeline: Pipeline, query: Query, subject: Subject) -> Purified:
    """Run ADDS with all K votes: guided until the budget is spent, then unguided to the end."""
    return continuations(pipeline, subject, guide(pipeline, query, subject)).run(query.all_votes)


def vote(pipeline: Pipeline, query: Query, subject: Subject) -> Ballots:
    """Classify the image at the end of every continuation that can change the outcome, and where they part."""
    guided = guide(pipeline, query, subject)
    unguided = continuations(pipeline, subject, guided)
    ballots = poll(pipeline, query, len(subject.samples), unguided.run)
    oneshot = pipeline.classifier.predict(unguided.first)
    return guided.record_in(replace(ballots, contained={"adds_oneshot": oneshot}), pipeline.grid)


def work(_schedule: Schedule, grid: Grid, query: Query) -> Work:
    """Votes share all steps up to the first evaluation after they part."""
    guided = guided_steps(grid, sigma=query.sigma, guidance_scale=query.guidance_scale)
    left = len(grid) - 1 - guided
    return Work(guided + 1 + query.votes * left, query.votes if left else 1)
