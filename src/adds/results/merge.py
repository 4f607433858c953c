"""Putting the counts of all jobs together: all of them, each once, and none that this configuration didn't make."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow

from adds.experiment import asks_label
from adds.registry import OPTIONS
from adds.sampling.job import KEY, RAISED_CAP, SETTING, whole_identity

COUNTED = {"label", "counts_selection", "counts_estimation", "n0", "n", "stopped", "budget_share"}
COLUMNS = {*KEY, *COUNTED, "pixels", "identity", "device_kind"}
TOLD = ("seed", "guidance_scale", *OPTIONS)
"""Columns that repeat a part of the identity, so that a refusal can say what differs."""


class ForeignCountsError(ValueError):
    """Counts that this configuration didn't make: they must be drawn again, or the configuration be put right."""


def read_counts(file: Path | str) -> pd.DataFrame:
    """Read the counts of one job."""
    try:
        counts = pd.read_parquet(file)
    except (OSError, pyarrow.ArrowException) as error:
        raise ValueError(f"{file} is not a counts file: {error}; delete it and run again") from error
    missing = COLUMNS - set(counts.columns)
    if missing:
        raise ValueError(f"{file} is not a counts file: it has no column {', '.join(sorted(missing))}")
    return counts.assign(file=str(file))


def merge_counts(
    files: Iterable[Path | str],
    images: pd.DataFrame,
    identities: Iterable[Mapping[str, Any]],
    models: Mapping[str, Mapping[str, Any]],
    sampling: Mapping[str, Any],
    *,
    partial: bool = False,
) -> pd.DataFrame:
    """Put the jobs' counts together, after checking that they are this experiment's, all of it and nothing else.

    ``images`` has a row per image (number, label, pixels); ``identities`` an entry per setting: method, sigma, votes,
    the ``identity`` of the present configuration, and the ``folders`` of its networks; ``models`` has the checksums of
    the networks by their folders; ``sampling`` says how many samples there are to be.
    Only where ``partial`` results are asked for may rows be missing.
    """
    identities = list(identities)
    counts = pd.concat([read_counts(file) for file in files], ignore_index=True)
    twice = counts[counts.duplicated(KEY, keep=False)]
    if len(twice):
        files = " and ".join(sorted(set(twice["file"]))[:2])
        raise ValueError(f"the counts of {twice[KEY].iloc[0].to_dict()} are there more than once, in {files}")
    settings = pd.DataFrame([{key: entry[key] for key in SETTING} for entry in identities]).astype({"sigma": float})
    _check_rows(counts, settings.merge(images[["number"]], how="cross"), partial=partial)
    _check_images(counts, images)
    _check_samples(counts, sampling)
    for entry in identities:
        chosen = counts[(counts[SETTING] == [entry["method"], float(entry["sigma"]), entry["votes"]]).all(axis=1)]
        if len(chosen):
            _check_identity(chosen, entry, models)
    _check_budget(counts)
    return counts.drop(columns="file").sort_values(KEY, ignore_index=True)


def _check_rows(counts: pd.DataFrame, expected: pd.DataFrame, *, partial: bool) -> None:
    both = expected[KEY].merge(counts[KEY], how="outer", indicator=True)
    wrong = both[both["_merge"].isin(["right_only"] if partial else ["left_only", "right_only"])]
    if len(wrong):
        first = wrong.iloc[0]
        what = "missing" if first["_merge"] == "left_only" else "not part of this experiment"
        raise ValueError(f"{len(wrong)} counts don't match the experiment: {first[KEY].to_dict()} is {what}")


def _check_images(counts: pd.DataFrame, images: pd.DataFrame) -> None:
    known = images.set_index("number")
    wrong = counts[counts["pixels"] != counts["number"].map(known["pixels"])]
    if len(wrong):
        raise ForeignCountsError(f"samples of other pixels than image {wrong['number'].iloc[0]} has. {_redraw(wrong)}")
    labels = counts["number"].map(known["label"]).astype("Int64")
    told = counts["label"].astype("Int64")
    wrong = counts[~((told == labels).fillna(False) | (told.isna() & labels.isna()))]
    if len(wrong):
        raise ForeignCountsError(f"image {wrong['number'].iloc[0]} was counted with another label. {_redraw(wrong)}")


def _check_samples(counts: pd.DataFrame, sampling: Mapping[str, Any]) -> None:
    """Refuse counts of another number of samples than was asked for: exactly, or at most where sampling may stop."""
    n0, n = sampling["n0"], sampling["n"]
    if sampling["mode"] == "fixed":
        wrong = counts[(counts["n0"] != n0) | (counts["n"] != n) | (counts["stopped"] != "fixed")]
    else:
        selected = counts["n0"].between(1, n0) if not asks_label(sampling) else counts["n0"] == 0
        capped = counts["stopped"].isin(["cap", RAISED_CAP]) & (counts["n"] != n)
        wrong = counts[~selected | (counts["n"] > n) | capped | (counts["stopped"] == "fixed")]
    if len(wrong):
        row = wrong.iloc[0]
        raise ForeignCountsError(
            f"{row[KEY].to_dict()} has {row['n0']} + {row['n']} samples ({row['stopped']}), this configuration wants "
            f"{n0} + {n} ({sampling['mode']}). {_redraw(wrong)}"
        )
    for stage, column in (("selection", "n0"), ("estimation", "n")):
        wrong = counts[counts[f"counts_{stage}"].map(sum) != counts[column]]
        if len(wrong):
            raise ForeignCountsError(
                f"the {stage} counts of {wrong[KEY].iloc[0].to_dict()} don't add up. {_redraw(wrong)}"
            )


def _check_identity(chosen: pd.DataFrame, entry: Mapping[str, Any], models: Mapping[str, Mapping[str, Any]]) -> None:
    """Refuse counts of one setting that were made by something else, or on two kinds of device."""
    name = f"{entry['method']} at sigma {entry['sigma']} with {entry['votes']} vote(s)"
    kinds = chosen["device_kind"].value_counts()
    if len(kinds) > 1:
        fewer = chosen[chosen["device_kind"] == kinds.index[-1]]
        raise ForeignCountsError(
            f"{name} was drawn partly on {' and partly on '.join(kinds.index)}, which round differently. "
            f"{_redraw(fewer)}"
        )
    read = {network: models[folder] for network, folder in entry["folders"].items()}
    expected = whole_identity(entry["identity"], read, str(kinds.index[0]))
    foreign = chosen[chosen["identity"] != expected["hash"]]
    if len(foreign):
        row = foreign.iloc[0]
        differ = [
            f"{key} {row[key]} instead of {entry['identity'][key]}"
            for key in TOLD
            if key in entry["identity"] and row[key] != entry["identity"][key]
        ]
        what = " and ".join(differ) or "another network, another setting or older code"
        raise ForeignCountsError(f"counts of {name} were drawn with {what}. {_redraw(foreign)}")


def _check_budget(counts: pd.DataFrame) -> None:
    over = counts[~counts["budget_share"].between(0, 1)]
    if len(over):
        raise ForeignCountsError(
            f"{over[KEY].iloc[0].to_dict()} spent {over['budget_share'].iloc[0]} of its privacy budget: it certifies "
            f"nothing. {_redraw(over)}"
        )


def _redraw(rows: pd.DataFrame) -> str:
    """Say which files these are, and which command makes them anew."""
    files = sorted(set(rows["file"]))
    more = f" and {len(files) - 3} more" if len(files) > 3 else ""
    return (
        f"They are in {', '.join(files[:3])}{more}. To make them anew, add --forcerun certify to the command that you "
        "ran (without partial): samples that fit are read, the others drawn"
    )
