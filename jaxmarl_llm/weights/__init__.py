"""Load and save models: `load` takes a name, hub id, folder or file, `save` writes a folder.

`families` is the table of what is supported. `model_files` finds the files, `tensor_files` and `gguf_file`
read them, `hf_config`, `hf_rope` and `hf` translate between Hugging Face's names and shapes and the policy's,
`gguf_tokenizer` makes a tokenizer of a GGUF file's vocabulary, `peft` reads and writes low-rank adapters.
`random_weights` and `word_model` need no files.
"""

from jaxmarl_llm.weights.loading import LoadedModel, architecture, in_dtype, load, save

__all__ = [
    "LoadedModel",
    "architecture",
    "in_dtype",
    "load",
    "save",
]
