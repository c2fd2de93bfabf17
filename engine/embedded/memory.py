"""How much memory a server may use."""

from __future__ import annotations

import sys
from pathlib import Path


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
