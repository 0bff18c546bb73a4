"""How far fp16 rounding alone moves a package's logits: strict mode, with one number of every token's embedding changed by one
unit in the last place, chosen at random. For docs/fidelity.md.

    .venv/bin/python bench/strict_noise.py RUNS        # over the shared third-party cases, if they are there
"""
import pathlib, sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "tests" / "python"))
import binding
import numpy as np
from cases import directory, load
from thirdparty import Anemll

NAME = "bhctsntrk-anemll-qwen3.5-lut4-2chunk"


class Disturbed(Anemll):
    """The same driver, whose embeddings are one unit off in one place."""

    def __init__(self, path, random):
        super().__init__(path, "strict")
        embed = self.embed.predict

        def predict(inputs):
            out = embed(inputs)
            if random:
                x = out["hidden_states"].astype(np.float16)
                where = random.integers(x.size)
                x.flat[where] = np.nextafter(x.flat[where], np.float16(np.inf), dtype=np.float16)
                out["hidden_states"] = x
            return out

        self.embed.predict = predict


path = directory("thirdparty") / NAME
ids = load(path / "oracle.safetensors")["greedy_full_ids"].tolist()
oracle = load(path / "pkg_oracle.safetensors")
for seed in [None, *range(int(sys.argv[1]))]:
    driver = Disturbed(path, None if seed is None else np.random.default_rng(seed))
    rows = np.array([driver.feed([i]) for i in ids])[oracle["positions"]]
    error = np.abs(rows - oracle["pkg_logits"])
    worst = error.max(axis=1)
    print(f"{'undisturbed' if seed is None else f'seed {seed}':12} largest {worst.max():.3f} at position {worst.argmax()}, "
          f"second {np.sort(worst)[-2]:.3f}, rms {np.sqrt((error ** 2).mean()):.4f}", flush=True)
