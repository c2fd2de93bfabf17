"""Memory of this machine, and the heap that a server gets of it."""

from __future__ import annotations

import sys
from pathlib import Path

from termweave.errors import TermweaveError
from termweave.support.messages import counted, sized

#: Bytes of memory of one process with 512 MB of heap (measured: 460 MB in a cluster, 650 MB alone with 1 GB of heap).
_PROCESS = 700_000_000
#: The least heap that is chosen, in MB.
_LEAST = 512
#: Files of a control group, of version 2 and of version 1: its limit, its use, and what its use consists of.
_GROUPS = (
    ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory.current", "/sys/fs/cgroup/memory.stat"),
    (
        "/sys/fs/cgroup/memory/memory.limit_in_bytes",
        "/sys/fs/cgroup/memory/memory.usage_in_bytes",
        "/sys/fs/cgroup/memory/memory.stat",
    ),
)


def total_and_available() -> tuple[int, int]:
    """Total and available memory of this machine, or of its container where that has less.

    Returns:
        ``(total, available)`` in bytes.
    """
    import psutil  # noqa: PLC0415 - 17 ms, only for starting a node and for doctor

    machine = psutil.virtual_memory()
    total, available = int(machine.total), int(machine.available)
    if sys.platform == "linux":
        for limit_file, used_file, parts_file in _GROUPS:
            try:
                limit, used = int(Path(limit_file).read_text()), int(Path(used_file).read_text())
                parts = dict(line.split() for line in Path(parts_file).read_text().splitlines())
                # The page cache counts as used, and the kernel gives it up when a process needs memory.
                prefix = "total_" if "total_inactive_file" in parts else ""
                used -= sum(int(parts[f"{prefix}{name}"]) for name in ("active_file", "inactive_file"))
            except (OSError, ValueError, KeyError):  # no such control group, or "max": no limit
                continue
            if limit < total:
                total, available = limit, min(available, max(limit - used, 0))
    return total, available


def heap(count: int, last: int = 0) -> int:
    """The heap of one process in MB: an eighth of the memory, between 512 MB and 1 GB; 512 MB if there are several processes.

    Args:
        count: Processes that are to be started.
        last: The heap of the last start, which is kept; 0: there was none. One below 512 was chosen because there is little memory.

    Raises:
        TermweaveError: There is too little memory.
    """
    total, available = total_and_available()
    if available < count * _PROCESS and not 0 < last < _LEAST:
        raise TermweaveError(
            f"{sized(available)} of memory are free, and {counted(count, 'server process needs', 'server processes need')} {sized(count * _PROCESS)}.",
            "Close other programs, or start it with less: --heap 400.",
        )
    return last or (_LEAST if count > 1 else max(_LEAST, min(1024, total // 8 // 2**20)))
