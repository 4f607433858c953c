"""How a released image enters the chain of the diffusion model: at which timestep, and with whose noise."""

from torch import Tensor

from adds.diffusion.schedule import Grid, Schedule, model_sigma
from adds.methods.base import Query
from adds.methods.release import Release


def entry_timestep(schedule: Schedule, grid: Grid, query: Query, method: str) -> int:
    """Return the first timestep that is as noisy as sigma: among all (``start: exact``), or among the grid's."""
    exact = query.option(method, "start") == "exact"
    return schedule.first_as_noisy_as(query.sigma, among=None if exact else grid.timesteps)


def enter(schedule: Schedule, timestep: int, query: Query, method: str, release: Release) -> Tensor:
    """Return the state at a timestep that is as noisy as sigma: x_t = sqrt(abar_t) y.

    With ``noise: timestep`` y gets what noise it lacks of the timestep's own, so that

        x_t = sqrt(abar_t) x + N(0, (1 - abar_t) I).

    That noise is at least sigma's, and it is added by the reader: certificates are sigma's in either case.
    """
    alpha_bar = float(schedule.alphas_bar[timestep])
    state: Tensor = alpha_bar**0.5 * release.y
    if query.option(method, "noise") == "sigma":
        return state
    lacking = 1 - alpha_bar - alpha_bar * model_sigma(query.sigma) ** 2
    normal = release.noise.normal(tuple(state.shape[1:]), samples=release.samples, timestep=timestep)
    return state.add(normal, alpha=max(lacking, 0.0) ** 0.5)
