"""How much memory there is for a server."""

from __future__ import annotations

import sys
from pathlib import Path


def total_and_available() -> tuple[int, int]:
    """Total and available memory, the limit of a container included.

    Returns:
        ``(total, available)`` in bytes.
    """
    import psutil  # noqa: PLC0415 - 17 ms, only where a node starts or doctor looks

    found = psutil.virtual_memory()
    total, available = int(found.total), int(found.available)
    if sys.platform == "linux":
        for limit, used in (
            ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory.current"),
            ("/sys/fs/cgroup/memory/memory.limit_in_bytes", "/sys/fs/cgroup/memory/memory.usage_in_bytes"),
        ):
            try:
                allowed, taken = int(Path(limit).read_text()), int(Path(used).read_text())
            except (OSError, ValueError):  # no such hierarchy, or "max"
                continue
            if allowed < total:
                total, available = allowed, min(available, max(allowed - taken, 0))
    return total, available
