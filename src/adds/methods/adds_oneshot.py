"""ADDS without unguided denoising: one x0 prediction from the state at which the budget is spent."""

from adds.diffusion.reverse import Purified, one_each
from adds.diffusion.schedule import Grid, Schedule
from adds.methods.adds import guide
from adds.methods.base import Ballots, Query, Work, classify
from adds.methods.guidance import guided_steps, predict_once
from adds.methods.release import Subject
from adds.models.pipeline import Pipeline


def purify(pipeline: Pipeline, query: Query, subject: Subject) -> Purified:
    """Guide until the budget is spent, then denoise in one shot."""
    return one_each(predict_once(pipeline, guide(pipeline, query, subject)))


def vote(pipeline: Pipeline, query: Query, subject: Subject) -> Ballots:
    """Classify the one-shot image."""
    guided = guide(pipeline, query, subject)
    return guided.record_in(classify(pipeline.classifier, predict_once(pipeline, guided)), pipeline.grid)


def work(_schedule: Schedule, grid: Grid, query: Query) -> Work:
    """One more evaluation than there are guided steps."""
    return Work(guided_steps(grid, sigma=query.sigma, guidance_scale=query.guidance_scale) + 1, 1)
