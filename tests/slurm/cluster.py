"""A real Slurm on one Debian machine: a controller and two emulated nodes with four made-up GPUs each.

    python -m tests.slurm.cluster start FOLDER
    python -m tests.slurm.cluster stop FOLDER

It must run as root, with the packages munge, slurmctld, slurmd and slurm-client, and needs neither systemd nor
cgroups nor a database. The configuration has to stand in /etc/slurm, because Snakemake's plugin removes SLURM_CONF
from the environment of what it starts; one that isn't this module's own is never touched.
"""

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

ETC = Path("/etc/slurm")
MARK = "# The cluster of tests/slurm/cluster.py"
NODES = ("node1", "node2")
GPUS_PER_NODE = 4
PACKAGES = ("munged", "slurmctld", "slurmd", "sbatch")

SLURM = """\
{mark}
ClusterName=emulated
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort=16917
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
CredType=cred/munge
StateSaveLocation={folder}/state
SlurmctldPidFile={folder}/slurmctld.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdSpoolDir={folder}/spool.%n
SlurmdPidFile={folder}/%n.pid
SlurmdLogFile={folder}/%n.log
# No cgroups and no database: processes are found by their ancestors, finished jobs stay in memory.
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SwitchType=switch/none
MpiDefault=none
MailProg=/bin/true
MinJobAge=86400
SlurmdParameters=config_overrides
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
SchedulerType=sched/backfill
SchedulerParameters=batch_sched_delay=0,sched_interval=5,bf_interval=5
ReturnToService=2
SlurmdTimeout=20
KillWait=2
GresTypes=gpu
NodeName={nodes} NodeHostname={host} NodeAddr=127.0.0.1 Port=[17101-17102] CPUs=8 RealMemory=64000 Gres=gpu:{gpus}
PartitionName=gpu Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""
# A count of GPUs alone is refused: they must be distinct names of character devices.
GRES = "{mark}\nNodeName={nodes} Name=gpu File={folder}/gpu[0-{last}]\n"
# slurmd doesn't start where it finds no cgroup file system; the old plugin never looks.
CGROUP = "{mark}\nCgroupPlugin=cgroup/v1\n"


def missing() -> str | None:
    """Say why the cluster can't be started here, or None."""
    if os.geteuid() != 0:
        return "Slurm's daemons need root"
    absent = [program for program in PACKAGES if shutil.which(program) is None]
    if absent:
        return f"{', '.join(absent)} not installed: apt-get install munge slurmctld slurmd slurm-client"
    configuration = ETC / "slurm.conf"
    if configuration.exists() and not configuration.read_text().startswith(MARK):
        return f"{configuration} is another cluster's"
    return None


def start(folder: Path) -> None:
    """Start the controller and both nodes, with their state in ``folder``, and wait until they are idle."""
    (folder / "state").mkdir(parents=True, exist_ok=True)
    ETC.mkdir(exist_ok=True)
    values = {
        "mark": MARK,
        "host": socket.gethostname().split(".")[0],
        "folder": folder,
        "nodes": "node[1-2]",
        "gpus": GPUS_PER_NODE,
        "last": GPUS_PER_NODE - 1,
    }
    for name, text in (("slurm", SLURM), ("gres", GRES), ("cgroup", CGROUP)):
        (ETC / f"{name}.conf").write_text(text.format(**values))
    for number in range(GPUS_PER_NODE):
        (folder / f"gpu{number}").unlink(missing_ok=True)
        (folder / f"gpu{number}").symlink_to("/dev/null")
    if subprocess.run(["munge", "-n"], capture_output=True, check=False).returncode:
        start_munge()
    subprocess.run(["slurmctld", "-c"], check=True)
    for node in NODES:
        start_node(node)
    deadline = time.monotonic() + 60
    while output("sinfo", "-h", "-t", "idle", "-o", "%D") != "2":
        if time.monotonic() > deadline:
            raise RuntimeError("Slurm did not come up: " + (folder / "slurmctld.log").read_text()[-2000:])
        time.sleep(0.2)


def start_munge() -> None:
    key = Path("/etc/munge/munge.key")
    if not key.exists():
        key.write_bytes(os.urandom(1024))
        key.chmod(0o400)
        shutil.chown(key, "munge", "munge")
    Path("/run/munge").mkdir(exist_ok=True)
    shutil.chown("/run/munge", "munge", "munge")
    as_munge = ["setpriv", "--reuid=munge", "--regid=munge", "--clear-groups"]
    subprocess.run([*as_munge, shutil.which("munged"), "--pid-file=/run/munge/munged.pid"], check=True)


def start_node(node: str) -> None:
    (Path(f"{spool(node)}")).mkdir(exist_ok=True)
    subprocess.run(["slurmd", "-N", node], check=True)


def spool(node: str) -> Path:
    folder = next(
        line.removeprefix("StateSaveLocation=").removesuffix("/state")
        for line in (ETC / "slurm.conf").read_text().splitlines()
        if line.startswith("StateSaveLocation=")
    )
    return Path(folder) / f"spool.{node}"


def kill_node(node: str) -> None:
    """Lose a node as in a power cut: its daemon, its job steps and their processes die at once."""
    jobs = {job for job, state, where, _ in queue() if where == node and state == "RUNNING"}
    daemon = int((spool(node).parent / f"{node}.pid").read_text())
    for pid in (daemon, *(pid for job in jobs for pid in processes(job))):
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue


def queue() -> list[tuple[str, str, str, str]]:
    """Return job id, state, node and comment (rule and wildcards) of all jobs, finished ones included."""
    lines = output("squeue", "-h", "-t", "all", "-o", "%A|%T|%N|%k").splitlines()
    return [tuple(line.split("|", 3)) for line in lines]


def processes(job: str) -> list[int]:
    """Return the processes of a job and of its step daemons."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            environment = (folder / "environ").read_bytes().split(b"\0")
            command = (folder / "cmdline").read_bytes()
        except OSError:
            continue
        if f"SLURM_JOB_ID={job}".encode() in environment or command.startswith(f"slurmstepd: [{job}.".encode()):
            found.append(int(folder.name))
    return found


def output(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    return done.stdout.strip()


def stop(folder: Path) -> None:
    """Cancel all jobs and stop what `start` started."""
    subprocess.run(["scancel", "-u", "root"], check=False, capture_output=True)
    time.sleep(1)
    for name in (*(f"{node}.pid" for node in NODES), "slurmctld.pid"):
        try:
            os.kill(int((folder / name).read_text()), signal.SIGTERM)
        except (OSError, ValueError):
            continue
    time.sleep(1)
    for name in ("slurm", "gres", "cgroup"):
        (ETC / f"{name}.conf").unlink(missing_ok=True)


if __name__ == "__main__":
    problem = missing()
    if problem:
        sys.exit(problem)
    {"start": start, "stop": stop}[sys.argv[1]](Path(sys.argv[2]).resolve())
