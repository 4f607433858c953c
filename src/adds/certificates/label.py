"""The label's question: whether the smoothed classifier is right, its label having more than half of the probability.

A benchmark asks it, not a user: it needs the label. The label is a class that is fixed in advance, so no samples are
spent on selecting one. The answer has no radius and no prediction, and a "no" doesn't tell a wrong class from a close
call.
"""

import math

from adds.certificates.binomial import clopper_pearson_lower, log_evidence_above


def label_has_majority(successes: int, trials: int, alpha: float, *, at_fixed_cap: bool) -> bool:
    """Tell whether p_label > 1/2 is proved; wrongly so with probability at most alpha.

    Half of alpha is the evidence's, at any look. The other half is Clopper and Pearson's, ``at_fixed_cap``: at the one
    number of samples that was fixed as the most before the first was drawn. A cap that was raised afterwards has the
    evidence only, because testing at caps in turn would spend the second half again and again.
    """
    if trials == 0:
        return False
    evidence = float(log_evidence_above(0.5, successes, trials)) >= -math.log(alpha / 2)
    return evidence or (at_fixed_cap and float(clopper_pearson_lower(successes, trials, alpha / 2)) > 0.5)
