"""An overlay's way from ./glm53 into vLLM: mounted, named, on the engine's path, switched in its environment."""

from pathlib import Path

from core.plan import BoxPlan, GroupPlan
from core.registry import registry
from core.settings import resolve
from entrypoint.serve.environment import environment
from entrypoint.stages.ground import misfits, stock, unloaded
from experimental.overlays import CONTAINER, DIST_INFO, PLUGIN, ROOM, Mount, Overlay, Setting
from launcher.generate import knobs_md, of_overlay, overlay_yaml, stale

GROUP = GroupPlan(2, "switch", "gb10")
BOX = BoxPlan(0, 2, "10.0.0.1", "10.0.0.1", "eth0", "10.0.0.1", 20000, 8000)
OVERLAY = Overlay(
    name="x",
    summary="an example",
    order=1,
    default=True,
    switch="GLM53_OVERLAY_X",
    needs=(),
    excludes=(),
    changes_weights=False,
    verified=(),
    cost="",
    settings=(Setting("GLM53_OVERLAY_X_PRICE", "$5", "pattern", "what it costs"),),
    mounts=(Mount("experimental/x", f"{CONTAINER}/experimental/x"),),
    hooks=(),
)


def test_its_compose_file_mounts_it_read_only_and_leaves_the_last_word_to_the_user() -> None:
    text = of_overlay(OVERLAY)
    assert "- GLM53_OVERLAY_X=${GLM53_OVERLAY_X:-1}" in text
    assert "- GLM53_OVERLAY_X_PRICE=${GLM53_OVERLAY_X_PRICE:-$$5}" in text
    assert "- ../experimental/x:/opt/glm53-overlays/experimental/x:ro" in text
    assert "environment" not in overlay_yaml("a library", (), OVERLAY.mounts)


def test_knobs_md_names_its_switch_and_its_settings() -> None:
    text = knobs_md({}, (OVERLAY,))
    assert "| `GLM53_OVERLAY_X` | on | flag | an example |" in text
    assert "| `GLM53_OVERLAY_X_PRICE` | `$5` | pattern | what it costs |" in text


def test_vllm_finds_the_plugin_only_when_an_overlay_is_on() -> None:
    shell = {"GLM53_OVERLAYS": "x", "GLM53_OVERLAY_X": "1", "PYTHONPATH": "/opt/mine"}
    child = environment(GROUP, BOX, shell)
    assert child["PYTHONPATH"] == f"{CONTAINER}:/opt/mine"
    assert child["GLM53_OVERLAY_X"] == "1"
    assert CONTAINER not in environment(GROUP, BOX, {"GLM53_OVERLAYS": ""}).get("PYTHONPATH", "")


def test_a_container_without_overlays_refuses_unless_that_is_meant() -> None:
    def refused(**environ: str) -> list[str]:
        return [refusal.cure for refusal in stock(resolve(registry(), environ))]

    (cure,) = refused()
    assert "./glm53 --stock up -d" in cure
    for meant in ({"GLM53_OVERLAYS": "x"}, {"ALLOW_STOCK": "1"}, {"ENGINE_PROFILE": "lab-cpu"}):
        assert refused(**meant) == []


def test_a_box_refuses_a_setting_that_came_by_another_way() -> None:
    settings = resolve(registry(), {"GLM53_OVERLAYS": "mhc,somebodys"})
    (told,) = misfits(settings, None, {"GLM53_OVERLAY_MHC": "off"})
    assert "GLM53_OVERLAY_MHC: seen 'off'; expected 0 or 1" in str(told)
    assert not list(misfits(settings, None, {"GLM53_OVERLAY_MHC": "0"}))


def test_vllm_is_not_told_to_leave_our_plugin_out() -> None:
    def refused(overlays: str, plugins: str) -> list[str]:
        return [
            str(told) for told in unloaded(resolve(registry(), {"GLM53_OVERLAYS": overlays}), {"VLLM_PLUGINS": plugins})
        ]

    (told,) = refused("x", "other")
    assert "VLLM_PLUGINS=other,glm53" in told
    assert refused("x", "other,glm53") == refused("x", "") == refused("", "other") == []
    entry = Path(ROOM / DIST_INFO / "entry_points.txt").read_text()
    assert f"\n{PLUGIN} = experimental.plugin:register\n" in entry


def test_the_compose_file_of_an_overlay_that_is_gone_is_stale(tmp_path: Path) -> None:
    root = Path(__file__).resolve().parents[4]
    (tmp_path / "compose").mkdir()
    (tmp_path / "compose/glm53.yaml").write_text((root / "compose/glm53.yaml").read_text())
    (tmp_path / "experimental/compose").mkdir(parents=True)
    (tmp_path / "experimental/compose/gone.yaml").touch()
    assert stale(tmp_path) == ["experimental/compose/gone.yaml"]
