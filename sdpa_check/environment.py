"""What a run was made with: the block of a record that may differ between equal runs."""

from __future__ import annotations

import os
import platform
import sys
from datetime import UTC, datetime
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np


def environment(started: datetime, seconds: float) -> dict[str, Any]:
    """Versions, machine, commit and times, for `records.Run.environment`."""
    return {
        "python": platform.python_version(),
        "numpy": np.__version__,
        "scipy": _version("scipy"),
        "blas": blas(),
        "platform": f"{platform.system()} {platform.machine()}",
        "cpu": processor(),
        "cores": os.cpu_count(),
        "git": _commit(Path(__file__).resolve().parent.parent),
        "started": started.astimezone(UTC).isoformat(timespec="seconds"),
        "seconds": round(seconds, 3),
    }


def _version(package: str) -> str:
    """The version of an installed package, which need not be imported for it.

    The folder that describes a package is named after its version, and finding it costs a hundredth
    of what `importlib.metadata` costs to import.
    """
    spec = find_spec(package)
    root = Path(spec.origin or "").parent.parent if spec else Path()
    found = [path.name.removesuffix(".dist-info") for path in root.glob(f"{package}-*.dist-info")]
    if len(found) == 1:
        return found[0].partition("-")[2]
    from importlib import metadata

    return metadata.version(package)


def blas() -> str:
    """The BLAS that numpy was built with."""
    found = np.show_config("dicts")["Build Dependencies"]["blas"]
    return f"{found.get('name')} {found.get('version')}"


def processor() -> str:
    """The processor's name; the numbers of a seed agree to the last bit on one kind only."""
    if sys.platform == "linux":
        try:
            lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
        except OSError:
            lines = []
        for line in lines:
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def _commit(root: Path) -> str | None:
    """The commit that the package's checkout is at, read from .git without running git."""
    try:
        head = (root / ".git" / "HEAD").read_text(encoding="utf-8").strip()
        if not head.startswith("ref: "):
            return head
        ref = head.removeprefix("ref: ")
        path = root / ".git" / ref
        if path.exists():
            return path.read_text(encoding="utf-8").strip()
        packed = (root / ".git" / "packed-refs").read_text(encoding="utf-8")
    except OSError:
        return None
    return next((line.split()[0] for line in packed.splitlines() if line.endswith(ref)), None)
