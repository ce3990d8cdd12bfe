"""Triton pieces shared by the 4-bit kernels: from packed NVFP4 in memory to tensor-core operands without shared memory.

The idea. A warp's 32 lanes hold an m16n8k16 operand as (row = lane // 4, k pair = lane % 4). One 16-byte load a lane of
eight rows by 64 bytes is the same distribution, so what is loaded is already where the tensor core wants it; only the
order of k differs, and a product does not mind as long as both operands agree. Every helper below therefore works on
tiles shaped [registers..., WARPS, 8, 4 lanes * contiguous] and reaches `tl.dot` through reshape and permute alone.

A tile covers 128 * CHUNKS values of k a warp. Word w (int16) of lane q holds k = 32 q + 4 w .. + 3: four planes, one a
nibble, each of which is one dot over w. The 32 values of a lane carry two scales.

bf16 holds e2m1 x e4m3 exactly (6 significant bits): a nibble's bits placed in a bf16 are the value times 2^-126, a
scale byte's are the scale times 2^-120; powers of two bring the product to value * 2^-14, the caller's alpha the rest.

HALF does the same in fp16, for activations that are ours to round: 2^-14 and 2^-8 there, 2^-7 after the product.
FAST is False under Triton's interpreter, which has no inline assembly: there the same values come from arithmetic.
"""

from __future__ import annotations

import triton
import triton.language as tl

# The product the planes hold is value * scale * 2^-14 in bf16, * 2^-7 in fp16: multiply accumulators by these.
UNSCALE = {"bf16": 16384.0, "fp16": 128.0}


def _assembly(left: int, right: int, mask: str, kind: str) -> tl.constexpr:
    """Two nibbles, one a 16-bit half: sign to bit 15 by `left`, magnitude under `mask` by `right`, times scale."""
    sign = f"shl.b32 a, $1, {left};" if left else "mov.b32 a, $1;"
    size = f"shr.u32 t, $1, {right};" if right >= 0 else f"shl.b32 t, $1, {-right};"
    body = f"{sign} {size} and.b32 t, t, {mask}; lop3.b32 a, a, 0x80008000, t, 0xEA; mul.rn.{kind}x2 $0, a, $2;"
    return tl.constexpr("{ .reg .b32 a, t; " + body + " }")


# Nibble J's magnitude ends at bit 4 J; in a bf16 it belongs at bit 6, in an fp16 at bit 9.
_BF16_0 = _assembly(12, -6, "0x01C001C0", "bf16")
_BF16_1 = _assembly(8, -2, "0x01C001C0", "bf16")
_BF16_2 = _assembly(4, 2, "0x01C001C0", "bf16")
_BF16_3 = _assembly(0, 6, "0x01C001C0", "bf16")
_FP16_0 = _assembly(12, -9, "0x0E000E00", "f16")
_FP16_1 = _assembly(8, -5, "0x0E000E00", "f16")
_FP16_2 = _assembly(4, -1, "0x0E000E00", "f16")
_FP16_3 = _assembly(0, 3, "0x0E000E00", "f16")


@triton.jit
def plane(words, scales, J: tl.constexpr, HALF: tl.constexpr, FAST: tl.constexpr):
    """Values of nibble J of each word times their scale (`scale_values`), unscaled: bf16, or fp16 when HALF."""
    if not FAST:
        code = (words.to(tl.int32) >> (4 * J)) & 0xF
        exponent = (code >> 1) & 3
        half = (code & 1).to(tl.float32) * 0.5
        magnitude = tl.where(exponent == 0, half, (1.0 + half) * tl.exp2((exponent - 1).to(tl.float32)))
        factor: tl.constexpr = 0.0078125 if HALF else 6.103515625e-05
        values = tl.where(code >= 8, -magnitude, magnitude) * scales * factor
    elif HALF:
        if J == 0:
            values = _fp16(words, scales, _FP16_0)
        elif J == 1:
            values = _fp16(words, scales, _FP16_1)
        elif J == 2:
            values = _fp16(words, scales, _FP16_2)
        else:
            values = _fp16(words, scales, _FP16_3)
    else:
        if J == 0:
            values = _bf16(words, scales, _BF16_0)
        elif J == 1:
            values = _bf16(words, scales, _BF16_1)
        elif J == 2:
            values = _bf16(words, scales, _BF16_2)
        else:
            values = _bf16(words, scales, _BF16_3)
    return values


@triton.jit
def _bf16(words, scales, ASSEMBLY: tl.constexpr):
    return tl.inline_asm_elementwise(ASSEMBLY, "=r,r,r", [words, scales], dtype=tl.bfloat16, is_pure=True, pack=2)


@triton.jit
def _fp16(words, scales, ASSEMBLY: tl.constexpr):
    return tl.inline_asm_elementwise(ASSEMBLY, "=r,r,r", [words, scales], dtype=tl.float16, is_pure=True, pack=2)


@triton.jit
def scale_values(
    pairs, CHUNKS: tl.constexpr, R: tl.constexpr, WARPS: tl.constexpr, HALF: tl.constexpr, FAST: tl.constexpr
):
    """int16 pairs of e4m3 bytes [CHUNKS, R, WARPS, 8, 4] to the factors `plane` wants, [..., 2, 2, 2] for its words."""
    byte_of = tl.arange(0, 2)[None, None, None, None, None, :].to(tl.int16) * 8
    codes = (tl.reshape(pairs, [CHUNKS, R, WARPS, 8, 4, 1]) >> byte_of) & 0x7F
    if FAST and HALF:
        scales = tl.inline_asm_elementwise(
            "{ .reg .b32 t; mov.b32 t, 0x78007800; mul.rn.f16x2 $0, $1, t; }",  # 2^15
            "=r,r",
            [codes << 7],
            dtype=tl.float16,
            is_pure=True,
            pack=2,
        )
    elif FAST:
        scales = tl.inline_asm_elementwise(
            "{ .reg .b32 a, t; mov.b32 t, 0x7B807B80; mul.rn.bf16x2 a, $1, t; "  # 2^120
            "mov.b32 t, 0x77807780; mul.rn.bf16x2 $0, a, t; }",  # 2^112
            "=r,r",
            [codes << 4],
            dtype=tl.bfloat16,
            is_pure=True,
            pack=2,
        )
    else:
        wide = codes.to(tl.int32)
        exponent = wide >> 3
        eighths = (wide & 7).to(tl.float32) * 0.125
        scales = tl.where(exponent == 0, eighths * 0.015625, (1.0 + eighths) * tl.exp2((exponent - 7).to(tl.float32)))
    scales = tl.reshape(scales, [CHUNKS, R, WARPS, 8, 4, 2, 1, 1])
    return tl.broadcast_to(scales, [CHUNKS, R, WARPS, 8, 4, 2, 2, 2])


@triton.jit
def scattered(index, M):
    """`index`, times a one the compiler cannot see: neighbours then do not look contiguous to it (M is at least 1).

    A lane loads its own scale pair alone; two pairs a lane would put the scales on other lanes than their words.
    """
    return index * tl.minimum(M, 1)


@triton.jit
def weight_operand(values, CHUNKS: tl.constexpr, R: tl.constexpr, WARPS: tl.constexpr):
    """A plane [CHUNKS, R, WARPS, 8, q, group, half, pair] as the left operand [WARPS, 8 R, 32 CHUNKS]."""
    values = tl.permute(values, [2, 1, 3, 0, 5, 6, 4, 7])
    return tl.reshape(values, [WARPS, R * 8, 32 * CHUNKS])


@triton.jit
def token_operand(values, CHUNKS: tl.constexpr, TILES: tl.constexpr, WARPS: tl.constexpr):
    """A plane of tokens [4 CHUNKS, TILES, WARPS, 8, q, pair] as the right operand [WARPS, 32 CHUNKS, 8 TILES]."""
    values = tl.permute(values, [2, 0, 4, 5, 1, 3])
    return tl.reshape(values, [WARPS, 32 * CHUNKS, TILES * 8])


@triton.jit
def accumulate(
    acc,
    words,
    pairs,
    tokens,
    CHUNKS: tl.constexpr,
    R: tl.constexpr,
    TILES: tl.constexpr,
    WARPS: tl.constexpr,
    HALF: tl.constexpr,
    FAST: tl.constexpr,
):
    """acc [WARPS, 8 R, 8 TILES] plus the product of a weight tile and a token tile, in the order of planes 0 to 3.

    words  int16 [CHUNKS, R, WARPS, 8, 32]; pairs int16 [CHUNKS, R, WARPS, 8, 4];
    tokens bf16 (fp16 when HALF) [4 CHUNKS, TILES, WARPS, 8, 4, 8]: k = 32 q + 8 (first index % 4) + last index.
    """
    scales = scale_values(pairs, CHUNKS, R, WARPS, HALF, FAST)
    words = tl.reshape(words, [CHUNKS, R, WARPS, 8, 4, 2, 2, 2])
    if not FAST:
        tokens = tokens.to(tl.float32)
    planes = tl.reshape(tokens, [4 * CHUNKS, TILES, WARPS, 8, 4, 2, 2, 2])
    even, odd = tl.split(planes)
    t0, t2 = tl.split(even)
    t1, t3 = tl.split(odd)
    a = weight_operand(plane(words, scales, 0, HALF, FAST), CHUNKS, R, WARPS)
    acc = tl.dot(a, token_operand(t0, CHUNKS, TILES, WARPS), acc)
    a = weight_operand(plane(words, scales, 1, HALF, FAST), CHUNKS, R, WARPS)
    acc = tl.dot(a, token_operand(t1, CHUNKS, TILES, WARPS), acc)
    a = weight_operand(plane(words, scales, 2, HALF, FAST), CHUNKS, R, WARPS)
    acc = tl.dot(a, token_operand(t2, CHUNKS, TILES, WARPS), acc)
    a = weight_operand(plane(words, scales, 3, HALF, FAST), CHUNKS, R, WARPS)
    return tl.dot(a, token_operand(t3, CHUNKS, TILES, WARPS), acc)


@triton.jit
def let_next_start(OVERLAP: tl.constexpr, FAST: tl.constexpr):
    """Allow the next kernel of the stream to start while this one runs (programmatic dependent launch)."""
    if OVERLAP and FAST:
        tl.inline_asm_elementwise(
            "griddepcontrol.launch_dependents; mov.b32 $0, 0;", "=r", [], dtype=tl.int32, is_pure=False, pack=1
        )


@triton.jit
def wait_for_previous(OVERLAP: tl.constexpr, FAST: tl.constexpr):
    """Wait until the previous kernel of the stream has ended and its writes are seen; constants may be read before."""
    if OVERLAP and FAST:
        tl.inline_asm_elementwise(
            "griddepcontrol.wait; mov.b32 $0, 0;", "=r", [], dtype=tl.int32, is_pure=False, pack=1
        )
