"""Nothing secret is shown: property-tested for known values, table-tested for places; and never slow."""

from __future__ import annotations

import json
import time
from pathlib import Path
from urllib.parse import quote

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from core.mask import MASK, is_secret_name, known_secrets, mask, mask_argv
from evidence.collect import collect

SECRETS = st.lists(st.text(min_size=4, max_size=40).filter(lambda text: "*" not in text), min_size=1, max_size=4)


@settings(max_examples=300, deadline=None)
@given(SECRETS, st.text(max_size=60), st.text(max_size=60), st.data())
def test_a_known_secret_is_in_no_text_in_any_spelling(
    secrets: list[str], before: str, after: str, data: st.DataObject
) -> None:
    secret = data.draw(st.sampled_from(secrets))
    for form in (secret, json.dumps(secret)[1:-1], quote(secret, safe=""), repr(secret)[1:-1]):
        shown = mask(f"{before}{form}{after}", secrets)
        # What the text held beside the secret may spell it once more; masking again changes nothing then either.
        assert all(one not in shown for one in secrets)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("GROUP_SECRET=abcd1234", f"GROUP_SECRET={MASK}"),
        ("export HF_TOKEN='abc def'", f"export HF_TOKEN='{MASK}'"),
        ('{"api_key": "abcdefgh", "port": 8}', f'{{"api_key": "{MASK}", "port": 8}}'),
        ("--api-key abcdefgh --port 8002", f"--api-key {MASK} --port 8002"),
        ("--api-key=abcdefgh", f"--api-key={MASK}"),
        ("Authorization: Bearer abc.def", f"Authorization: Bearer {MASK}"),
        ("Authorization: Basic dXNlcg==", f"Authorization: Basic {MASK}"),
        ("got bearer 0123456789abcdef", f"got bearer {MASK}"),
        ("https://user:pass@host/path", f"https://{MASK}@host/path"),
        ("hf_abcdefghij and sk-abcdefghij", f"{MASK} and {MASK}"),
        # and what only looks alike
        ("max_tokens=512 token_ids=[1, 2]", None),
        ("the token is spent", None),
        ("first token: 0.4", f"first token: {MASK}"),
        ("TOKEN=512", None),
        ("GROUP_SECRET is not set", None),
        ("https://host:8082/mcp", None),
        ("basic configuration", None),
    ],
)
def test_places_where_secrets_stand(text: str, shown: str | None) -> None:
    assert mask(text) == (text if shown is None else shown)


@settings(max_examples=200, deadline=None)
@given(
    st.sampled_from(["GROUP_SECRET", "my_api_key", "HF-TOKEN", "Password"]),
    st.from_regex(r"[A-Za-z]{8,30}", fullmatch=True),
)
def test_a_value_behind_a_secret_name_is_hidden_also_when_unknown(name: str, value: str) -> None:
    for text in (f"{name}={value}", f'"{name}": "{value}"', f"{name}: '{value}'", f"--{name} {value}"):
        if value.lower() not in ("none", "null", "true", "false"):
            assert value not in mask(text)


def test_an_argv_keeps_its_shape() -> None:
    argv = ["vllm", "--api-key", "abcd", "--port", "8002", "--hf-token=xyzw", "--max-tokens", "9"]
    assert mask_argv(argv) == ["vllm", "--api-key", MASK, "--port", "8002", f"--hf-token={MASK}", "--max-tokens", "9"]


def test_names_and_files_of_secrets(tmp_path: Path) -> None:
    (tmp_path / "key").write_text(" from-a-file \n")
    environ = {
        "API_KEY": "direct-value",
        "API_KEY_FILE": str(tmp_path / "key"),
        "STATUS_TOKEN_FILE": "/nowhere",
        "MAX_TOKENS": "4096",
        "PIN_TOKEN": "abc",
    }
    assert known_secrets(environ) == ("direct-value", "from-a-file")
    assert is_secret_name("AWS_SECRET_ACCESS_KEY")
    assert not is_secret_name("API_KEY_FILE")


@pytest.mark.parametrize(
    "line",
    [
        *("a-" * 100_000, "token" * 40_000, "token " * 30_000, "--" * 100_000, "token" + " " * 200_000, "://" * 60_000),
        *("://a:" * 40_000, "bearer " * 30_000, '"' * 200_000, "secret='" * 25_000, "hf_" * 70_000),
    ],
)
def test_no_line_takes_long(line: str) -> None:
    began = time.process_time()
    mask(line, ("abcdefgh",))
    assert time.process_time() - began < 2  # linear; a quadratic one takes minutes


def test_evidence_holds_no_secret(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GROUP_SECRET", "the-secret-of-this-test")
    summary = {"reason": "because of the-secret-of-this-test", "some_token": 123456789}
    lines = ["--api-key hunter2hunter2", "sent the-secret-of-this-test"]
    folder = collect(tmp_path, "abc", summary, lines, [])
    text = "".join(file.read_text() for file in folder.iterdir())
    assert "the-secret-of-this-test" not in text
    assert "hunter2" not in text
    json.loads((folder / "summary.json").read_text())
