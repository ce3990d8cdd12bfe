"""KV pages and pools out of the model's shapes, beside what people with real boxes report."""

import pytest

import model
from core.units import GIB
from entrypoint.sizing.geometry import (
    Shape,
    drafter_pool_blocks,
    effective_block,
    indexer_page,
    kda_page,
    mla_page,
    pool,
)

MODEL = model.load()
# The builds that report 1.10M, 1.91M, 4.40M and 4.47M: drafter's own pool, RecoverSSM, 0.31's layout.
OVERLAYS = {"layout": "split", "drafter_pool": True, "recoverssm": True}


def shape(tp: int, requested: int, max_len: int, seqs: int, batch: int, **more: object) -> Shape:
    return Shape(tp, effective_block(MODEL, tp, requested, 7), max_len, seqs, batch, **more)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("tp", "requested", "effective"), [(2, 2304, 4608), (3, 3456, 3584), (4, 2304, 2304), (6, 1792, 1792)]
)
def test_vllm_lifts_the_block_until_a_kda_state_fits_a_page(tp: int, requested: int, effective: int) -> None:
    assert effective_block(MODEL, tp, requested, 7) == effective
    assert kda_page(MODEL, tp, 7) <= mla_page(MODEL, effective)


def test_pages_are_what_the_engine_allocates() -> None:
    assert kda_page(MODEL, 4, 7) == 122_880 + 1_048_576
    assert kda_page(MODEL, 2, 7) == 2_342_912
    assert mla_page(MODEL, 2304) == 1_179_648
    assert indexer_page(MODEL, 2304) == 76_032


@pytest.mark.parametrize(
    ("reported", "pin", "case"),
    [
        (1.10e6, 8, shape(2, 2304, 163840, 16, 8192, **OVERLAYS)),
        (1.91e6, 12, shape(3, 3456, 524288, 64, 16384, **OVERLAYS)),
        (4.40e6, 26, shape(4, 2304, 524288, 64, 16384, **OVERLAYS)),
        (4.47e6, 26, shape(6, 1792, 524288, 64, 16384, **OVERLAYS)),
        (2.63e6, 26, shape(4, 2304, 524288, 32, 16384, layout="split")),
        # The first build of the pool: blocks as large as the target's, still counted against each request.
        (
            3.63e6,
            26,
            shape(4, 2304, 524288, 50, 16384, layout="split", drafter_pool=True, draft_block=2304, pool_counted=True),
        ),
    ],
)
def test_reported_pools_come_out_of_the_geometry(reported: float, pin: int, case: Shape) -> None:
    assert pool(MODEL, case, pin * GIB).tokens == pytest.approx(reported, rel=0.01)


def test_reported_block_counts_come_out_too() -> None:
    stock = shape(4, 2304, 524288, 32, 16384, layout="split")
    assert pool(MODEL, stock, 26 * GIB).bytes_per_block == 19_710_720
    assert pool(MODEL, stock, 26 * GIB).blocks == 1416
    own = shape(4, 2304, 524288, 32, 16384, layout="split", drafter_pool=True, draft_block=2304)
    assert drafter_pool_blocks(MODEL, own) == 105
    assert pool(MODEL, own, 26 * GIB).blocks == 1976
    small = shape(3, 3456, 524288, 64, 16384, **OVERLAYS)
    assert drafter_pool_blocks(MODEL, small) == 705
    assert pool(MODEL, small, 12 * GIB).blocks == 567


def test_the_packed_layout_pays_nothing_per_block_for_the_drafter() -> None:
    with_drafter = pool(MODEL, shape(4, 2304, 524288, 64, 16384), 26 * GIB)
    without = pool(MODEL, shape(4, 2304, 524288, 64, 16384, spec="none"), 26 * GIB)
    assert with_drafter.bytes_per_block == without.bytes_per_block == 13_812_736
    assert with_drafter.blocks == 2021
    assert with_drafter.tokens < without.tokens  # a request's window still takes whole blocks


@pytest.mark.parametrize("tp", [2, 3, 4, 6])
def test_what_overlays_make_of_the_dense_layers_is_counted(tp: int) -> None:
    """FP8 halves what it takes; dense_w4 puts a 4-bit copy beside it; what neither takes stays as it is."""
    stock, fp8, w4 = (
        {part.name.split(" (")[0]: part.rank for part in model.weights(MODEL, tp, dense=dense)}
        for dense in model.DENSE_BYTES
    )
    for name in ("shared experts", "dense MLP", "drafter"):
        assert fp8[name] * 2 == pytest.approx(stock[name])
    assert w4["shared experts"] == pytest.approx(stock["shared experts"] * 1.5625 / 2)
    assert w4["dense MLP"] == fp8["dense MLP"]
    for name in ("routed experts", "embedding and head", "router, norms, streams", "vision tower"):
        assert stock[name] == fp8[name] == w4[name]
    assert stock["KDA layers"] / 2 < fp8["KDA layers"] < w4["KDA layers"] < stock["KDA layers"]
    assert stock["MLA layers and indexer"] / 2 < fp8["MLA layers and indexer"]  # kv_b and the indexer's keys stay
    assert sum(fp8.values()) < sum(w4.values()) < sum(stock.values())


def test_the_snapshot_of_a_rank_is_as_large_as_reported() -> None:
    """Processed weights with the original's conversions: about 48 GB a node at TP=4."""
    assert sum(part.rank for part in model.weights(MODEL, 4, dense="w4")) == pytest.approx(48e9, rel=0.05)
