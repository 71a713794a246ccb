"""What the ahead-of-time tables read off a compiler's text, and that finished cells are not compiled again."""

import json

import jax
import jax.numpy as jnp
import pytest

from benchmarks import aot, hlo

# A loop over tokens: 3 kernels of its own, 4 rounds of 2, 2 rounds of the same 2; the loop before it reads the prompt.
TEXT = """HloModule jit_generate, is_scheduled=true

%fused (p: f32[8,64]) -> bf16[8,64] {
  %p = f32[8,64]{1,0} parameter(0)
  ROOT %inside = bf16[64,64,2304]{2,1,0} convert(%p)
}

%layer (arg: (bf16[8,64])) -> (bf16[8,64]) {
  %arg = (bf16[8,64]{1,0}) parameter(0)
  %x = bf16[8,64]{1,0} get-tuple-element(%arg), index=0
  %w = bf16[1,128,64]{2,1,0:T(8,128)(2,1)} dynamic-slice(%all, %i), dynamic_slice_sizes={1,128,64}
  %y.1 = (bf16[8,64]{1,0}, f32[8]{0}) fusion(%x, %w), kind=kOutput, calls=%fused
  ROOT %out = (bf16[8,64]{1,0}) tuple(%y.1)
}

%some (arg.1: (s32[], bf16[8,64])) -> pred[] {
  ROOT %lt = pred[] compare(%a, %b), direction=LT
}

%twice (arg.4: (s32[], bf16[8,64])) -> pred[] {
  %limit = s32[]{:T(128)} constant(2)
  ROOT %lt.1 = pred[] compare(%a, %limit), direction=LT
}

%token (arg.2: (s32[], bf16[8,64])) -> (s32[], bf16[8,64]) {
  %arg.2 = (s32[], bf16[8,64]{1,0}) parameter(0)
  %copy.3 = bf16[2,128,2304]{2,1,0} copy(%cache)
  %while.1 = (bf16[8,64]) while(%start), condition=%some, body=%layer, backend_config={"known_trip_count":{"n":"4"}}
  %while.4 = (bf16[8,64]{1,0}) while(%start), condition=%twice, body=%layer
  %count = s32[] add(%i, %one)
  %scores = f32[1,2304,640]{2,1,0} fusion(%x), kind=kLoop, calls=%fused
  ROOT %all = (s32[], bf16[8,64]{1,0}) tuple(%i, %add)
  %last = f32[8,512]{1,0} convolution(%x, %head), dim_labels=bf_oi->bf
}

%prompt (arg.3: (bf16[8,64])) -> (bf16[8,64]) {
  %big = f32[2304,2304]{1,0} fusion(%x), kind=kLoop, calls=%fused
}

ENTRY %main (a: bf16[8,64]) -> bf16[8,64] {
  %while.2 = (bf16[8,64]{1,0}) while(%t), condition=%some, body=%prompt, backend_config={"known_trip_count":{"n":"2"}}
  %while.3 = (s32[], bf16[8,64]{1,0}) while(%t), condition=%some, body=%token
}
"""


def test_the_loop_over_tokens_and_its_kernels():
    loop = hlo.token_loop(TEXT)
    assert loop.kernels == 3 + 4 * 2 + 2 * 2
    assert [each.operation for each in loop.instructions] == [
        "copy", *["dynamic-slice", "fusion"] * 2, "fusion", "convolution"
    ]  # fmt: skip


def test_arrays_of_weights_and_of_scores():
    loop = hlo.token_loop(TEXT)
    assert [each.operation for each in hlo.large(loop.instructions, 64 * 128, (2304, 320))] == ["dynamic-slice"] * 2
    assert hlo.scores(hlo.executed(TEXT), (2304, 320)) == {
        "f32[1,2304,640]": 4 * 2304 * 640, "f32[2304,2304]": 4 * 2304 * 2304,
    }  # fmt: skip


def test_arrays_that_are_no_moved_weights():
    """A part on its way into memory on the chip (another into the large memory counts), and the logits of the rows."""
    text = """%token (arg: (s32[])) -> (s32[]) {
  %ahead = s8[65536]{0:T(1024)S(1)} async-done(%slice-start), backend_config={}
  %copied = bf16[256,512]{1,0:T(8,128)S(1)} copy-done(%copy-start)
  %back = bf16[256,512]{1,0:T(8,128)} copy-done(%copy-start.1)
  %logits = f32[1,8,32,257]{3,2,1,0:T(8,128)S(1)} fusion(%x), kind=kLoop, calls=%fused
  %table = bf16[8192,64]{1,0:T(8,128)} all-gather(%part), dimensions={0}
}
"""
    written = hlo.computations(text)["token"]
    assert [each.line.split()[0] for each in hlo.large(written, 65536, (2304,), logits=8 * 8192)] == ["%back", "%table"]


def test_the_text_of_this_compiler_is_read():
    """A loop of 5 rounds in a loop that ends by its data, as XLA writes it."""

    def program(x, weights):
        def token(carry):
            t, x = carry
            return t + 1, jax.lax.scan(lambda x, w: (jnp.tanh(x @ w), None), x, weights)[0]

        return jax.lax.while_loop(lambda carry: (carry[0] < 9) & (carry[1].sum() < 3), token, (0, x))

    text = jax.jit(program).lower(jnp.ones((8, 64)), jnp.ones((5, 64, 64))).compile().as_text()
    loop = hlo.token_loop(text)
    assert loop.kernels > 5 and any(each.operation in ("dot", "fusion", "custom-call") for each in loop.instructions)
    assert hlo.scores(hlo.executed(text), (64,))


@pytest.fixture
def compiled(monkeypatch):
    """The cells that are compiled; nothing is."""
    keys = []

    def measure(*key):
        keys.append(key)
        row = dict(zip(("cell", "attention", "program"), key, strict=True))
        return row | {"arguments": 2.5, "temporaries": 0.25, "scores": 1, "largest_scores": ["f32[9,9]", 2**21]}

    monkeypatch.setattr(aot, "measure", measure)
    return keys


def test_a_finished_cell_is_not_compiled_again(tmp_path, compiled, capsys):
    out = tmp_path / "cells.jsonl"
    given = [f"--out={out}", "--cells=v5p:full:2k"]
    aot.main([*given, "--programs=update"])
    aot.main(given)
    assert compiled == [("v5p:full:2k", "auto", "update"), ("v5p:full:2k", "auto", "sampler")]
    aot.main([f"--out={out}", "--table"])
    assert len(compiled) == 2 and len(out.read_text().splitlines()) == 2
    line = "| v5p:full:2k | auto | update | 2.5 | 0.25 | - | - | 1: f32[9,9] 2 MiB |"
    assert capsys.readouterr().out.splitlines()[-2] == line


def test_what_does_not_fit_is_a_row(tmp_path):
    row = {"cell": "v5e-16:full:32k", "attention": "auto", "program": "update", "does_not_fit": 21.25}
    (tmp_path / "cells").write_text(json.dumps(row))
    assert "does not fit: 21.2" in aot.table(aot.rows_of(tmp_path / "cells"))


def test_a_cell_that_is_none_is_refused(tmp_path, capsys):
    with pytest.raises(SystemExit):
        aot.main([f"--out={tmp_path / 'x'}", "--cells=v9:full:2k"])
    assert "--cells=v9:full:2k: allowed are v5p:adapters:2k, " in capsys.readouterr().err
