"""Writes tests/data/coreai: small assets made by Apple's own tools with what its runtime for Linux gives for them. Ops and kinds of
weights that no shared case has. Needs coreai-core (tests/requirements-coreai.txt) and numpy.

    make_coreai_ops.py OUT
"""
import asyncio, pathlib, sys
import numpy as np
from coreai._compiler.ir import Module as Text
from coreai.authoring import AIModelAsset, AIProgram, Context
from coreai.runtime import NDArray

out = pathlib.Path(sys.argv[1])
random = np.random.default_rng(8)


def hex_of(a):
    return '"0x' + np.ascontiguousarray(a).tobytes().hex().upper() + '"'


def weight(data, kind, scale, offset, bias):
    """y = x W^T, W the fp16 [8,64] of blocks of 32."""
    t = f"tensor<8x64x{kind}>"
    s = "tensor<8x2xf16>"
    o = f"tensor<8x2x{kind}>"
    return f"""module {{
  coreai.graph @main(%x: tensor<2x64xf16> {{coreai.name = "x"}}) -> (tensor<2x8xf16> {{coreai.name = "y"}}) {{
    %turn = coreai.constant dense<[1, 0]> : tensor<2xui32>
    %data = coreai.constant dense<{hex_of(data)}> : {t}
    %scale = coreai.constant dense<{hex_of(scale)}> : {s}
    %offset = coreai.constant dense<{hex_of(offset)}> : {o}
    %bias = coreai.constant dense<{hex_of(bias)}> : {s}
    %w = coreai.blockwise_shift_scale %data, %scale, %offset, %bias : ({t}, {s}, {o}, {s}) -> tensor<8x64xf16>
    %wt = coreai.transpose %w, %turn : (tensor<8x64xf16>, tensor<2xui32>) -> tensor<64x8xf16>
    %y = coreai.decomposable.broadcasting_batch_matmul %x, %wt : (tensor<2x64xf16>, tensor<64x8xf16>) -> tensor<2x8xf16>
    coreai.output %y : tensor<2x8xf16>
  }}
}}"""


def palette(bits):
    """Codes in a resource, the low bits first, and a table for each half of the rows."""
    rows, width = 8, 32
    codes = random.integers(0, 1 << bits, (rows, width), np.uint8)
    packed = np.packbits(codes.reshape(-1, 1) >> np.arange(bits) & 1, bitorder="little")
    table = random.standard_normal((2, 1, 1 << bits, 1)).astype(np.float32)
    t, l, w = f"tensor<{rows}x{width}xui{bits}>", f"tensor<2x1x{1 << bits}x1xf32>", f"tensor<{rows}x{width}xf32>"
    return f"""module {{
  coreai.graph @main(%x: {w} {{coreai.name = "x"}}) -> ({w} {{coreai.name = "y"}}) {{
    %codes = coreai.constant dense_resource<codes> : {t}
    %table = coreai.constant dense<{hex_of(table)}> : {l}
    %axis = coreai.constant dense<0> : tensor<si16>
    %w = coreai.lut_to_dense %codes, %table, %axis : ({t}, {l}, tensor<si16>) -> {w}
    %y = coreai.add %x, %w : ({w}, {w}) -> {w}
    coreai.output %y : {w}
  }}
}}
{{-# dialect_resources: {{ builtin: {{ codes: "0x10000000{packed.tobytes().hex()}" }} }} #-}}
"""


def dequantized(offset, bias):
    """Of codes that come from outside: a row's own numbers, then one for all of them."""
    t, y = "tensor<3x8xsi8>", "tensor<3x8xf16>"
    f, o = "tensor<3x1xf16>", "tensor<3x1xsi8>"
    return f"""module {{
  coreai.graph @main(%codes: {t} {{coreai.name = "codes"}}, %scale: {f} {{coreai.name = "scale"}}) -> ({y} {{coreai.name = "y"}}, {y} {{coreai.name = "z"}}) {{
    %offset = coreai.constant dense<{hex_of(offset)}> : {o}
    %bias = coreai.constant dense<{hex_of(bias)}> : {f}
    %two = coreai.constant dense<2.0> : tensor<f16>
    %three = coreai.constant dense<3> : tensor<si8>
    %one = coreai.constant dense<1.0> : tensor<f16>
    %y = coreai.blockwise_shift_scale %codes, %scale, %offset, %bias : ({t}, {f}, {o}, {f}) -> {y}
    %z = coreai.blockwise_shift_scale %codes, %two, %three, %one : ({t}, tensor<f16>, tensor<si8>, tensor<f16>) -> {y}
    coreai.output %y, %z : {y}, {y}
  }}
}}"""


BRANCH = """module {
  coreai.graph @main(%x: tensor<4xf32> {coreai.name = "x"}, %k: tensor<si32> {coreai.name = "k"}) -> (tensor<4xf32> {coreai.name = "y"}, tensor<4xf32> {coreai.name = "z"}) {
    %zero = coreai.constant dense<0> : tensor<si32>
    %two = coreai.constant dense<2.0> : tensor<4xf32>
    %c = coreai.greater %k, %zero : (tensor<si32>, tensor<si32>) -> tensor<i1>
    %y:2 = coreai.if %c {
      %a = coreai.mul %x, %two : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
      coreai.yield %a, %x : tensor<4xf32>, tensor<4xf32>
    } else {
      %b = coreai.sub %x, %two : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>
      coreai.yield %x, %b : tensor<4xf32>, tensor<4xf32>
    } : tensor<i1> -> tensor<4xf32>, tensor<4xf32>
    coreai.output %y#0, %y#1 : tensor<4xf32>, tensor<4xf32>
  }
}"""


# As a mixture of experts has it: each row its own matrix. The composite is read from its decomposition.
GATHER_MM = """module {
  coreai.graph private noinline @gather_mm_1(%x: tensor<3x1x16xf32> {coreai.name = "lhs"}, %w: tensor<4x16x8xf32> {coreai.name = "rhs"}, %i: tensor<3x1xsi32> {coreai.name = "rhs_indices"}) -> (tensor<3x1x8xf32> {coreai.name = "output"}) attributes {composite_decl = #coreai.composite_declaration<"gather_mm" = {input_names = ["lhs", "rhs", "rhs_indices"], op_attrs = {version = 1 : si64}, output_names = ["output"]}>} {
    %g = coreai.gather_nd %w at %i : (tensor<4x16x8xf32>, tensor<3x1xsi32>) to tensor<3x16x8xf32>
    %y = coreai.decomposable.broadcasting_batch_matmul %x, %g : (tensor<3x1x16xf32>, tensor<3x16x8xf32>) -> tensor<3x1x8xf32>
    coreai.output %y : tensor<3x1x8xf32>
  }
  coreai.graph @main(%x: tensor<3x1x16xf32> {coreai.name = "x"}, %i: tensor<3x1xsi32> {coreai.name = "experts"}) -> (tensor<3x1x8xf32> {coreai.name = "y"}) {
    %w = coreai.constant dense<WEIGHTS> : tensor<4x16x8xf32>
    %y = coreai.invoke @gather_mm_1(%x, %w, %i) : (tensor<3x1x16xf32>, tensor<4x16x8xf32>, tensor<3x1xsi32>) -> tensor<3x1x8xf32>
    coreai.output %y : tensor<3x1x8xf32>
  }
}"""


async def run(asset, given):
    async with AIModelAsset.load(asset).executable() as model:
        got = await model.load_function("main")({k: NDArray(v) for k, v in given.items()})
        return {k: np.array(v.numpy()) for k, v in got.items()}


def case(name, text, *inputs, formula=None):
    """formula: what the ops' documentation says, where the runtime for Linux ends in a fault."""
    with Context()._mlir_context:
        module = Text.parse(text)
        asset = out / f"{name}.aimodel"
        AIProgram._from_mlir_module(module).save_asset(asset)
    (asset / "metadata.json").write_text('{"assetVersion":"2.0","producer":"coreai-core 1.0.0b3"}\n')  # no date: the same each time
    arrays = {}
    for i, given in enumerate(inputs):
        arrays |= {f"in{i}_{k}": v for k, v in given.items()}
        arrays |= {f"out{i}_{k}": v for k, v in (formula(**given) if formula else asyncio.run(run(asset, given))).items()}
    np.savez(out / f"{name}.npz", **arrays)
    print(name, sum(f.stat().st_size for f in asset.iterdir()))


def main():
    out.mkdir(exist_ok=True)
    x = random.standard_normal((2, 64)).astype(np.float16)
    scale = random.uniform(0.01, 0.1, (8, 2)).astype(np.float16)
    none = np.zeros((8, 2), np.float16)
    bias = random.uniform(-0.5, 0.5, (8, 2)).astype(np.float16)
    bytes_ = random.integers(0, 256, (8, 64), np.uint8)
    e4m3 = np.where(bytes_ & 0x7F == 0x7F, 0, bytes_).astype(np.uint8)  # no NaN
    e5m2 = (bytes_ & 0x80 | (0x20 + bytes_ % 0x28)).astype(np.uint8)  # 2^-7 to 8
    for name, data, kind, offset, behind in [
            ("weight_e4m3", e4m3, "f8E4M3FN", np.zeros((8, 2), np.uint8), none),
            ("weight_e5m2", e5m2, "f8E5M2", np.zeros((8, 2), np.uint8), none),
            ("weight_si8_zero", bytes_.astype(np.int8), "si8", random.integers(-90, 90, (8, 2)).astype(np.int8), none),
            ("weight_ui4_zero", bytes_ & 15, "ui4", random.integers(0, 16, (8, 2)).astype(np.uint8), none),
            ("weight_si8_bias", bytes_.astype(np.int8), "si8", np.zeros((8, 2), np.int8), bias),
            ("weight_ui4_both", bytes_ & 15, "ui4", random.integers(0, 16, (8, 2)).astype(np.uint8), bias)]:
        case(name, weight(data, kind, scale, offset, behind), {"x": x})
    for bits in (1, 2, 3, 4, 6, 8):
        case(f"palette{bits}", palette(bits), {"x": random.standard_normal((8, 32)).astype(np.float32)})
    rows, offset = bias[:3, :1], np.array([[5], [-100], [0]], np.int8)
    case("dequantized", dequantized(offset, rows), {"codes": bytes_.astype(np.int8).astype(np.int32)[:3, :8], "scale": scale[:3, :1]},
         formula=lambda codes, scale: {"y": ((codes - offset.astype(int)) * scale.astype(float) + rows.astype(float)).astype(np.float16),
                                       "z": ((codes - 3) * 2.0 + 1).astype(np.float16)})
    case("branch", BRANCH, *({"x": random.standard_normal(4).astype(np.float32), "k": np.array(k, np.int32)} for k in (1, -1)))
    experts = random.standard_normal((4, 16, 8)).astype(np.float32)
    case("gather_mm", GATHER_MM.replace("WEIGHTS", hex_of(experts)),
         {"x": random.standard_normal((3, 1, 16)).astype(np.float32), "experts": np.array([[2], [0], [3]], np.int32)})


if __name__ == "__main__":
    main()
