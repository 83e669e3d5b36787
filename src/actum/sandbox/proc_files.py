"""The files of a sandbox's /proc besides its own processes: made by us, all constant.

The kernel's own files there describe the whole host: its load, memory and devices, and its other
users' activity. A sandbox covers all of them (`jail/proc.c`). The files that ordinary programs read
are replaced by these texts, which the spawner makes once. They hold only what a tool can learn by
an allowed call anyway (CPUID, sysinfo, uname, CLOCK_BOOTTIME), and no value that changes.

Deliberately absent: random/uuid, because a constant would repeat, and random/boot_id.
"""

from __future__ import annotations

import os
import time

#: Of each processor. Not: microcode, bugs, power management.
_PROCESSOR_FIELDS = (
    *("processor", "vendor_id", "cpu family", "model", "model name", "stepping", "cpu MHz"),
    *("cache size", "physical id", "siblings", "core id", "cpu cores", "fpu", "cpuid level"),
    *("flags", "clflush size", "cache_alignment", "address sizes"),
)
#: Below /proc/sys, copied from the host.
_SETTINGS = (
    *("kernel/cap_last_cap", "kernel/ngroups_max", "kernel/pid_max", "kernel/threads-max"),
    *("vm/max_map_count", "vm/overcommit_memory", "net/core/somaxconn"),
    *("fs/file-max", "fs/nr_open", "fs/pipe-max-size"),
)
_FILE_SYSTEMS = "nodev\tproc\nnodev\ttmpfs\nnodev\toverlay\n\text4\n"
_NOTHING_IN_KB = (
    *("Buffers", "Cached", "SwapCached", "Active", "Inactive", "SwapTotal", "SwapFree", "Dirty"),
    *("Writeback", "AnonPages", "Mapped", "Shmem", "Slab", "SReclaimable", "SUnreclaim"),
    *("KernelStack", "PageTables", "Committed_AS", "VmallocUsed"),
)
_COUNTERS = (
    *("nr_free_pages", "pgpgin", "pgpgout", "pswpin", "pswpout", "pgalloc_normal", "pgfree"),
    *("pgfault", "pgmajfault"),
)


def texts() -> dict[str, str]:
    """Paths below /proc -> content."""
    system = os.uname()
    # net/core is missing in a network namespace that does not own it.
    settings = {name: _read(f"/proc/sys/{name}") for name in _SETTINGS}
    settings |= {
        "kernel/ostype": f"{system.sysname}\n",
        "kernel/osrelease": f"{system.release}\n",
        "kernel/version": f"{system.version}\n",
        "kernel/hostname": "actum\n",
        "crypto/fips_enabled": "0\n",
    }
    processors = _processors()
    return {
        "cpuinfo": "\n".join(processors),
        "meminfo": _memory(),
        "stat": _statistics(len(processors)),
        "uptime": f"{time.clock_gettime(time.CLOCK_BOOTTIME):.2f} 0.00\n",
        "loadavg": "0.00 0.00 0.00 1/1 1\n",
        "version": f"{system.sysname} version {system.release} {system.version}\n",
        "filesystems": _FILE_SYSTEMS,
        "vmstat": "".join(f"{name} 0\n" for name in _COUNTERS),
        **{f"sys/{name}": text for name, text in settings.items() if text},
    }


def _read(path: str) -> str:
    try:
        with open(path) as file:
            return file.read()
    except FileNotFoundError:
        return ""


def _processors() -> list[str]:
    """The text of each processor."""
    found = []
    for processor in _read("/proc/cpuinfo").rstrip("\n").split("\n\n"):
        lines = [f"{line}\n" for line in processor.split("\n")]
        found.append("".join(line for line in lines if _name(line) in _PROCESSOR_FIELDS))
    return found


def _name(line: str) -> str:
    return line.partition(":")[0].strip()


def _memory() -> str:
    """All memory shown as free; a tool's own limit is in its contract."""
    total = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 1024
    sizes = dict.fromkeys(("MemTotal", "MemFree", "MemAvailable"), total)
    sizes |= dict.fromkeys(_NOTHING_IN_KB, 0)
    sizes |= {"CommitLimit": total, "VmallocTotal": 2**45 // 1024, "Hugepagesize": 2048}
    lines = [f"{name + ':':<16}{size:>8} kB\n" for name, size in sizes.items()]
    return "".join([*lines, "HugePages_Total:       0\nHugePages_Free:        0\n"])


def _statistics(processors: int) -> str:
    booted = int(time.time() - time.clock_gettime(time.CLOCK_BOOTTIME))
    times = " 0" * 10
    lines = [f"cpu {times}", *(f"cpu{number}{times}" for number in range(processors))]
    lines += ["intr 0", "ctxt 0", f"btime {booted}", "processes 1", "procs_running 1"]
    return "\n".join([*lines, "procs_blocked 0", "softirq 0\n"])
