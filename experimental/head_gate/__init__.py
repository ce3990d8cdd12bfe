"""The indexer's head gate as one bf16 product with fp32 output, in place of an fp32 product of widened inputs."""
