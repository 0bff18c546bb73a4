"""Child of gate.py: runs one asset in Apple's runtime, which ends the process where it finds fault.

    runtime.py ASSET IN.npz OUT.npz    ids, cuts (tokens a call), blocks (sizes that a prefill function takes), seed_NAME (states to begin with), capacity -> logits, state_NAME
"""
import asyncio, sys
import numpy as np
from coreai.authoring import AIModelAsset
from coreai.runtime import NDArray


async def main(asset, source, target):
    given = np.load(source)
    ids, cuts, capacity = given["ids"], given["cuts"].tolist(), int(given["capacity"])
    first = int(given["first"])  # position of the first id
    async with AIModelAsset.load(asset).executable() as model:
        f = model.load_function("main")
        assert f.desc.input_names == ["input_ids", "position_ids"] and f.desc.output_names == ["logits"]
        states = {}
        for name in f.desc.state_names:
            d = f.desc.state_descriptor(name)
            shape = [capacity if n is None or n < 0 else n for n in d.shape]
            value = np.zeros(shape, np.float32 if "float32" in str(d.dtype) else np.float16)
            if f"seed_{name}" in given:
                seed = given[f"seed_{name}"]
                value[tuple(slice(n) for n in seed.shape)] = seed
            states[name] = NDArray(value)
        rows, at = [np.zeros((0, 0), np.float32)], 0
        blocks = set(given["blocks"].tolist()) if "blocks" in given else set()
        for n in cuts:
            call = {"input_ids": NDArray(ids[None, at : at + n].astype(np.int32)),
                    "position_ids": NDArray(np.arange(first + at + n, dtype=np.int32)[None])}
            if n in blocks:
                await model.load_function(f"prefill_{n}")(call, states)
            else:
                rows.append((await f(call, states))["logits"].numpy()[0].astype(np.float32))
            at += n
        np.savez(target, logits=np.concatenate(rows[1:]), **{f"state_{n}": v.numpy() for n, v in states.items()})


asyncio.run(main(*sys.argv[1:]))
