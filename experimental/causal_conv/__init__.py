"""The prefill convolution writes q, k and v each dense, so that FlashKDA need not copy them."""
