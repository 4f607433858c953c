"""Which design of the embedded experiment decides most claims in the time that there is.

    python -m studies.demo_design results/design --images 180

Images are those of a finished run with a fixed, larger number of samples, set aside for choices. Every design looks at
their recorded samples as it would have. Claims are tested on as many images as asked for, drawn from the run's with
repetition, several times over: the table tells the mean number of claims that are decided, and the evaluations of an
image over all sigmas by the methods that draw (Carlini's, and DensePure and ADDS with most votes). What one vote needs
beyond five, and batches that aren't full, aren't in it.
"""

import argparse
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
from tqdm import tqdm

from adds.diffusion.schedule import Schedule
from adds.registry import METHODS, Mode
from adds.results.certified import certificates
from adds.results.claims.claim import Claim, read_claims
from adds.results.claims.measures import measure
from adds.results.claims.verdict import evaluate
from adds.sampling.ledger import Classes
from adds.sampling.replay import Recorded
from adds.sampling.stopping import Rule, SampleSize

ALPHA = 0.001
COHEN, PAIR = {"bound": "cohen", "radius": 0.0}, {"bound": "pair", "radius": 0.0}


@dataclass(frozen=True)
class Design:
    """A section ``sampling``."""

    n0: int
    n: int
    chunk: int
    at_least: int = 0
    both: bool = True
    futility: float = 0.01
    mode: Mode = "sequential"

    @property
    def questions(self) -> list[dict[str, object]]:
        """What sequential sampling asks: the paper's question, and ours where ``both``."""
        return [COHEN, PAIR] if self.both else [COHEN]

    @property
    def settings(self) -> dict[str, object]:
        """The section ``sampling``."""
        stop = {"questions": self.questions, "at_least": self.at_least, "futility": self.futility}
        return {"mode": self.mode, "n0": self.n0, "n": self.n, "alpha": ALPHA, "stop": stop}

    def __str__(self) -> str:
        if self.mode == "fixed":
            return f"fixed {self.n0} + {self.n}"
        asked = "cohen and pair" if self.both else "cohen"
        given_up = f"futile below {100 * self.futility:g}%"
        return f"{asked}: {self.n0} + {self.at_least} to {self.n}, {given_up}, looks after {self.chunk}"


DESIGNS = [
    *(Design(32, n, 32, mode="fixed") for n in (64, 96, 128)),
    *(Design(32, n, 16, 32, both, 0.05) for both in (False, True) for n in (128, 192, 256, 320)),
    *(Design(32, 256, 16, 32, both, futility) for both in (False, True) for futility in (0.01, 0.1)),
    *(Design(n0, 256, 16, 32, both, 0.05) for both in (False, True) for n0 in (16, 24, 48)),
    *(Design(32, 256, 16, at_least, both, 0.05) for both in (False, True) for at_least in (16, 48, 64)),
    *(Design(32, 256, chunk, 32, both, 0.05) for both in (False, True) for chunk in (8, 32)),
]


def looked_at(predictions: Classes, classes: int, rule: Rule, every: int) -> tuple[Classes, str]:
    """Return the predictions up to where the rule stops, and why."""
    for end in range(every, len(predictions) + every, every):
        seen = predictions[:end]
        reason = rule(np.bincount(seen, minlength=classes))
        if reason is not None:
            return seen, reason
    raise ValueError("the run has fewer samples than the design")


def as_designed(counts: pd.DataFrame, recorded: Recorded, design: Design) -> pd.DataFrame:
    """Return the counts as the design would have left them."""
    size, rows = SampleSize.from_settings(design.settings), []
    for row in counts.itertuples():
        classes, chunk = len(row.counts_estimation), design.chunk
        selection = recorded(row, "selection")[: size.n0]
        chosen, _ = looked_at(selection, classes, size.selection_rule(), size.selection_look(chunk))
        about = int(np.bincount(chosen, minlength=classes).argmax())
        rule = size.estimation_rule(about, row.sigma)
        estimated, reason = looked_at(recorded(row, "estimation")[: size.n], classes, rule, chunk)
        per_sample = row.evaluations / (row.n0 + row.n)
        rows.append(
            {
                "counts_selection": np.bincount(chosen, minlength=classes).tolist(),
                "counts_estimation": np.bincount(estimated, minlength=classes).tolist(),
                "counts_first": np.bincount(estimated[: size.in_any_case(chunk)], minlength=classes).tolist(),
                "n0": len(chosen),
                "n": len(estimated),
                "stopped": reason,
                "evaluations": per_sample * (len(chosen) + len(estimated)),
            }
        )
    return counts.assign(**pd.DataFrame(rows, index=counts.index))


def draws(numbers: "pd.Series[int]", images: int, repeats: int) -> Iterator[pd.DataFrame]:
    """Yield images with repetition, each with a number of its own."""
    rng = np.random.default_rng(0)
    known = numbers.unique()
    for _ in range(repeats):
        yield pd.DataFrame({"drawn": rng.choice(known, images), "number": np.arange(images)})


def decided(
    counts: pd.DataFrame, claims: list[Claim], design: Design, images: int, repeats: int
) -> tuple[float, float, pd.Series]:
    """Return the mean numbers of claims that hold and that are contradicted, and how often each claim is decided."""
    certified = certificates(counts, alpha=ALPHA, mode=design.mode, bounds=["cohen"])
    schedule = Schedule.named("linear", 1000)
    starts = {float(sigma): schedule.first_as_noisy_as(sigma) for sigma in counts["sigma"].unique()}
    found = []
    for draw in draws(counts["number"], images, repeats):
        tables = [
            table.rename(columns={"number": "drawn"}).merge(draw, on="drawn").drop(columns="drawn")
            for table in (counts, certified)
        ]
        questions = design.questions if design.mode == "sequential" else None
        verdicts, _ = evaluate(claims, measure(*tables, starts=starts, questions=questions))
        found.append(verdicts.set_index("claim")["verdict"])
    table = pd.DataFrame(found)
    return (
        float((table == "holds").sum(axis=1).mean()),
        float((table == "contradicted").sum(axis=1).mean()),
        (table != "undecided").mean(),
    )


def main() -> None:
    """Compare the designs."""
    parser = argparse.ArgumentParser(prog="python -m studies.demo_design", description=main.__doc__)
    parser.add_argument("results", type=Path, help="a run with a fixed number of samples")
    parser.add_argument("--ledgers", type=Path, default=Path("results/ledger"))
    parser.add_argument("--images", type=int, default=180)
    parser.add_argument("--repeats", type=int, default=10)
    parser.add_argument("--claims", type=Path, default=Path("config/claims.yaml"))
    arguments = parser.parse_args()
    counts = pd.read_parquet(arguments.results / "counts.parquet")
    counts = counts[counts["method"].map(lambda name: METHODS[name].origin == "paper")].reset_index(drop=True)
    recorded, claims = Recorded(arguments.ledgers), read_claims(arguments.claims)
    print("| design | samples per image and setting | evaluations per image | hold | contradicted | decided |")
    print("|---|---|---|---|---|---|")
    for design in tqdm(DESIGNS):
        designed = as_designed(counts, recorded, design)
        leads = designed[designed["votes"].eq(5) | designed["method"].eq("carlini")]
        cost = leads["evaluations"].sum() / designed["number"].nunique()
        holds, contradicted, _ = decided(designed, claims, design, arguments.images, arguments.repeats)
        samples = (designed["n0"] + designed["n"]).mean()
        told = f"{samples:.0f} | {cost:,.0f} | {holds:.1f} | {contradicted:.1f} | {holds + contradicted:.1f}"
        print(f"| {design} | {told} |", flush=True)


if __name__ == "__main__":
    main()
