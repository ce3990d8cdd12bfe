"""Boxes as containers: what is put over the compose file, and the command lines."""

import itertools
from pathlib import Path

from lab.environment import environment
from lab.providers import docker
from lab.state import Box, Lab
from launcher.paths import ROOT


def a_lab(folder: Path) -> Lab:
    boxes = tuple(Box(n, f"box{n}", docker.address(7, n), str(folder / f"box{n}")) for n in (1, 2))
    return Lab("dock", "dock-7", 7, True, 8002, 8082, {"MAX_NUM_SEQS": "3", "box2.SELF_TEST": "0"}, boxes, "docker")


def overlay(lab: Lab, box: Box) -> dict[str, str]:
    made = docker.overlay(lab, box, environment(lab, box, ROOT, Path("/venv/bin/python"), Path("/tiny")))
    return dict(made["services"]["glm53"]["environment"])


def test_a_box_has_its_own_names_address_and_volumes(tmp_path: Path) -> None:
    lab = a_lab(tmp_path)
    made = docker.overlay(lab, lab.boxes[1], {})
    service = made["services"]["glm53"]
    assert service["container_name"] == "glm53-dock-7-box2"
    assert service["networks"]["lan"]["ipv4_address"] == "172.31.7.12"
    assert set(service["networks"]) == {"lan", "fabric0", "fabric1"}
    assert made["volumes"]["state"] == {"name": "glm53-dock-7-box2-state"}


def test_the_kit_inside_uses_the_images_paths(tmp_path: Path) -> None:
    lab = a_lab(tmp_path)
    inside = overlay(lab, lab.boxes[0])
    assert inside["ENGINE_PYTHON"] == "python3"
    assert inside["MODEL_DIR"] == "/models/target"
    assert (inside["STATE_DIR"], inside["LOG_DIR"], inside["CACHE_ROOT"]) == ("/state", "/logs", "/cache")
    assert not set(inside) & {"PATH", "HOME", "PYTHONPATH", "TMPDIR"}
    assert inside["LAN_ADDRESS"] == "172.31.7.11"


def test_the_users_knobs_win(tmp_path: Path) -> None:
    lab = a_lab(tmp_path)
    assert overlay(lab, lab.boxes[0])["MAX_NUM_SEQS"] == "3"
    assert "SELF_TEST" not in overlay(lab, lab.boxes[0])
    assert overlay(lab, lab.boxes[1])["SELF_TEST"] == "0"


def test_the_real_compose_file_comes_first(tmp_path: Path) -> None:
    lab = a_lab(tmp_path)
    words = docker.compose(lab, lab.boxes[0], "up", "-d")
    assert words[:4] == ["docker", "compose", "-p", "glm53-dock-7-box1"]
    files = [word for before, word in itertools.pairwise(words) if before == "-f"]
    assert [Path(file).name for file in files] == ["glm53.yaml", "lab.yaml", "compose.json"]
    assert words[-2:] == ["up", "-d"]


def test_blocks_do_not_share_a_subnet() -> None:
    seven, eight = docker.subnets(7), docker.subnets(8)
    assert not set(seven.values()) & set(eight.values())
