"""./glm53 up: what is refused before Docker starts anything, and what docker compose is given."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.main.commands.conftest import Kit


def refused(kit: Kit, *arguments: str, shell: Mapping[str, str] | None = None) -> str:
    """The refusal lines of a command that must exit 2, without a traceback, and start nothing."""
    done = kit.run(*arguments, shell=shell)
    assert done.returncode == 2, done.stdout + done.stderr
    assert all(line.startswith("glm53: ") for line in done.stderr.splitlines())
    assert not [call for call in kit.calls() if "up" in call["words"]]
    return done.stderr


def test_a_box_without_docker_is_told_how_to_get_it(kit: Kit, model: dict[str, str]) -> None:
    assert "apt-get install docker.io" in refused(kit, "up", "-d", shell={"PATH": "/nowhere", **model})


def test_a_box_without_compose_v2(kit: Kit, model: dict[str, str]) -> None:
    for answer in ("", "1.29.2"):
        kit.says(compose=answer)
        assert "docker-compose-v2" in refused(kit, "up", shell=model)


def test_a_daemon_that_does_not_answer_is_quoted(kit: Kit, model: dict[str, str]) -> None:
    kit.says(daemon="permission denied while trying to connect to the Docker daemon socket")
    assert "permission denied" in refused(kit, "up", shell=model)


def test_a_docker_without_the_nvidia_runtime(kit: Kit, model: dict[str, str]) -> None:
    kit.says(runtimes={"runc": {}})
    assert "nvidia-ctk runtime configure" in refused(kit, "up", shell=model)


def test_a_box_without_rdma_devices(kit: Kit, model: dict[str, str]) -> None:
    if Path("/dev/infiniband").exists():
        pytest.skip("this machine has RDMA devices")
    done = kit.run("up", infiniband=False, shell=model)
    assert done.returncode == 2
    assert "modprobe mlx5_ib" in done.stderr


@pytest.mark.parametrize(("container", "said"), [("other\t/srv/old", "/srv/old"), ("\t", "docker rm -f glm53")])
def test_a_container_of_somebody_else_is_not_replaced(
    kit: Kit, model: dict[str, str], container: str, said: str
) -> None:
    kit.says(container=container)
    assert said in refused(kit, "up", shell=model)


def test_our_own_container_is_not_in_the_way(kit: Kit, model: dict[str, str]) -> None:
    kit.says(container="glm53\t/anywhere")
    assert kit.run("up", shell=model).returncode == 0


def test_a_missing_image_names_the_build(kit: Kit, model: dict[str, str]) -> None:
    kit.says(image=False)
    assert "image/build.sh" in refused(kit, "up", shell=model)


def test_an_image_of_a_registry_is_pulled_first_so_that_every_up_knows_its_id(kit: Kit, model: dict[str, str]) -> None:
    """Pulled by Compose, the first start had no id and the second one did: an unchanged box was started anew."""
    kit.says(image=False)
    shell = {"IMAGE": "registry/glm53:1", **model}
    ids = []
    for _ in range(2):
        kit.run("up", "-d", shell=shell)
        ids.append(kit.last()["environ"]["GLM53_IMAGE_ID"])
    assert [call["words"] for call in kit.calls() if call["words"][0] == "pull"] == [["pull", "registry/glm53:1"]]
    assert ids[0].startswith("sha256:")
    assert ids[0] == ids[1]


def test_an_image_that_no_registry_has_is_refused(kit: Kit, model: dict[str, str]) -> None:
    kit.says(image=False, unknown=True)
    done = kit.run("up", "-d", shell={"IMAGE": "registry/glm53:1", **model})
    assert done.returncode == 2
    assert "IMAGE: seen docker pull registry/glm53:1 failed" in done.stderr
    assert not [call for call in kit.calls() if "up" in call["words"]]


def test_everything_missing_is_told_at_once(kit: Kit) -> None:
    kit.says(runtimes={}, container="x\t")
    lines = refused(kit, "up", shell={"MODEL_HOST_DIR": "/no/model", "DFLASH_HOST_DIR": "/no/drafter"}).splitlines()
    assert len(lines) == 4


@pytest.mark.parametrize(
    ("knob", "text"),
    [("TP", "5"), ("TP", "four"), ("KV_CACHE_MEMORY", "-1"), ("MAX_NUM_SEQ", "8"), ("LIMIT_MM", "{"),
     ("API_PORT", "0"), ("MODEL_HOST_DIR", "models"), ("LOG_DIR", "logs"), ("API_KEY_FILE", "/no/such/key"),
     ("STATUS_TOKEN", "short"), ("STATUS_TOKEN_FILE", "token"), ("GLM53_OVERLAY_MHC", "off"),
     ("GLM53_OVERLAY_MOE_DECODE_MAX_TOKENS", "many"), ("GLM53_OVERLAY_DENSE_FP8_SKIP", "*")],
)  # fmt: skip
def test_a_bad_value_in_the_shell_or_in_dotenv(kit: Kit, model: dict[str, str], knob: str, text: str) -> None:
    assert knob in refused(kit, "up", shell={**model, knob: text})
    (kit.root / "compose/.env").write_text(f"{knob}='{text}'\n")
    shell = {name: value for name, value in model.items() if name != knob}
    assert knob in refused(kit, "up", shell=shell)


def test_a_refusal_takes_less_than_two_seconds(kit: Kit, model: dict[str, str]) -> None:
    def seconds() -> float:
        started = time.monotonic()
        refused(kit, "up", shell={**model, "TP": "5"})
        return time.monotonic() - started

    assert min(seconds() for _ in range(3)) < 2


def test_a_secret_is_not_shown_when_its_name_is_misspelt(kit: Kit, model: dict[str, str]) -> None:
    assert "hunter2" not in refused(kit, "up", shell={"API_KYE": "hunter2", **model})


def test_up_gives_compose_every_file_in_order_and_the_users_last(kit: Kit, model: dict[str, str]) -> None:
    order = (kit.root / "experimental/compose/order.txt").read_text().split()
    assert kit.run("-f", "mine.yaml", "up", "-d", shell=model).returncode == 0
    words = kit.last()["words"]
    files = [words[at + 1] for at, word in enumerate(words) if word == "-f"]
    assert files[0] == str(kit.root / "compose/glm53.yaml")
    assert files[-1] == "mine.yaml"
    assert words[-2:] == ["up", "-d"]
    overlays = [Path(file).stem for file in files if "/experimental/compose/" in file]
    on = kit.last()["environ"]["GLM53_OVERLAYS"].split(",")
    assert overlays == (["common", *on] if on != [""] else [])
    assert [name for name in order if name in on] == [name for name in on if name]


def test_a_project_of_another_name_is_composes_own_option(kit: Kit, model: dict[str, str]) -> None:
    """`-p` is one letter from `up` and from `cp`."""
    assert kit.run("-p", "mine", "up", "-d", shell=model).returncode == 0
    words = kit.last()["words"]
    assert words.count("-p") == 1
    assert words[-4:] == ["-p", "mine", "up", "-d"]


def test_stock_leaves_every_overlay_out_and_says_so_to_the_container(kit: Kit, model: dict[str, str]) -> None:
    assert kit.run("--stock", "up", "-d", shell=model).returncode == 0
    call = kit.last()
    assert not [word for word in call["words"] if "experimental" in word]
    assert (call["environ"]["ALLOW_STOCK"], call["environ"]["GLM53_OVERLAYS"]) == ("1", "")


def test_without_leaves_one_overlay_out(kit: Kit, model: dict[str, str]) -> None:
    name = (kit.root / "experimental/compose/order.txt").read_text().split()[-1]
    assert kit.run("up", "-d", "--without", name, shell=model).returncode == 0
    assert name not in kit.last()["environ"]["GLM53_OVERLAYS"].split(",")


def test_an_overlay_that_does_not_exist_cannot_be_left_out(kit: Kit) -> None:
    assert "nonesuch" in refused(kit, "--without=nonesuch", "up")
    assert "nonesuch" in refused(kit, "--stock", "--without=nonesuch", "up")


def test_a_broken_overlay_is_named_and_a_stack_still_comes_down(kit: Kit, model: dict[str, str]) -> None:
    folder = kit.root / "experimental/mine"
    folder.mkdir()
    (folder / "overlay.toml").write_text("name = ")
    assert "mine/overlay.toml" in refused(kit, "up", shell=model)
    done = kit.run("down")
    assert done.returncode == 0, done.stderr
    assert "mine/overlay.toml" in done.stderr
    assert kit.last()["words"][-1] == "down"
    text = (kit.root / "experimental/nvfp4/overlay.toml").read_text()
    (folder / "overlay.toml").write_text(text.replace("nvfp4", "mine"))
    assert "./glm53 knobs write" in refused(kit, "up", shell=model), "it has no compose file yet"
    assert kit.run("down").returncode == 0


def test_options_of_an_own_verb_stand_after_it(kit: Kit) -> None:
    assert "plan: seen --with before it" in refused(kit, "--with", "dense_w4", "plan")


def test_a_switch_of_one_in_dotenv_puts_an_optional_overlay_on(kit: Kit, model: dict[str, str]) -> None:
    (kit.root / "compose/.env").write_text("GLM53_OVERLAY_DENSE_W4=1\n")
    assert kit.run("up", "-d", shell=model).returncode == 0
    assert "dense_w4" in kit.last()["environ"]["GLM53_OVERLAYS"].split(",")


def test_the_container_learns_where_each_value_came_from(kit: Kit, model: dict[str, str]) -> None:
    (kit.root / "compose/.env").write_text("TP=2\nSERVED_NAME=mine\nAPI_PORT=\n")
    done = kit.run("up", "-d", shell={"TP": "3", **model})
    assert done.returncode == 0, done.stderr
    sources = json.loads(kit.last()["environ"]["GLM53_SOURCES"])
    assert (sources["TP"], sources["SERVED_NAME"]) == ("shell", ".env")
    assert "API_PORT" not in sources
    assert "MODEL_HOST_DIR" not in sources
    assert kit.last()["environ"]["GLM53_IMAGE_ID"].startswith("sha256:")
    assert "TP: the shell's 3 wins over 2 of compose/.env" in done.stderr


def test_up_in_the_background_prints_the_watch_command(kit: Kit, model: dict[str, str]) -> None:
    assert "./glm53 watch --until serving" in kit.run("up", "-d", shell=model).stdout
    assert "watch" not in kit.run("up", shell=model).stdout


@pytest.mark.parametrize(
    ("running", "said"),
    [([""], "started."), (["", "a"], "started."), (["a", "b"], "started."), (["a", "a"], "unchanged: ")],
)
def test_up_says_whether_the_running_container_was_adopted(
    kit: Kit, model: dict[str, str], running: list[str], said: str
) -> None:
    kit.says(running=running)
    assert kit.run("up", "-d", shell=model).stdout.startswith(f"glm53: {said}")


def test_without_drafting_no_drafter_is_needed(kit: Kit, model: dict[str, str], tmp_path: Path) -> None:
    shell = {**model, "DFLASH_HOST_DIR": str(tmp_path / "nowhere")}
    assert "CC BY-NC-ND" in refused(kit, "up", shell=shell)
    for knob, text in (("SPEC_METHOD", "mtp"), ("SPEC_METHOD", "none"), ("MTP", "1")):
        assert kit.run("up", shell={**shell, knob: text}).returncode == 0
        assert kit.last()["environ"]["DFLASH_HOST_DIR"] == str(kit.root / "compose/none")


def test_a_hugging_face_cache_is_mounted_whole(kit: Kit, model: dict[str, str], tmp_path: Path) -> None:
    cache = tmp_path / "models--x"
    (cache / "blobs").mkdir(parents=True)
    (cache / "snapshots/abc").mkdir(parents=True)
    for name in ("config.json", "model.safetensors"):
        (cache / "blobs" / name).write_text("{}")
        (cache / "snapshots/abc" / name).symlink_to(Path("../../blobs") / name)
    assert kit.run("up", shell={**model, "MODEL_HOST_DIR": str(cache / "snapshots/abc")}).returncode == 0
    environ = kit.last()["environ"]
    assert environ["MODEL_HOST_DIR"] == str(cache)
    assert environ["MODEL_DIR"] == "/models/target/snapshots/abc"


def test_a_stack_with_a_bad_value_still_comes_down(kit: Kit) -> None:
    done = kit.run("down", "-v", shell={"TP": "five"})
    assert done.returncode == 0
    assert kit.last()["words"][-2:] == ["down", "-v"]
    assert "not needed for down" in done.stderr


def test_a_variable_of_the_shell_cannot_redirect_compose(kit: Kit) -> None:
    kit.run("ps", shell={"COMPOSE_FILE": "/tmp/other.yaml", "COMPOSE_PROJECT_NAME": "other"})
    call = kit.last()
    assert "COMPOSE_FILE" not in call["environ"]
    assert call["words"][call["words"].index("-p") + 1] == "glm53"


def test_paths_that_a_mount_fixes_are_nobodys_choice(kit: Kit, model: dict[str, str]) -> None:
    assert kit.run("up", "-d", shell={"LOG_DIR": "/srv/logs", **model}).returncode == 0
    assert json.loads(kit.last()["environ"]["GLM53_SOURCES"])["LOG_DIR"] == "default"


def test_ctrl_c_leaves_compose_the_time_it_needs_to_stop_the_engine(kit: Kit, model: dict[str, str]) -> None:
    kit.says(slow=True)
    command = [sys.executable, str(kit.docker / "with_infiniband.py"), str(kit.root), "up"]
    process = subprocess.Popen(command, env={**kit.environ, **model}, start_new_session=True)
    deadline = time.monotonic() + 20
    while not (kit.docker / "running").exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    os.killpg(process.pid, signal.SIGINT)
    assert process.wait(20) == 0
    assert (kit.docker / "graceful").exists()


def test_a_checkpoint_that_does_not_divide_names_the_pad_command(kit: Kit, model: dict[str, str]) -> None:
    """Before Docker: both commands, with the paths of this box and the knobs to set."""
    big, small = Path(model["MODEL_HOST_DIR"]), Path(model["DFLASH_HOST_DIR"])
    (big / "config.json").write_text(json.dumps({"text_config": {"num_attention_heads": 64}}))
    (small / "config.json").write_text(json.dumps({"num_attention_heads": 32, "num_key_value_heads": 8}))
    for tp, ranks in (("3", 3), ("RING3", 3), ("6", 6)):
        told = refused(kit, "up", "-d", shell={**model, "TP": tp})
        assert f"./glm53 pad {big} {big}-tp{ranks} --tp {ranks}, then set MODEL_HOST_DIR" in told
        assert f"./glm53 pad {small} {small}-tp{ranks} --tp {ranks}, then set DFLASH_HOST_DIR" in told
    assert kit.run("up", "-d", shell={**model, "TP": "4"}).returncode == 0


def test_a_padded_checkpoint_needs_the_overlay_that_pads(kit: Kit, model: dict[str, str]) -> None:
    padded = {"num_attention_heads": 66, "tp_pad_orig": {"tp": 3, "stored": "original", "sizes": {}}}
    (Path(model["MODEL_HOST_DIR"]) / "config.json").write_text(json.dumps({"text_config": padded}))
    shell = {**model, "TP": "3"}
    assert "tp_pad left out" in refused(kit, "--without", "tp_pad", "up", "-d", shell=shell)
    assert kit.run("up", "-d", shell=shell).returncode == 0


def test_a_pack_known_to_be_bad_is_told_and_started_all_the_same(
    kit: Kit, model: dict[str, str], tmp_path: Path
) -> None:
    bad = tmp_path / "LibertAIDAI"
    Path(model["MODEL_HOST_DIR"]).rename(bad)
    done = kit.run("up", "-d", shell={**model, "MODEL_HOST_DIR": str(bad)})
    assert done.returncode == 0
    assert "corrupted tokens" in done.stderr


@pytest.mark.parametrize(
    ("typed", "meant"), [("lba", "lab"), ("wacth", "watch"), ("udp", "up"), ("donw", "down"), ("paln", "plan")]
)
def test_a_slip_of_the_finger_names_the_verb(kit: Kit, typed: str, meant: str) -> None:
    assert f"perhaps {meant}" in refused(kit, typed)


def test_a_verb_of_docker_compose_that_we_do_not_know_is_passed_on(kit: Kit) -> None:
    kit.run("somethingnew", "--now")
    assert [call for call in kit.calls() if "somethingnew" in call["words"]]


def test_a_dotenv_in_the_wrong_place_is_told_by_plan_too(kit: Kit) -> None:
    (kit.root / ".env").write_text("TP=2\n")
    told = "".join(kit.run("plan", "--brief").stdout.split())  # wrapped at 80 columns, in the middle of a path too
    assert f"{kit.root / '.env'}isignored" in told
    assert f"mv{kit.root / '.env'}{kit.root / 'compose' / '.env'}" in told
