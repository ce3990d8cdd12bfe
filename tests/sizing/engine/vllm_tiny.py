"""Run inside a vLLM: load a tiny model over TP ranks of this machine and print what greedy decoding says.

    python vllm_tiny.py FOLDER TP [DTYPE]

The engine's own lines go to stderr and stdout as it pleases; ours is the one that begins with ANSWER.
"""

import json
import sys


def main() -> None:
    from vllm import LLM, SamplingParams

    folder, ranks = sys.argv[1], int(sys.argv[2])
    engine = LLM(
        folder,
        dtype=sys.argv[3] if len(sys.argv) > 3 else "auto",
        tensor_parallel_size=ranks,
        distributed_executor_backend="mp" if ranks > 1 else "uni",
        max_model_len=1024,
        enforce_eager=True,
        gpu_memory_utilization=0.1,
        skip_tokenizer_init=True,
    )
    prompt = {"prompt_token_ids": [3 + 5 * step % 250 for step in range(40)]}
    wanted = SamplingParams(temperature=0, max_tokens=24, detokenize=False, ignore_eos=True)
    (answer,) = engine.generate([prompt], wanted, use_tqdm=False)
    print("ANSWER " + json.dumps(list(answer.outputs[0].token_ids)), flush=True)


if __name__ == "__main__":
    main()
