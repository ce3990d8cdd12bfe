"""The compose files under the real Docker Compose: clean with no .env, and .env read from compose/ only."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from core.registry import registry
from experimental.overlays import read_all
from launcher.generate import MOUNTED
from tests.main.commands.conftest import Kit


def config(
    kit: Kit, *arguments: str, cwd: Path | None = None, shell: Mapping[str, str] | None = None
) -> dict[str, Any]:
    """`./glm53 ... config` as data; Compose must have nothing to say about it."""
    done = kit.run(*arguments, "config", "--format", "json", cwd=cwd, shell=shell)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def service(kit: Kit, *arguments: str, shell: Mapping[str, str] | None = None) -> dict[str, Any]:
    found: dict[str, Any] = config(kit, *arguments, shell=shell)["services"]["glm53"]
    return found


def test_clean_with_no_dotenv_and_everything_a_box_needs(real_compose: Kit) -> None:
    whole = config(real_compose)
    box = whole["services"]["glm53"]
    assert whole["name"] == box["container_name"] == "glm53"
    assert (box["network_mode"], box["ipc"], box["init"], box["restart"]) == ("host", "host", True, "unless-stopped")
    assert box["stop_grace_period"] == "2m0s"
    assert (box["ulimits"]["memlock"], box["ulimits"]["stack"]) == (-1, 67108864)
    assert box["ulimits"]["core"] in (0, {})  # Compose 2.26 prints 0 as {}
    assert box["cap_add"] == ["SYS_PTRACE", "SYSLOG"]
    assert box["logging"] == {"driver": "json-file", "options": {"max-file": "14", "max-size": "100m"}}
    assert box["deploy"]["resources"]["reservations"]["devices"][0]["capabilities"] == ["gpu"]
    assert "/dev/infiniband" in [device["target"] for device in box["devices"]]
    mounts = {mount["target"]: mount for mount in box["volumes"]}
    for target in ("/models/target", "/models/drafter", "/run/systemd/units"):
        assert mounts[target]["read_only"] is True
    assert mounts["/models/target"]["source"] == "/srv/models/glm-5.3-flash-nvfp4"
    assert mounts["/models/drafter"]["source"] == "/srv/models/glm-5.3-flash-dflash2"
    assert {whole["volumes"][name]["name"] for name in ("cache", "logs", "state")} == {
        "glm53_cache", "glm53_logs", "glm53_state",
    }  # fmt: skip
    assert box["healthcheck"]["test"][0] == "CMD"


def test_mounted_defaults_are_the_knobs_defaults(real_compose: Kit) -> None:
    targets = {mount["target"] for mount in service(real_compose)["volumes"]}
    for name in ("MODEL_DIR", "DFLASH_MODEL"):
        assert registry()[name].default in targets
    for target in MOUNTED.values():
        assert target in targets


def test_every_knob_of_the_container_reaches_it_and_unset_ones_do_not_exist(real_compose: Kit) -> None:
    kit = real_compose
    assert {name: text for name, text in service(kit)["environment"].items() if text is not None} == {
        **MOUNTED, "GLM53_SOURCES": service(kit)["environment"]["GLM53_SOURCES"],
        "GLM53_OVERLAYS": service(kit)["environment"]["GLM53_OVERLAYS"],
        **{name: text for name, text in service(kit)["environment"].items() if name.startswith("GLM53_OVERLAY_")},
    }  # fmt: skip
    (kit.root / "compose/.env").write_text('TP=2\nLIMIT_MM={"image":1,"video":0}\nGROUP_SECRET=\'a$b\'\n')
    box = service(kit, shell={"KV_CACHE_MEMORY": "12GiB"})["environment"]
    assert (box["TP"], box["KV_CACHE_MEMORY"]) == ("2", "12GiB")
    assert box["LIMIT_MM"] == '{"image":1,"video":0}'
    assert box["GROUP_SECRET"] == "a$$b"  # Compose prints a dollar doubled


def test_dotenv_is_read_from_whatever_directory_and_the_roots_is_reported(real_compose: Kit, tmp_path: Path) -> None:
    kit = real_compose
    (kit.root / "compose/.env").write_text("SERVED_NAME=right\n")
    (tmp_path / ".env").write_text("SERVED_NAME=wrong\n")
    assert config(kit, cwd=tmp_path)["services"]["glm53"]["environment"]["SERVED_NAME"] == "right"
    (kit.root / ".env").write_text("SERVED_NAME=wrong\n")
    done = kit.run("config", "--format", "json")
    assert json.loads(done.stdout)["services"]["glm53"]["environment"]["SERVED_NAME"] == "right"
    assert "is ignored" in done.stderr
    (kit.root / "compose/.env").unlink()
    assert f"mv {kit.root}/.env {kit.root}/compose/.env" in kit.run("config", "-q").stderr


def test_directories_of_the_host_replace_the_volumes(real_compose: Kit) -> None:
    box = service(real_compose, shell={"CACHE_HOME": "/srv/cache", "LOG_DIR": "/srv/logs"})
    mounts = {mount["target"]: mount["source"] for mount in box["volumes"]}
    assert (mounts["/cache"], mounts["/logs"]) == ("/srv/cache", "/srv/logs")
    assert box["environment"]["LOG_DIR"] == "/logs"


def test_a_key_file_is_mounted_and_its_text_is_nowhere(real_compose: Kit, tmp_path: Path) -> None:
    (tmp_path / "key").write_text("hunter2")
    box = service(real_compose, shell={"API_KEY_FILE": str(tmp_path / "key")})
    assert box["environment"]["API_KEY_FILE"] == "/run/secrets/glm53_api_key"
    assert "hunter2" not in json.dumps(box)


def test_a_token_file_is_mounted_and_its_text_is_nowhere(real_compose: Kit, tmp_path: Path) -> None:
    (tmp_path / "token").write_text("hunter2-hunter2-hunter2")
    box = service(real_compose, shell={"STATUS_TOKEN_FILE": str(tmp_path / "token")})
    assert box["environment"]["STATUS_TOKEN_FILE"] == "/run/secrets/glm53_status_token"
    assert "hunter2" not in json.dumps(box)


def test_every_overlay_is_valid_laid_over_the_box_and_its_settings_can_be_changed(real_compose: Kit) -> None:
    overlays = read_all(real_compose.root / "experimental")
    switches = [overlay.switch for overlay in overlays if overlay.switch]
    optional = [word for overlay in overlays if not overlay.default for word in ("--with", overlay.name)]
    environment = service(real_compose, *optional, shell=dict.fromkeys(switches, ""))["environment"]
    assert {switch: environment[switch] for switch in switches} == dict.fromkeys(switches, "1")
    environment = service(real_compose, shell=dict.fromkeys(switches, "1"))["environment"]
    assert {switch: environment[switch] for switch in switches} == dict.fromkeys(switches, "1")
    environment = service(real_compose, shell=dict.fromkeys(switches, "0"))["environment"]
    assert not {*switches} & {*environment}, "a switch of 0 leaves its overlay out"


def test_the_users_file_wins(real_compose: Kit, tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text("services:\n  glm53:\n    image: mine\n")
    assert service(real_compose, "-f", str(tmp_path / "mine.yaml"))["image"] == "mine"
    assert service(real_compose, shell={"IMAGE": "theirs:1"})["image"] == "theirs:1"
