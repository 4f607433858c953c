"""Freed memory is used again without asking the system for it."""

import platform
import subprocess
import sys

import pytest

PROGRAM = """
import resource
import torch
from adds.machine.memory import keep_freed_memory

def faults_of_tensors():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(20):
        torch.ones(1 << 24)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

by_default = faults_of_tensors()
keep_freed_memory()
faults_of_tensors()  # the first ones are got from the system
print(by_default, faults_of_tensors())
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="it is glibc that is told")
def test_freed_tensors_cost_no_page_faults():
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True)
    by_default, kept = map(int, done.stdout.split())
    assert kept < by_default / 10
