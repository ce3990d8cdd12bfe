"""The NVFP4 library: pack, unpack, quantise, swizzle block scales, fold globals; torch functions with exact tests.
Values are e2m1, two a byte, even k in the low nibble; one e4m3 scale for 16 k; one fp32 global a tensor.
"""
