"""Caches lie on a disk of the box itself, in two tiers, and boxes compare what is warm."""

from __future__ import annotations

import fcntl
import json
import os
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from core.plan import GroupPlan, Value
from core.settings import Settings
from entrypoint.boot import Boot
from entrypoint.caches import (
    KEPT,
    STAMP,
    Tiers,
    autotune_differs,
    cold_by_rank,
    filesystem,
    network_refusal,
    rows,
    served,
    state,
    sweep_locks,
    tiers,
    vllm_version,
)
from entrypoint.discovery.verify import Members
from entrypoint.stages import warmth
from group.driver import Driver
from group.store import Store

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


def plan(**values: object) -> GroupPlan:
    chosen = {"SPEC_METHOD": "none", "KV_CACHE_DTYPE": "fp8_e4m3", "MAX_MODEL_LEN": 1024, **values}
    return GroupPlan(2, "switch", "lab-cpu", {name: Value(value, "default") for name, value in chosen.items()})


def test_the_shared_tier_follows_version_machine_and_kv_dtype_the_keyed_one_the_options_too() -> None:
    first = tiers(plan(), "0.32.0", "aarch64")
    assert first.shared == "vllm-0.32.0-lab-cpu-aarch64-fp8_e4m3"
    assert first.keyed.startswith(first.shared + "-")
    longer = tiers(plan(MAX_MODEL_LEN=2048), "0.32.0", "aarch64")
    assert longer.shared == first.shared
    assert longer.keyed != first.keyed
    assert tiers(plan(SERVED_NAME="other"), "0.32.0", "aarch64") == first
    for other in (tiers(plan(), "0.33.0", "aarch64"), tiers(plan(KV_CACHE_DTYPE="auto"), "0.32.0", "aarch64")):
        assert other.shared != first.shared
    assert tiers(plan(SHARED_TAG="a", CACHE_TAG="b"), "0.32.0", "aarch64") == Tiers("a", "b")


def test_what_was_kept_of_one_treatment_of_the_weights_never_meets_another() -> None:
    """W13_RECONCILE, an overlay's setting, its code: the options of the engine are the same, its weights are not."""
    one, other = (tiers(plan(WEIGHTS_TAG=tag), "0.32.0", "aarch64") for tag in ("aa", "bb"))
    assert one.keyed != other.keyed
    assert one.shared == other.shared, "kernels are found by their own sources, whatever weights they get"
    by_hand = [tiers(plan(WEIGHTS_TAG=tag, CACHE_TAG="mine"), "0.32.0").keyed for tag in ("aa", "bb")]
    assert by_hand == ["mine-waa", "mine-wbb"]


def test_a_tier_is_warm_once_a_generation_served_from_it(tmp_path: Path) -> None:
    paths = tiers(plan(), "0.32.0").paths(str(tmp_path))
    assert state(paths) == "shared cold, keyed cold, no autotune"
    assert served(paths, 1, ("10.0.0.1", "10.0.0.2")) == ""
    assert state(paths) == "shared warm, keyed warm, no autotune"
    assert cold_by_rank(paths, 1, ("10.0.0.1", "10.0.0.2")) == ""
    assert "rank 0 now, it was 1 of 2" in cold_by_rank(paths, 0, ("10.0.0.2", "10.0.0.1"))
    (Path(paths["cache.keyed"]) / STAMP).write_text("{")
    assert state(paths) == "shared warm, keyed cold, no autotune"


def test_a_full_disk_keeps_nothing_and_ends_nothing(tmp_path: Path) -> None:
    paths = tiers(plan(), "0.32.0").paths(str(tmp_path))
    (tmp_path / "shared").write_text("a file where the folder should be")
    assert "shared" in served(paths, 0, ("10.0.0.1",))


def test_only_the_newest_tiers_are_kept(tmp_path: Path) -> None:
    for number in range(KEPT + 2):
        paths = tiers(plan(CACHE_TAG=f"t{number}"), "0.32.0").paths(str(tmp_path))
        assert served(paths, 0, ("10.0.0.1",)) == ""
        os.utime(Path(paths["cache.keyed"]) / STAMP, (number, number))
    served(paths, 0, ("10.0.0.1",))
    assert sorted(path.name for path in (tmp_path / "keyed").iterdir()) == [f"t{n}" for n in range(2, KEPT + 2)]


def test_boxes_whose_caches_differ_are_named() -> None:
    (same,) = rows({"a": "shared warm", "b": "shared warm"})
    assert (same.level, same.seen) == ("info", "shared warm on all boxes")
    (row,) = rows({"a": "shared warm", "b": "shared cold", "c": ""})
    assert row.level == "WARN"
    assert row.seen == "a: shared warm; b: shared cold"
    assert autotune_differs(["x, autotune kept", "x, no autotune"])
    assert not autotune_differs(["x, no autotune", ""])


def test_lock_files_without_an_owner_go_and_held_ones_stay(tmp_path: Path) -> None:
    for name in ("a/lock", "b/kernel.lock", "c/opened.lock", "d/flocked.lock", "e/lockstep.so"):
        (tmp_path / name).parent.mkdir()
        (tmp_path / name).touch()
    nobody = tmp_path / "proc"  # another pid namespace: the owner does not show
    nobody.mkdir()
    with (tmp_path / "d/flocked.lock").open() as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        with (tmp_path / "c/opened.lock").open():
            removed = sweep_locks(tmp_path)
        assert sorted(Path(path).name for path in removed) == ["kernel.lock", "lock"]
        assert [Path(path).name for path in sweep_locks(tmp_path, nobody)] == ["opened.lock"]
    assert (tmp_path / "d/flocked.lock").exists()
    assert (tmp_path / "e/lockstep.so").exists()


def test_vllm_s_version_is_the_image_s_or_the_installed_one(tmp_path: Path) -> None:
    assert vllm_version({"versions": {"vllm": "0.32.0"}}, "python3") == "0.32.0"
    python = tmp_path / "bin/python"
    python.parent.mkdir()
    python.touch(mode=0o755)
    assert vllm_version({}, str(python)) == "unknown"
    (tmp_path / "lib/python3.12/site-packages/vllm-0.31.0+cpu.dist-info").mkdir(parents=True)
    assert vllm_version({}, str(python)) == "0.31.0+cpu"


def test_one_message_says_what_changed_since_the_last_serving_plan(tmp_path: Path) -> None:
    boot = Boot(environ={})
    boot.settings, boot.members = Settings({}), cast(Members, SimpleNamespace())
    boot.driver = cast(Driver, SimpleNamespace(store=Store(tmp_path), own=SimpleNamespace(record=None)))
    boot.group_plan = plan()
    assert warmth.changes(boot) == ""  # a first start
    boot.driver.store.keep(plan=json.dumps(warmth.flat(plan())))
    assert warmth.changes(boot) == ""
    boot.group_plan = plan(MAX_MODEL_LEN=2048, CACHE_TAG="b")
    assert warmth.changes(boot) == (
        "changed on all boxes since it last served: CACHE_TAG: None -> b; MAX_MODEL_LEN: 1024 -> 2048"
    )
    boot.driver.store.keep(plan="{")
    assert warmth.changes(boot) == ""
