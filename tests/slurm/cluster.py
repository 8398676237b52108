"""A real Slurm on loopback for tests: 16 nodes of 8 pretended GPUs, with munge and accounting of its own, without systemd.

    python -m tests.slurm.cluster up FOLDER      starts it and prints how to reach it
    python -m tests.slurm.cluster down FOLDER    ends exactly the processes that were started

Everything lives in one folder: keys, sockets, state, logs, pids. Ports are free ones. Nothing of the host's own Slurm, munge or
MariaDB is touched. It needs root, because slurmd starts jobs as their users and device files are made.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from tests import debian

PROGRAMS = ("slurmctld", "slurmd", "slurmdbd", "munged", "mariadbd", "mariadb-install-db", "sbatch", "sacctmgr")
PACKAGES = ("slurmctld", "slurmd", "slurmdbd", "slurm-client", "munge", "mariadb-server")

QUIET = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}


class CannotStartError(RuntimeError):
    """Slurm could not be brought up; the message holds the ends of the logs."""


def install() -> str | None:
    """Install Slurm from the distribution's packages; what to say where that fails."""
    if os.geteuid() != 0:
        return "a real Slurm needs root"
    return debian.install(PACKAGES, PROGRAMS, "Slurm")


@contextlib.contextmanager
def shared(place: Path, prepare: Callable[[SlurmCluster], None]) -> Iterator[SlurmCluster]:
    """One cluster for all processes that ask for that of a folder: started by the first of them, ended by the last.

    What a run that was killed has left behind is ended first. `prepare` is called once the cluster is up.
    """
    place.mkdir(exist_ok=True)
    place.chmod(0o755)
    cluster = SlurmCluster(place / "slurm")
    with (place / "users").open("w") as users:  # locked by everybody who uses it, so that its last user knows
        with debian.only_one(place / "change"):
            if _is_alone(users):
                cluster.down()
                shutil.rmtree(cluster.folder, ignore_errors=True)
                cluster.up()
                prepare(cluster)
            fcntl.flock(users, fcntl.LOCK_SH)
        try:
            yield cluster
        finally:
            with debian.only_one(place / "change"):
                if _is_alone(users):
                    cluster.down()
                    shutil.rmtree(cluster.folder, ignore_errors=True)


def _is_alone(users: IO[str]) -> bool:
    """Whether nobody else holds the lock; it is held alone then."""
    try:
        fcntl.flock(users, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


@dataclass(slots=True)
class SlurmCluster:
    """One cluster in one folder.

    `nodes` nodes named n01.. with `gpus` GPUs each, `per_leaf` of them under a leaf switch. With `accounting` there are
    MariaDB and slurmdbd, and with them associations, limits and TRES of GPUs.
    """

    folder: Path
    nodes: int = 16
    gpus: int = 8
    per_leaf: int = 4
    accounting: bool = True
    ports: list[int] = field(default_factory=list)

    @property
    def conf(self) -> Path:
        """The path of slurm.conf: `SLURM_CONF` for every command."""
        return self.folder / "etc" / "slurm.conf"

    @property
    def environment(self) -> dict[str, str]:
        """The environment in which Slurm's commands speak to this cluster."""
        return os.environ | {"SLURM_CONF": str(self.conf)}

    @property
    def names(self) -> list[str]:
        """All nodes."""
        return [f"n{number:02d}" for number in range(1, self.nodes + 1)]

    def run(self, *command: str, check: bool = True, timeout: float = 120.0, text: str | None = None) -> str:
        """Run a command of Slurm and give what it printed."""
        done = subprocess.run(
            command, env=self.environment, capture_output=True, text=True, check=False, timeout=timeout, input=text
        )
        if check and done.returncode:
            raise RuntimeError(f"{' '.join(command)}: {done.stdout}{done.stderr}")
        return done.stdout

    # starting

    def up(self) -> None:
        """Start everything and wait until all nodes are idle."""
        for name in ("etc", "munge", "state", "spool", "log", "run/munge", "dev", "mysql", "run/mysql"):
            (self.folder / name).mkdir(parents=True, exist_ok=True)
        self.folder.chmod(0o755)
        self.ports = _free_ports(3 + self.nodes)
        try:
            self._write_files()
            self._start_munge()
            if self.accounting:
                self._start_accounting()
            self.start_controller()
            for name in self.names:
                self.start_node(name)
            self.wait(lambda: self.idle_nodes() == set(self.names), 180, "nodes")
        except BaseException:
            self.down()
            raise

    def start_controller(self) -> None:
        """Start slurmctld and wait until it answers."""
        self._daemon("slurmctld", ["slurmctld", "-D"])
        self.wait(lambda: "is UP" in self.run("scontrol", "ping", check=False, timeout=10), 120, "slurmctld")

    def start_node(self, name: str) -> None:
        """Start the slurmd of a node."""
        (self.folder / "spool" / name).mkdir(exist_ok=True)
        self._daemon(f"slurmd-{name}", ["slurmd", "-D", "-N", name])

    def idle_nodes(self) -> set[str]:
        """Nodes that are idle and answer."""
        return set(self.run("sinfo", "-h", "-N", "-t", "idle", "-o", "%N", check=False, timeout=10).split())

    def wait_until_saved(self) -> None:
        """Wait until slurmctld has saved what it knows of jobs now."""
        saved, now = self.folder / "state" / "job_state", time.time()
        self.wait(lambda: saved.exists() and saved.stat().st_mtime > now, 60, "the saved state")

    def add_accounts(self, shares: dict[str, int], user: str = "root") -> None:
        """Give each account of a flat tree its share, and `user` an association in it."""
        lines = [
            line
            for account, share in shares.items()
            for line in (
                f"add account {account} fairshare={share} organization=test description=t",
                f"add user {user} account={account}",
            )
        ]
        self.run("sacctmgr", "-i", "-Q", text="\n".join([*lines, "quit", ""]))  # one process: each takes half a second

    # ending

    def kill(self, name: str) -> None:
        """End one daemon with SIGKILL."""
        pid = self._pids()[name]
        os.kill(pid, signal.SIGKILL)
        self.wait(lambda: not _lives(pid, name), 10, f"end of {name}")

    def down(self) -> None:
        """Cancel all jobs, then end the daemons that were started here and no others."""
        pids = self._pids()
        if _lives(pids.get("slurmctld", 0), "slurmctld"):
            with contextlib.suppress(subprocess.TimeoutExpired, RuntimeError):
                jobs = self.run("squeue", "-h", "-o", "%A", check=False, timeout=10).split()
                if jobs:
                    self.run("scancel", "--quiet", *sorted(set(jobs)), check=False, timeout=20)
                self.wait(lambda: not self.run("squeue", "-h", "-t", "R,CG", "-o", "%A", check=False, timeout=10), 15, "jobs")
        for force in (signal.SIGTERM, signal.SIGKILL):
            for name, pid in reversed(list(pids.items())):
                if _lives(pid, name):
                    os.kill(pid, force)
            end = time.monotonic() + 10
            while time.monotonic() < end and any(_lives(pid, name) for name, pid in pids.items()):
                time.sleep(0.1)
        (self.folder / "pids").unlink(missing_ok=True)

    def wait(self, ready: Callable[[], bool], seconds: float, what: str) -> None:
        """Poll until something holds."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            with contextlib.suppress(subprocess.TimeoutExpired):
                if ready():
                    return
            time.sleep(0.1)
        raise CannotStartError(f"{what}: not within {seconds} s\n{self.log_ends()}")

    def log_ends(self) -> str:
        """The last lines of each log."""
        logs = sorted((self.folder / "log").glob("*"))
        return "\n".join(
            f"== {path.name}\n" + "\n".join(path.read_text(errors="replace").splitlines()[-5:]) for path in logs[:8]
        )

    # parts

    def _daemon(self, name: str, command: Sequence[str]) -> int:
        with (self.folder / "log" / f"{name}.out").open("ab") as log:
            process = subprocess.Popen(
                command, env=self.environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
            )
        self._note(name, process.pid)
        return process.pid

    def _note(self, name: str, pid: int) -> None:
        with (self.folder / "pids").open("a") as handle:
            handle.write(f"{name} {pid}\n")

    def _pids(self) -> dict[str, int]:
        path = self.folder / "pids"
        lines = path.read_text().splitlines() if path.exists() else []
        return {name: int(pid) for name, pid in (line.split() for line in lines)}

    @property
    def _munge_socket(self) -> Path:
        return self.folder / "run" / "munge" / "socket"

    def _start_munge(self) -> None:
        key = self.folder / "munge" / "key"
        key.write_bytes(os.urandom(1024))
        key.chmod(0o600)
        (self.folder / "munge").chmod(0o700)
        (self.folder / "run").chmod(0o755)
        (self.folder / "run" / "munge").chmod(0o755)
        files = {"key-file": key, "socket": self._munge_socket}
        files |= {"pid-file": self.folder / "run/munge/pid", "log-file": self.folder / "munge/log"}
        files |= {"seed-file": self.folder / "munge/seed"}
        options = [f"--{name}={path}" for name, path in files.items()]
        self._daemon("munged", ["munged", "--foreground", "--force", *options])
        self.wait(self._munge_socket.exists, 60, "munged")

    def _start_accounting(self) -> None:
        data, sock = self.folder / "mysql" / "data", self.folder / "run" / "mysql" / "socket"
        for path in (self.folder / "mysql", self.folder / "run" / "mysql"):
            shutil.chown(path, "mysql")
        common = ["--no-defaults", "--user=mysql", f"--datadir={data}"]
        small = ["--innodb-buffer-pool-size=64M", "--innodb-lock-wait-timeout=900", "--innodb-flush-log-at-trx-commit=0"]
        small += ["--innodb-log-file-size=8M", "--innodb-flush-method=nosync", "--performance-schema=off"]
        make = ["mariadb-install-db", *common, *small, "--auth-root-authentication-method=socket", "--skip-test-db"]
        subprocess.run(make, check=True, timeout=300, **QUIET)  # type: ignore[call-overload]
        where = [f"--socket={sock}", f"--pid-file={self.folder / 'run/mysql/pid'}"]
        net = ["--bind-address=127.0.0.1", f"--port={self.ports[2]}", "--skip-log-bin"]
        self._daemon("mariadbd", ["mariadbd", *common, *small, *where, *net])
        client = ["mariadb", "--no-defaults", "-uroot", "-S", str(sock), "-e"]
        self.wait(lambda: _succeeds([*client, "select 1"]), 180, "mariadbd")
        users = [f"create user slurm@'{host}' identified by 'slurm'" for host in ("127.0.0.1", "localhost")]
        grants = [f"grant all on slurm_acct_db.* to slurm@'{host}'" for host in ("127.0.0.1", "localhost")]
        self.run(*client, "; ".join([*users, "create database slurm_acct_db", *grants]))
        self._daemon("slurmdbd", ["slurmdbd", "-D"])
        self.wait(lambda: _succeeds(["sacctmgr", "-n", "show", "cluster"], self.environment), 180, "slurmdbd")
        self.run("sacctmgr", "-i", "add", "cluster", "loopback")

    def _write_files(self) -> None:
        etc = self.folder / "etc"
        for number in range(self.gpus):
            device = self.folder / "dev" / f"gpu{number}"
            if not device.exists():
                os.mknod(device, 0o20666, os.makedev(195, number))  # looked at, never opened
        self.conf.write_text(self._slurm_conf())
        (etc / "gres.conf").write_text(
            f"AutoDetect=off\nNodeName={self._all} Name=gpu Type=h100 File={self.folder}/dev/gpu[0-{self.gpus - 1}]\n"
        )
        (etc / "topology.conf").write_text(self._topology())
        (etc / "job_submit.lua").write_text(HOLD_GPU_JOBS)
        if self.accounting:
            (etc / "slurmdbd.conf").write_text(self._slurmdbd_conf())
            (etc / "slurmdbd.conf").chmod(0o600)

    @property
    def _all(self) -> str:
        return f"n[01-{self.nodes:02d}]"

    def _topology(self) -> str:
        leaves = [self.names[start : start + self.per_leaf] for start in range(0, self.nodes, self.per_leaf)]
        lines = [f"SwitchName=leaf{number} Nodes={','.join(names)}" for number, names in enumerate(leaves, start=1)]
        return "\n".join([*lines, f"SwitchName=spine Switches=leaf[1-{len(leaves)}]"]) + "\n"

    def _slurm_conf(self) -> str:
        host, folder = socket.gethostname().split(".")[0], self.folder
        lines = [
            *("ClusterName=loopback", f"SlurmctldHost={host}(127.0.0.1)", f"SlurmctldPort={self.ports[0]}"),
            *("SlurmUser=root", "SlurmdUser=root", "AuthType=auth/munge", "CredType=cred/munge"),
            f"AuthInfo=socket={self._munge_socket},cred_expire=5",
            f"StateSaveLocation={folder}/state",
            f"SlurmdSpoolDir={folder}/spool/%n",
            f"SlurmctldPidFile={folder}/run/slurmctld.pid",
            f"SlurmdPidFile={folder}/run/slurmd-%n.pid",
            f"SlurmctldLogFile={folder}/log/slurmctld.log",
            f"SlurmdLogFile={folder}/log/slurmd-%n.log",
            *("SlurmctldDebug=info", "SlurmdDebug=error"),
            *("ProctrackType=proctrack/linuxproc", "TaskPlugin=task/none", "JobAcctGatherType=jobacct_gather/none"),
            *("SwitchType=switch/none", "MpiDefault=none", "SlurmdParameters=config_overrides"),
            *("ReturnToService=1", "SlurmdTimeout=300", "SlurmctldTimeout=30", "InactiveLimit=0", "HealthCheckInterval=0"),
            *("KillWait=5", "MinJobAge=300", "MessageTimeout=20", "JobRequeue=1", "MaxArraySize=1001"),
            *("SchedulerType=sched/builtin", "PreemptType=preempt/none", "TopologyPlugin=topology/tree"),
            *("SelectType=select/cons_tres", "SelectTypeParameters=CR_Core_Memory", "DefMemPerCPU=1024"),
            "SchedulerParameters=defer,sched_interval=5,sched_min_interval=0,batch_sched_delay=0",
            *("GresTypes=gpu", "JobSubmitPlugins=lua"),
            *self._accounting_lines(),
        ]
        half = 32
        lines += [
            f"NodeName={name} NodeHostname={host} NodeAddr=127.0.0.1 Port={port} CPUs={2 * half} Boards=1 SocketsPerBoard=2"
            f" CoresPerSocket={half} ThreadsPerCore=1 RealMemory=1024000 Gres=gpu:h100:{self.gpus} Feature=h100,ib"
            for name, port in zip(self.names, self.ports[3:], strict=True)
        ]
        return "\n".join([*lines, f"PartitionName=batch Nodes={self._all} Default=YES MaxTime=7-0 State=UP"]) + "\n"

    def _accounting_lines(self) -> list[str]:
        if not self.accounting:
            return ["AccountingStorageType=accounting_storage/none", "PriorityType=priority/basic"]
        return [
            *("AccountingStorageType=accounting_storage/slurmdbd", "AccountingStorageTRES=gres/gpu,gres/gpu:h100"),
            *("AccountingStorageHost=127.0.0.1", f"AccountingStoragePort={self.ports[1]}"),
            f"AccountingStoragePass={self._munge_socket}",
            *("AccountingStorageEnforce=associations,limits,qos", "AccountingStoreFlags=job_comment"),
            *("PriorityType=priority/multifactor", "PriorityWeightFairshare=1000"),
        ]

    def _slurmdbd_conf(self) -> str:
        host, folder = socket.gethostname().split(".")[0], self.folder
        return "\n".join(
            [
                *("AuthType=auth/munge", f"AuthInfo=socket={self._munge_socket}", f"DbdHost={host}", "DbdAddr=127.0.0.1"),
                *(f"DbdPort={self.ports[1]}", "SlurmUser=root", "DebugLevel=info", f"LogFile={folder}/log/slurmdbd.log"),
                *(f"PidFile={folder}/run/slurmdbd.pid", "StorageType=accounting_storage/mysql", "StorageHost=127.0.0.1"),
                *(f"StoragePort={self.ports[2]}", "StorageUser=slurm", "StoragePass=slurm", "StorageLoc=slurm_acct_db", ""),
            ]
        )


HOLD_GPU_JOBS = """-- Work that asks for GPUs enters held, and only root may release it or choose its nodes.
local function asks_for_gpus(job)
  local wishes = {job.tres_per_node or "", job.tres_per_job or "", job.tres_per_task or "", job.tres_per_socket or ""}
  for _, wish in ipairs(wishes) do
    if string.find(wish, "gpu") then return true end
  end
  return false
end
function slurm_job_submit(job, partitions, uid)
  if asks_for_gpus(job) then job.priority = 0 end
  return slurm.SUCCESS
end
function slurm_job_modify(job, record, partitions, uid)
  if uid == 0 then return slurm.SUCCESS end
  local releases = job.priority ~= slurm.NO_VAL and job.priority ~= 0
  if releases or job.req_nodes ~= nil then return slurm.ERROR end
  return slurm.SUCCESS
end
return slurm.SUCCESS
"""


def _free_ports(number: int) -> list[int]:
    """Ports that nobody listens on, below those that the system gives to connections: it could give one away in between."""
    found: list[int] = []
    for port in random.sample(range(20_000, 32_000), 2_000):
        with socket.socket() as item, contextlib.suppress(OSError):
            item.bind(("127.0.0.1", port))
            found.append(port)
        if len(found) == number:
            return found
    raise CannotStartError(f"{number} free ports are not to be had")


def _succeeds(command: Sequence[str], environment: dict[str, str] | None = None) -> bool:
    done = subprocess.run(command, env=environment, check=False, timeout=10, **QUIET)  # type: ignore[call-overload]
    return bool(done.returncode == 0)


def _lives(pid: int, name: str) -> bool:
    """Whether a process that was started here is still there: not ended, no zombie, and the same program."""
    try:
        command = Path(f"/proc/{pid}/comm").read_text().strip()
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return bool(command) and name.startswith(command) and state != "Z"


if __name__ == "__main__":
    verb, place = sys.argv[1], Path(sys.argv[2]).resolve()
    cluster = SlurmCluster(place, accounting=os.environ.get("ACCOUNTING", "1") == "1")
    if verb == "up":
        if reason := install():
            sys.exit(reason)
        cluster.up()
        print(f"export SLURM_CONF={cluster.conf}")  # noqa: T201
    else:
        cluster.down()
