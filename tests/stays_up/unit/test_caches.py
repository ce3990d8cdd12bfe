"""Caches lie on a disk of the box itself."""

from __future__ import annotations

from pathlib import Path

import pytest

from entrypoint.caches import filesystem, network_refusal

MOUNTS = """overlay / overlay rw 0 0
/dev/nvme0n1p2 /cache ext4 rw 0 0
server:/share /cache/shared nfs4 rw 0 0
//nas/a /mnt/with\\040blank cifs rw 0 0
broken
tmpfs /cache2 tmpfs rw 0 0
"""


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/cache", "ext4"),
        ("/cache/vllm", "ext4"),
        ("/cache/shared/x", "nfs4"),
        ("/cache22", "overlay"),
        ("/mnt/with blank/x", "cifs"),
        ("/home", "overlay"),
    ],
)
def test_the_longest_mount_point_holds_a_path(path: str, kind: str) -> None:
    assert filesystem(Path(path), MOUNTS) == kind


def test_a_network_file_system_is_refused_by_name() -> None:
    refusal = network_refusal(Path("/cache/shared/kernels"), MOUNTS)
    assert refusal is not None
    assert str(refusal).startswith("CACHE_ROOT: seen /cache/shared/kernels on nfs4; expected a disk of this box")
    assert network_refusal(Path("/cache"), MOUNTS) is None
