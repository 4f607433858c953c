"""What every script imports first: it puts the library of this very workflow before any that is installed.

So jobs need no installed package, and never run another clone's code, whatever environment they share. The library is
beside this folder wherever the workflow is: in a clone, or in Snakemake's cache of an address.
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "src"))

from adds.machine.logs import configure_logging

__all__ = ["configure_logging"]
