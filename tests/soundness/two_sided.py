"""A simpler bound than `pair`, which must never be worse: half of alpha for the prediction, half for the runner-up.

Not in the library any more. With probability 1 - alpha / 2 the prediction has at least p_lower, with probability
1 - alpha / 2 every other class has at most p_upper: by Clopper and Pearson, at the runner-up's count.
"""

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import ndtri

from adds.certificates.binomial import Array, clopper_pearson_lower, clopper_pearson_upper


def two_sided_lead(top: ArrayLike, other: ArrayLike, trials: ArrayLike, alpha: float) -> Array:
    """Return what the bound certifies as Phi^-1(p) - Phi^-1(q); minus infinity where it abstains."""
    p_lower = clopper_pearson_lower(top, trials, alpha / 2)
    p_upper = np.minimum(clopper_pearson_upper(other, trials, alpha / 2), 1 - p_lower)
    return np.where(p_lower > p_upper, ndtri(p_lower) - ndtri(p_upper), -np.inf)


def cohen_lead(top: ArrayLike, trials: ArrayLike, alpha: float) -> Array:
    """Return what `cohen` certifies, in the same terms."""
    p_lower = clopper_pearson_lower(top, trials, alpha)
    return np.where(p_lower > 0.5, 2 * ndtri(p_lower), -np.inf)
