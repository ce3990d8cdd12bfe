"""A typo of a knob is named; names that are somebody else's are left alone."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.lint import misspelt, one_edit_apart, unknown
from core.registry import registry

KNOBS = ("TP", "ROLE", "PEERS", "MAX_NUM_SEQS", "API_KEY")


@pytest.mark.parametrize("name", ["MAX_NUM_SEQ", "MAX_NUM_SEQSS", "MAX_NUM_SEQZ", "MAX_NMU_SEQS", "PEER"])
def test_one_letter_from_a_long_knob_is_refused_in_the_shell(name: str) -> None:
    (refusal,) = misspelt({name: "8"}, KNOBS)
    assert refusal.setting == name
    assert "MAX_NUM_SEQS" in refusal.cure or "PEERS" in refusal.cure


@pytest.mark.parametrize("name", ["TPP", "ROLES", "MAX_NUM", "PATH", "max_num_seqs"])
def test_short_knobs_and_far_names_are_not_judged_in_the_shell(name: str) -> None:
    assert misspelt({name: "8"}, KNOBS) == ()


def test_an_empty_variable_is_an_unset_one() -> None:
    assert misspelt({"MAX_NUM_SEQ": ""}, KNOBS) == ()


def test_in_dotenv_every_unknown_name_is_refused_and_values_are_not_shown() -> None:
    found = unknown(["TPP", "tp", "COLOUR", "COMPOSE_PARALLEL_LIMIT", "HF_TOKEN", "TP", "API_KYE"], KNOBS)
    cures = {refusal.setting: refusal.cure for refusal in found}
    assert list(cures) == ["API_KYE", "COLOUR", "TPP", "tp"]
    assert "API_KEY" in cures["API_KYE"]
    assert "Remove COLOUR" in cures["COLOUR"]
    assert "Write TP " in cures["TPP"]
    assert "Write TP " in cures["tp"]


@given(st.text("AB", max_size=6), st.text("AB", max_size=6))
def test_distance_is_symmetric_and_never_zero(left: str, right: str) -> None:
    assert one_edit_apart(left, right) == one_edit_apart(right, left)
    assert not one_edit_apart(left, left)


@given(st.text("ABC_", min_size=1, max_size=8), st.data())
def test_every_single_edit_is_found(word: str, data: st.DataObject) -> None:
    at = data.draw(st.integers(0, len(word) - 1))
    edited = data.draw(
        st.sampled_from([word[:at] + word[at + 1 :], word[:at] + "X" + word[at:], word[:at] + "X" + word[at + 1 :]])
    )
    assert one_edit_apart(word, edited)


def test_no_usual_variable_of_a_shell_is_taken_for_a_typo() -> None:
    usual = """PATH HOME USER SHELL LANG TERM PWD OLDPWD HOSTNAME LOGNAME MAIL EDITOR PAGER DISPLAY TZ LC_ALL TMPDIR
        XDG_RUNTIME_DIR SSH_CONNECTION SSH_AUTH_SOCK LS_COLORS VIRTUAL_ENV PYTHONPATH CUDA_HOME CUDA_VISIBLE_DEVICES
        HF_HOME HF_TOKEN HTTP_PROXY NO_PROXY NCCL_DEBUG_SUBSYS NCCL_SOCKET_IFNAME VLLM_CACHE_ROOT VLLM_PORT PS1 PS2 CI
        DEBIAN_FRONTEND DOCKER_HOST LD_LIBRARY_PATH MANPATH INFOPATH SHLVL COLORTERM NVIDIA_VISIBLE_DEVICES TEST
        MODEL PORT GID UID ROLE_ARN TORCH_HOME OMP_NUM_THREADS MASTER_ADDR MASTER_PORT RANK WORLD_SIZE"""
    assert misspelt(dict.fromkeys(usual.split(), "x"), registry()) == ()
