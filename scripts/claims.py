"""Test every claim of the paper on the results, and write the verdicts."""

from pathlib import Path
from typing import Any

import pandas as pd
from bootstrap import configure_logging

from adds.diffusion.schedule import Schedule, evenly_spaced
from adds.results.claims.claim import read_claims
from adds.results.claims.measures import measure
from adds.results.claims.show import write_claims
from adds.results.claims.verdict import Printed, evaluate


def main(inputs: Any, params: dict[str, Any], stem: Path) -> None:
    counts, detail = pd.read_parquet(inputs.counts), inputs.get("detail")
    schedule = Schedule.named(params["schedule"], params["timesteps"])
    among = evenly_spaced(params["steps"], len(schedule)) if params["start"] == "grid" else None
    measured = measure(
        counts,
        pd.read_parquet(inputs.certificates),
        starts={float(sigma): schedule.first_as_noisy_as(sigma, among) for sigma in counts["sigma"].unique()},
        questions=params["questions"],
        detail=pd.read_parquet(detail) if detail else None,
    )
    published = Printed(pd.read_csv(inputs.published))
    claims, contrasts = evaluate(read_claims(inputs.claims), measured, published=published)
    write_claims(claims, contrasts, stem=stem)


if __name__ == "__main__":
    configure_logging(snakemake.log[0], "claims")
    main(snakemake.input, snakemake.params.claims, Path(snakemake.output.page).with_suffix(""))
