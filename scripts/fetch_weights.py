"""Download a network that the project publishes, where the workflow is at an address and not in a folder."""

import re
from pathlib import Path

from bootstrap import configure_logging

from adds.data.download import Expected, fetch

HINT = "Copy the folder weights/ of the workflow's repository into this one, or set models.source to train."


def published(listed: str, target: Path) -> Expected:
    """Return what a file must be, by the table of weights/README.md."""
    found = re.search(rf"`{re.escape(target.parent.name)}/{re.escape(target.name)}` \| ([\d,]+) \| (\w{{64}})", listed)
    if found is None:
        raise ValueError(f"{target} is none of the networks that the workflow publishes. {HINT}")
    return Expected(int(found[1].replace(",", "")), "sha256", found[2])


if __name__ == "__main__":
    configure_logging(snakemake.log[0], "fetch_weights")
    target = Path(snakemake.output[0])
    fetch([snakemake.params.url], target, published(Path(snakemake.input[0]).read_text(), target), hint=HINT)
