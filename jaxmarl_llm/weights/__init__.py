"""Models in and out: `load` a model by name, hub id, folder or file, and `save` one.

`model_files` finds the files, `tensor_files` and `gguf_file` read them, `hf_config` and `hf` translate
between Hugging Face's names and shapes and the policy's, `gguf_tokenizer` makes a tokenizer of a GGUF
file's vocabulary, `peft` reads and writes low-rank adapters. `random_weights` and `word_model` need no
files.
"""

from jaxmarl_llm.weights.loading import LoadedModel, load, save

__all__ = [
    "LoadedModel",
    "load",
    "save",
]
