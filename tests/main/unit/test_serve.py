"""The command of one box: argv and environment from the plan, secrets and the kit's own paths kept out."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from core.plan import BoxPlan, GroupPlan, Value
from core.refusal import Refusal, Refusals
from core.registry import registry
from core.settings import resolve
from entrypoint.caches import forget_autotune
from entrypoint.serve import box_nccl, box_paths, engine_command, shown, speculation
from entrypoint.serve.environment import KIT_ROOT, without_kit


def group(tp: int = 4, profile: Any = "gb10", **values: Any) -> GroupPlan:
    return GroupPlan(tp, "switch", profile, {name: Value(value, ".env") for name, value in values.items()})


def box(rank: int = 0, tp: int = 4, **more: Any) -> BoxPlan:
    paths = {"python": "/engine/python", "model": "/m", "drafter": "/d", "cache": "/cache"}
    base: dict[str, Any] = {"rails": ("rocep1s0f0", "roceP2p1s0f0"), "paths": paths}
    placed = BoxPlan(rank, tp, "10.0.0.9", "198.18.0.1", "enp1s0f0np0", "198.18.0.1", 20014, 41001, **{**base, **more})
    return placed


def value(argv: tuple[str, ...], flag: str) -> str:
    assert argv.count(flag) == 1, f"{flag} in {argv}"
    return argv[argv.index(flag) + 1]


def test_the_head_listens_behind_the_door_and_workers_not_at_all() -> None:
    head = engine_command(group(), box(0), {}).argv
    assert head[:5] == ("/engine/python", "-m", "vllm.entrypoints.cli.main", "serve", "/m")
    assert (value(head, "--host"), value(head, "--port")) == ("127.0.0.1", "41001")
    assert value(head, "--disable-access-log-for-endpoints") == "/metrics,/health"  # the kit's own questions
    assert "--headless" not in head
    worker = engine_command(group(), box(3), {}).argv
    assert "--headless" in worker
    assert "--port" not in worker
    assert value(worker, "--node-rank") == "3"


def test_all_ranks_get_the_same_arguments_but_for_rank_and_port() -> None:
    values: dict[str, Any] = {"MAX_NUM_SEQS": 64, "KV_CACHE_MEMORY": 2**34, "EXTRA_ARGS": "--seed 1"}
    argvs = [set(engine_command(group(**values), box(rank), {}).argv) for rank in range(1, 4)]
    ranks = {"1", "2", "3"}
    assert argvs[0] - ranks == argvs[1] - ranks == argvs[2] - ranks


def test_a_knob_without_a_value_leaves_its_flag_out() -> None:
    argv = engine_command(group(MAX_NUM_SEQS=None, MOE_BACKEND=""), box(), {}).argv
    assert "--max-num-seqs" not in argv
    assert "--moe-backend" not in argv


def test_without_a_chat_template_of_ones_own_the_kits_is_used() -> None:
    argv = engine_command(group(CHAT_TEMPLATE=""), box(), {}).argv
    assert Path(argv[argv.index("--chat-template") + 1]).is_file()
    argv = engine_command(group(CHAT_TEMPLATE="/mine.jinja"), box(), {}).argv
    assert argv.count("--chat-template") == 1
    assert argv[argv.index("--chat-template") + 1] == "/mine.jinja"
    assert "None" not in argv


@pytest.mark.parametrize(
    ("values", "config"),
    [
        ({}, {"method": "dflash", "model": "/d", "num_speculative_tokens": 7}),
        ({"SPEC_METHOD": "mtp"}, {"method": "mtp", "num_speculative_tokens": 4}),
        ({"SPEC_METHOD": "mtp", "SPEC_TOKENS": 2}, {"method": "mtp", "num_speculative_tokens": 2}),
        ({"SPEC_METHOD": "none"}, None),
    ],
)
def test_speculation(values: dict[str, Any], config: dict[str, Any] | None) -> None:
    argv = engine_command(group(**values), box(), {}).argv
    if config is None:
        assert "--speculative-config" not in argv
    else:
        assert json.loads(value(argv, "--speculative-config")) == config


@pytest.mark.parametrize(
    ("arguments", "setting"),
    [
        (("dflash", 5, False, None), "SPEC_TOKENS"),
        (("dflash", 8, False, None), "SPEC_TOKENS"),
        (("none", 1, False, None), "SPEC_TOKENS"),
        (("dflash", None, True, None), "MTP"),
        (("dflash", None, False, {"model": "/other"}), "SPEC_EXTRA"),
        (("mtp", None, False, {"method": "ngram"}), "SPEC_EXTRA"),
        (("none", None, False, {"x": 1}), "SPEC_EXTRA"),
    ],
)
def test_speculation_that_cannot_be_is_refused(arguments: Any, setting: str) -> None:
    with pytest.raises(Refusal) as caught:
        speculation(*arguments)
    assert caught.value.setting == setting


def test_mtp_1_is_a_spelling_of_the_method_where_nobody_chose_one() -> None:
    assert speculation("dflash", None, True, None, chosen=False).method == "mtp"
    assert speculation("mtp", None, True, None).tokens == 4


@pytest.mark.parametrize(
    "text",
    ["--api-key x", "--api-key=x", "--port 1", "--speculative-config {}", "--tensor_parallel_size 2", "-tp 2"],
)
def test_extra_args_may_not_take_over_what_the_kit_sets(text: str) -> None:
    with pytest.raises(Refusal) as caught:
        engine_command(group(EXTRA_ARGS=text), box(), {})
    assert caught.value.setting == "EXTRA_ARGS"


def test_extra_args_come_last_and_keep_quoted_words_together() -> None:
    argv = engine_command(group(EXTRA_ARGS="--seed 7 --x 'a b'"), box(), {}).argv
    assert argv[-4:] == ("--seed", "7", "--x", "a b")


def test_the_kit_s_own_tool_parser_comes_with_its_file() -> None:
    argv = engine_command(group(TOOL_PARSER="glm47_failclosed"), box(), {}).argv
    assert value(argv, "--tool-call-parser") == "glm47_failclosed"
    assert Path(value(argv, "--tool-parser-plugin")).is_file()
    assert "--tool-parser-plugin" not in engine_command(group(TOOL_PARSER="glm47"), box(), {}).argv
    own = engine_command(group(TOOL_PARSER="mine", TOOL_PARSER_PLUGIN="/x.py"), box(), {}).argv
    assert value(own, "--tool-parser-plugin") == "/x.py"


def test_the_vision_tower_is_not_split_where_its_heads_do_not_divide() -> None:
    for tp, split in ((2, False), (3, True), (4, False), (6, True)):
        argv = engine_command(group(tp), box(0, tp), {}).argv
        assert ("--mm-encoder-tp-mode" in argv) == split


def test_the_api_key_is_in_the_environment_and_nowhere_else() -> None:
    command = engine_command(group(), box(), {"VLLM_API_KEY": "s3cret", "API_KEY": "s3cret", "API_KEY_FILE": "/k"})
    assert "s3cret" not in " ".join(command.argv)
    assert [name for name, text in command.environment.items() if "s3cret" in text] == ["VLLM_API_KEY"]
    assert "s3cret" not in str(shown(command))


def test_the_environment_is_built_and_not_inherited() -> None:
    base = {"PATH": "/usr/bin", "GLM53_SOURCES": "{}", "TP": "4", "GROUP_SECRET": "x", "VLLM_GLM5NEXT_RECOVERSSM": "1"}
    environment = engine_command(group(), box(), base).environment
    assert {"GLM53_SOURCES", "TP", "GROUP_SECRET"}.isdisjoint(environment)
    assert environment["PATH"] == "/usr/bin"
    assert environment["VLLM_GLM5NEXT_RECOVERSSM"] == "1", "overlays speak through VLLM_*"


def test_an_empty_variable_is_no_variable() -> None:
    """NCCL reads an empty GID index as slot 0, the link-local one."""
    base = {"NCCL_IB_GID_INDEX": "", "NCCL_IB_HCA": ""}
    environment = engine_command(group(), box(rails=()), base).environment
    assert {"NCCL_IB_GID_INDEX", "NCCL_IB_HCA"}.isdisjoint(environment)
    assert "" not in environment.values()


def test_both_addresses_go_where_they_belong() -> None:
    environment = engine_command(group(NCCL_MAX_NCHANNELS=8), box(), {"VLLM_HOST_IP": "10.0.0.9"}).environment
    assert environment["VLLM_HOST_IP"] == "198.18.0.1"
    assert environment["GLOO_SOCKET_IFNAME"] == environment["NCCL_SOCKET_IFNAME"] == "enp1s0f0np0"
    assert environment["NCCL_IB_HCA"] == "rocep1s0f0,roceP2p1s0f0"
    assert environment["NCCL_MAX_NCHANNELS"] == "8"


def test_this_box_s_own_word_wins() -> None:
    settings = resolve(registry(), {"NCCL_IB_HCA": "mlx5_0", "NCCL_IB_GID_INDEX": "5"})
    environment = engine_command(group(), box(nccl=box_nccl(settings)), {}).environment
    assert environment["NCCL_IB_HCA"] == "mlx5_0"
    assert environment["NCCL_IB_GID_INDEX"] == "5"


def test_seconds_are_whole_where_vllm_wants_them_whole() -> None:
    environment = engine_command(group(VLLM_ENGINE_READY_TIMEOUT_S=3600.0), box(), {}).environment
    assert environment["VLLM_ENGINE_READY_TIMEOUT_S"] == "3600"


def test_the_kit_s_own_folder_is_not_on_the_engine_s_path() -> None:
    assert without_kit(f"{KIT_ROOT}:/opt/ext:{KIT_ROOT}/") == "/opt/ext"
    assert without_kit("") == ""
    environment = engine_command(group(), box(), {"PYTHONPATH": str(KIT_ROOT)}).environment
    assert "PYTHONPATH" not in environment


def test_autotune_results_do_not_survive_a_boot_unless_asked_to(tmp_path: Path) -> None:
    paths = {"model": "/m", "drafter": "/d", "cache": str(tmp_path)}
    fresh = engine_command(group(), box(paths=paths), {})
    folder = Path(fresh.environment["VLLM_FLASHINFER_AUTOTUNE_CACHE_DIR"])
    assert folder.parent == tmp_path
    assert not forget_autotune(fresh)
    (folder / "hash").mkdir(parents=True)
    (folder / "hash/autotune_configs.json").write_text("{}")
    assert forget_autotune(fresh)
    assert not folder.exists()
    persist = engine_command(group(AUTOTUNE_CACHE="persist"), box(paths=paths), {})
    kept = Path(persist.environment["VLLM_FLASHINFER_AUTOTUNE_CACHE_DIR"])
    kept.mkdir()
    assert not forget_autotune(persist)
    assert forget_autotune(persist, differ=True)  # some boxes have results and some have not
    assert not kept.exists()


def test_the_lab_differs_in_flags_and_not_in_shape() -> None:
    command = engine_command(group(2, "lab-cpu", SPEC_METHOD="dflash", MAX_MODEL_LEN=1024), box(1, 2), {})
    assert "--speculative-config" not in command.argv
    assert "--enforce-eager" in command.argv
    assert value(command.argv, "--max-model-len") == "1024"
    assert value(command.argv, "--nnodes") == "2"
    assert command.environment["VLLM_CPU_KVCACHE_SPACE"] == "1"
    assert "NCCL_IB_HCA" not in command.environment


def test_one_box_alone_needs_no_other() -> None:
    argv = engine_command(group(1), box(0, 1), {}).argv
    assert "--nnodes" not in argv


def test_bad_values_of_this_room_s_knobs_are_refused_together() -> None:
    bad = {"LIMIT_MM": "{", "EXTRA_ARGS": "'open", "API_PORT": "0", "SPEC_METHOD": "dflash3", "TORCH_MEM_FRACTION": "2"}
    with pytest.raises(Refusals) as caught:
        resolve(registry(), bad)
    assert {refusal.setting for refusal in caught.value.refusals} == set(bad)
    with pytest.raises(Refusals):
        resolve(registry(), {"LIMIT_MM": '{"image": -1}'})


def test_paths_are_this_box_s_knobs() -> None:
    paths = box_paths(resolve(registry(), {"MODEL_DIR": "/x", "ENGINE_PYTHON": "/p"}))
    assert (paths["model"], paths["python"]) == ("/x", "/p")
