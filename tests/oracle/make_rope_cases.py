"""tests/data/rope_cases.json: what transformers makes of rope_scaling (needs torch and transformers; made once).

    python tests/oracle/make_rope_cases.py >tests/data/rope_cases.json

A row: the members that config.json has, the inverse frequencies in float64 (its functions compute in float32: within 1e-6 of
these) and the factor of cosines and sines."""
import json

import torch
import transformers
from transformers import LlamaConfig
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

BASE = {"model_type": "llama", "vocab_size": 64, "hidden_size": 256, "intermediate_size": 64, "num_hidden_layers": 1,
        "num_attention_heads": 4, "num_key_value_heads": 2, "rms_norm_eps": 1e-5, "head_dim": 64,
        "max_position_embeddings": 4096, "tie_word_embeddings": True, "hidden_act": "silu"}
CASES = [
    {"rope_theta": 10000.0},
    {"rope_theta": 10000.0, "rope_scaling": {"rope_type": "linear", "factor": 4.0}},
    {"rope_theta": 500000.0, "rope_scaling": {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
                                              "original_max_position_embeddings": 1024}},
    {"rope_theta": 1000000.0, "max_position_embeddings": 131072,
     "rope_scaling": {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32768}},
    {"rope_theta": 10000.0, "head_dim": 128, "rope_scaling": {"rope_type": "yarn", "factor": 16.0, "beta_fast": 24.0, "beta_slow": 2.0,
                                              "original_max_position_embeddings": 2048, "attention_factor": 1.5}},
    {"rope_theta": 10000.0, "rope_scaling": {"rope_type": "yarn", "factor": 40.0, "mscale": 1.0, "mscale_all_dim": 0.5,
                                              "original_max_position_embeddings": 4096}},
    {"rope_theta": 150000.0, "rope_scaling": {"rope_type": "yarn", "factor": 32.0, "truncate": False,
                                              "original_max_position_embeddings": 4096}},
]

rows = []
for case in CASES:
    config = LlamaConfig(**{k: v for k, v in {**BASE, **case}.items() if k != "model_type"})
    kind = case.get("rope_scaling", {}).get("rope_type", "default")
    if kind == "default":
        frequency, factor = 1.0 / (case["rope_theta"] ** (torch.arange(0, 64, 2).float() / 64)), 1.0
    else:
        frequency, factor = ROPE_INIT_FUNCTIONS[kind](config, torch.device("cpu"))
    rows.append({"config": {**BASE, **case}, "frequency": [float(f) for f in frequency], "attention": factor})
print(json.dumps({"source": f"transformers {transformers.__version__}", "cases": rows}))
