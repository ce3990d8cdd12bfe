"""Run by test_parsers.py with PYTHONPATH = a tree of vLLM: parse argvs (JSON on stdin) with that tree's own parser.

Prints one JSON line: the version, and per argv either some parsed values or the error.
"""

import json
import sys

from vllm import __version__
from vllm.entrypoints.launchers.cli_args import make_arg_parser, validate_parsed_serve_args
from vllm.utils.argparse_utils import FlexibleArgumentParser

parser = make_arg_parser(FlexibleArgumentParser())


def parsed(argv: list[str]) -> dict[str, object]:
    try:
        values = parser.parse_args(argv)
        validate_parsed_serve_args(values)
    except (SystemExit, ValueError, TypeError) as error:
        return {"error": f"{type(error).__name__}: {error}"}
    wanted = (
        "model_tag",
        "tensor_parallel_size",
        "nnodes",
        "node_rank",
        "master_addr",
        "master_port",
        "headless",
        "host",
        "port",
        "kv_cache_memory_bytes",
        "block_size",
        "max_num_seqs",
        "speculative_config",
        "limit_mm_per_prompt",
        "max_cudagraph_capture_size",
        "mm_encoder_tp_mode",
        "long_prefill_token_threshold",
        "max_logprobs",
        "cudagraph_capture_sizes",
    )
    return {name: getattr(values, name) for name in wanted}


print(json.dumps([__version__, [parsed(argv) for argv in json.load(sys.stdin)]], default=str))
