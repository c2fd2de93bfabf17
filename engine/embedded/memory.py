"""Memory of this machine, and the heap that a server gets of it."""

from __future__ import annotations

import sys
from pathlib import Path

from termweave.errors import TermweaveError
from termweave.support.messages import counted, sized

#: Bytes of memory of one process with 512 MB of heap (measured: 460 MB in a cluster, 650 MB alone with 1 GB of heap).
_PROCESS = 700_000_000


def total_and_available() -> tuple[int, int]:
    """Total and available memory of this machine, or of its container where that has less.

    Returns:
        ``(total, available)`` in bytes.
    """
    import psutil  # noqa: PLC0415 - 17 ms, only for starting a node and for doctor

    machine = psutil.virtual_memory()
    total, available = int(machine.total), int(machine.available)
    if sys.platform == "linux":
        for limit_file, used_file in (
            ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory.current"),
            ("/sys/fs/cgroup/memory/memory.limit_in_bytes", "/sys/fs/cgroup/memory/memory.usage_in_bytes"),
        ):
            try:
                limit, used = int(Path(limit_file).read_text()), int(Path(used_file).read_text())
            except (OSError, ValueError):  # no such control group, or "max": no limit
                continue
            if limit < total:
                total, available = limit, min(available, max(limit - used, 0))
    return total, available


def heap(count: int) -> int:
    """The heap of one process in MB: an eighth of the memory, between 512 MB and 1 GB; 512 MB if there are several processes.

    Raises:
        TermweaveError: There is too little memory.
    """
    total, available = total_and_available()
    if available < count * _PROCESS:
        raise TermweaveError(
            f"{sized(available)} of memory are free, and {counted(count, 'server process needs', 'server processes need')} {sized(count * _PROCESS)}.",
            "Close other programs, or start it with less: --heap 400.",
        )
    return 512 if count > 1 else max(512, min(1024, total // 8 // 2**20))
