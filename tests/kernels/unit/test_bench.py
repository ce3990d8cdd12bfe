"""The bench's run without a GPU: every section is listed and measured, failures and the deadline lose nothing."""

import argparse
import json
from pathlib import Path
from typing import Any

import pytest

from bench import kernels, kernels_sizes, kernels_small, kernels_variants
from bench.kernels_sizes import SECTIONS, SIZES, listing
from experimental.overlays import ROOM


def options(**other: Any) -> argparse.Namespace:
    return argparse.Namespace(**{"only": [], "no_checks": False, "minutes": 8.0, "tp": 4, **other})


def test_every_section_listed_is_measured() -> None:
    assert [section.name for section in SECTIONS] == list(kernels.MEASURES)
    for tp in SIZES:
        lines = listing(tp).splitlines()
        assert len(lines) == len(SECTIONS) + sum(len(section.cases(tp)) for section in SECTIONS)
    assert listing(4, ("moe_decode",)).splitlines()[-1] == "  I=512 64 tokens"


def test_a_failed_section_is_named_and_the_others_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(given: argparse.Namespace) -> Any:
        raise kernels.Wrong("17 cases")

    monkeypatch.setattr(kernels, "MEASURES", {name: lambda given: [1] for name in kernels.MEASURES} | {"topk": fails})
    result: dict[str, Any] = {}
    assert kernels.measure(options(no_checks=True), result, tmp_path / "out.json") == 1
    kept = json.loads((tmp_path / "out.json").read_text())
    assert kept["failures"] == {"topk": "17 cases"}
    assert kept["mhc"] == [1]
    assert "checks" not in kept


def test_an_error_that_is_no_number_is_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, case, tokens in (("head_gate", "gate_case", 5), ("mhc", "mhc_case", 6)):
        monkeypatch.setattr(kernels_small, case, lambda count: {"tokens": count, "error": 1e-5})
        assert len(kernels.MEASURES[name](options())) == tokens
        for error in (float("nan"), 1.1e-5):
            monkeypatch.setattr(kernels_small, case, lambda count, error=error: {"error": error})
            with pytest.raises(kernels.Wrong, match=name):
                kernels.MEASURES[name](options())


def test_other_words_than_build_and_table_compile_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    for words in ([], ["--help"], ["build", "somewhere"], ["build", "somewhere", "99"]):
        assert kernels_variants.main(words) == 2
        assert "build FOLDER 121" in capsys.readouterr().err


def test_a_dry_run_takes_the_options_of_a_run(capsys: pytest.CaptureFixture[str]) -> None:
    given = ["--only", "checks", "mhc", "--no-checks", "--minutes", "3", "--out", "x.json", "--tp", "2"]
    assert kernels_sizes.main(given) == 0
    assert capsys.readouterr().out.startswith("mhc: ")
    with pytest.raises(SystemExit):
        kernels_sizes.main(["--only", "nonesuch"])
    assert "'nonesuch'" in capsys.readouterr().err


def test_no_section_starts_after_the_deadline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernels, "MEASURES", {name: lambda given: [1] for name in kernels.MEASURES})
    result: dict[str, Any] = {}
    failed = kernels.measure(options(minutes=-1.0, only=["topk", "mhc"]), result, tmp_path / "out.json")
    assert failed == 2
    assert result["topk"].startswith("left out: no time left")


def test_the_tables_show_what_was_measured() -> None:
    row = {"kernel": "dense_w4", "size": "6416x4096", "m": 1, "us": 8.2, "gbps": 1798.0, "gbps_per_sm": 13.6}
    shown = kernels.markdown(
        {
            "gpu": "a GPU", "sms": 132, "dense_w4": [row | {"plain_us": 505.0}],
            "ceilings": {"copy_gbps": 4200.0, "read_gbps": 4400.0, "launch_floor_us": 1.1},
            "mhc": [{"tokens": 1, "us": 2.0, "vllm_us": None}],
        }
    )  # fmt: skip
    assert "| dense_w4 | 6416x4096 | 1 | 8.2 | 1798 | 13.6 | 41 % | 505 |" in shown
    assert "mhc tokens=1 us=2 vllm_us=None" in shown


def test_the_readmes_tables_are_those_of_the_recorded_run() -> None:
    result = json.loads((kernels.RESULTS / "kernels-nvidia-h200.json").read_text())
    checked = []
    for line in kernels.markdown(result).splitlines():
        name, _, row = line.removeprefix("| ").partition(" | ")
        name, row = ("sparse_mla", line) if name.isdigit() else (name, f"| {row}")
        if name in ("dense_w4", "dense_fp8", "moe_decode", "sparse_mla"):
            assert row in (ROOM / name / "README.md").read_text().replace(",", ""), line
            checked.append(name)
    assert checked == ["dense_w4"] * 15 + ["dense_fp8"] * 12 + ["moe_decode"] * 7 + ["sparse_mla"] * 3
    for name, row in result["checks"]["kernels"].items():
        assert f"{row['cases']} cases" in (ROOM / name.split()[0] / "README.md").read_text().replace("\n", " "), name


def test_the_readmes_lines_of_other_tps_are_those_of_their_recorded_runs() -> None:
    for tp in (2, 3, 6):
        result = json.loads((kernels.RESULTS / f"kernels-nvidia-h200-tp{tp}.json").read_text())
        assert result["tp"] == tp
        for name in ("dense_w4", "dense_fp8", "moe_decode"):
            assert kernels.by_size(result, name) in " ".join((ROOM / name / "README.md").read_text().split()), name
